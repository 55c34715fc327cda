"""Continuous batching and proposers without training: whoever shares the batch, every row is decoded as alone."""

import numpy as np
import pytest
import torch

from drafters.axes import DrafterChoice, complete
from drafters.decoding.decode import decode
from drafters.decoding.lookup import lookup
from drafters.decoding.lookup_first import LookupFirst
from drafters.decoding.loop import Loop
from drafters.decoding.proposers import BlockProposer, LookupProposer, NextTokenProposer, NoProposer
from drafters.decoding.rows import Request
from drafters.decoding.sampling import Sampling
from drafters.model.drafter import Drafter

NONE = frozenset()
PROMPTS = [[5 + i, 60, 7, 60, 7][: 2 + i % 4] * (1 + i % 3) for i in range(12)]
LIMITS = [3 + 5 * (i % 5) for i in range(12)]


def drafter_for(target, **choice):
    settings = {"num_layers": 2, "target_layers": 2, "block_size": 5, "mask_token_id": 3} | choice
    return Drafter(complete(DrafterChoice(**settings), target)).initialise(0).eval()


def successor_of(target):
    return np.random.default_rng(0).integers(4, target.vocab_size - 20, target.vocab_size)


def proposers(target):
    return {
        "plain": NoProposer(),
        "lookup": LookupProposer(4),
        "next token": NextTokenProposer(successor_of(target), 3),
        "drafter": BlockProposer(target, drafter_for(target)),
        "confident": BlockProposer(target, drafter_for(target), confidence=0.02),
        "lookup first": LookupFirst(BlockProposer(target, drafter_for(target), confidence=0.02), least=1),
    }


def alone(target, i, sampling=None):
    return decode(
        target, None, [PROMPTS[i]], max_new_tokens=LIMITS[i], stop_ids=NONE, sampling=sampling, keys=[i]
    ).sequences[0].tokens  # fmt: skip


@pytest.mark.parametrize("name", ["plain", "lookup", "next token", "drafter", "confident", "lookup first"])
def test_rows_come_and_go(tiny, name):
    loop = Loop(tiny, proposers(tiny)[name])
    requests = [Request(p, n, i) for i, (p, n) in enumerate(zip(PROMPTS, LIMITS, strict=True))]
    waiting, done = list(requests), {}
    while waiting or loop.rows:
        free = 4 - len(loop.rows)
        if waiting and free:
            new, waiting = waiting[:free], waiting[free:]
            done |= {row.request.key: row for row in loop.admit(new)}
        loop.step()
        assert len(loop.rows) == len(loop.cache.rows.lengths)
    assert [done[i].tokens for i in range(12)] == [alone(tiny, i) for i in range(12)]
    for row in done.values():
        assert sum(step.emitted for step in row.steps) == len(row.tokens) - 1
        assert row.finish_reason == "length"


def test_a_row_that_is_taken_out_leaves_the_others_alone(tiny):
    loop = Loop(tiny, BlockProposer(tiny, drafter_for(tiny)))
    rows = loop.admit([Request(PROMPTS[i], 23, i) for i in (4, 9, 11)])
    loop.step()
    loop.remove(rows[0])
    loop.remove(rows[0])  # it is gone: nothing happens
    while loop.rows:
        loop.step()
    for row in rows[1:]:
        (found,) = decode(tiny, None, [row.request.prompt], max_new_tokens=23, stop_ids=NONE).sequences
        assert row.tokens == found.tokens


def test_greedy_and_sampled_rows_share_a_batch(tiny):
    hot = Sampling(1.2, top_p=0.9)
    loop = Loop(tiny, NoProposer())
    kinds = [Sampling(), hot, Sampling(), Sampling(0.7)]
    rows = loop.admit([Request(PROMPTS[i], LIMITS[i], i, kinds[i]) for i in range(4)])
    while loop.rows:
        loop.step()
    assert [row.tokens for row in rows] == [alone(tiny, i, kinds[i]) for i in range(4)]


def test_lookup_finds_what_repeats(tiny):
    cycle = decode(tiny, None, [[5, 60]], max_new_tokens=200, stop_ids=NONE).sequences[0].tokens
    (found,) = decode(tiny, LookupProposer(6), [[5, 60, *cycle]], max_new_tokens=40, stop_ids=NONE).sequences
    drafted = sum(step.drafted for step in found.steps)
    assert 0 < drafted <= 5 * len(found.steps)
    assert all(step.accepted <= step.drafted for step in found.steps)


@torch.inference_mode()
def test_lookup_comes_before_the_drafter(tiny):
    first = proposers(tiny)["lookup first"]
    alike = BlockProposer(tiny, drafter_for(tiny), confidence=0.02)
    repeats, fresh = Request([5, 60, 7, 5, 60, 7, 5], 9), Request([41, 52, 63], 9)
    drafts = {}
    for proposer in (first, alike):
        loop = Loop(tiny, proposer)
        rows = loop.admit([repeats, fresh])
        rows[0].tokens[:], rows[1].tokens[:] = [60], [8]
        drafts[proposer] = proposer.propose(rows, [5, 4], loop.cache.rows, tiny.device)
    copied, drafted = drafts[first], drafts[alike]
    assert copied.sizes == [5, drafted.sizes[1]]
    assert copied.ids[0].tolist() == [60, *lookup([5, 60, 7, 5, 60, 7, 5, 60], 4)]
    assert copied.ids[1, : copied.sizes[1]].tolist() == drafted.ids[1, : drafted.sizes[1]].tolist()


def test_next_tokens_are_a_chain(tiny):
    successor = successor_of(tiny)
    loop = Loop(tiny, NextTokenProposer(successor, 4))
    (row,) = loop.admit([Request([5, 60], 9)])
    draft = loop.proposer.propose([row], [3], loop.cache.rows, tiny.device)
    first = row.tokens[0]
    assert draft.ids.tolist() == [[first, successor[first], successor[successor[first]]]] and draft.sizes == [3]


@torch.inference_mode()
def test_confidence_cuts_blocks_and_never_lengthens_them(tiny):
    drafter = drafter_for(tiny)
    free = BlockProposer(tiny, drafter)
    sizes = []
    for confidence in (0.0, 1e-3, 0.02, 0.99):
        loop = Loop(tiny, BlockProposer(tiny, drafter, confidence=confidence))
        rows = loop.admit([Request(p, 30) for p in PROMPTS[:6]])
        sizes.append(sum(loop.proposer.propose(rows, [5] * 6, loop.cache.rows, tiny.device).sizes))
    assert sizes[0] == 30 and sizes[-1] == 6 and sizes == sorted(sizes, reverse=True) and len(set(sizes)) > 2
    assert free.block_size == 5


@pytest.mark.parametrize("bad", [{"block_size": 9}, {"block_size": 0}, {"confidence": 1.0}, {"confidence": -0.1}])
def test_proposers_that_cannot_be(tiny, bad):
    with pytest.raises(ValueError):
        BlockProposer(tiny, drafter_for(tiny), **bad)


def test_other_impossible_requests(tiny):
    with pytest.raises(ValueError):
        LookupProposer(1)
    for prompt, limit in (([], 3), ([5], 0)):
        with pytest.raises(ValueError):
            Request(prompt, limit)
    with pytest.raises(ValueError):
        decode(tiny, LookupProposer(4), [[5]], max_new_tokens=3, block_size=2)
    half = drafter_for(tiny).cast(torch.bfloat16)
    with pytest.raises(ValueError):
        BlockProposer(tiny, half)


def test_stop_strings_that_begin_in_an_earlier_step(tiny):
    tokens = alone(tiny, 4)
    text = tiny.decode(tokens)
    stop = text[4:9]
    (found,) = decode(tiny, None, [PROMPTS[4]], max_new_tokens=LIMITS[4], stop_ids=NONE, stop_strings=[stop]).sequences
    assert found.finish_reason == "stop" and found.text_end == text.index(stop)
    assert tiny.decode(found.tokens).endswith(stop) or stop in tiny.decode(found.tokens)
    assert found.tokens == tokens[: len(found.tokens)] and len(found.tokens) < len(tokens)
