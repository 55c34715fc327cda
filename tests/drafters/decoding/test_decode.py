"""The decoding loop against the reference implementation, against plain decoding, and at its edges."""

import json
from collections import Counter

import pytest
import torch
from transformers import GenerationConfig

from drafters.checkpoints.folder import load_drafter
from drafters.decoding.decode import decode
from drafters.prompts.sources import messages
from tests.drafters.conftest import LENGTH

NONE = frozenset()


@pytest.fixture(scope="module")
def trained(tiny, overfitted):
    """(drafter folder, encoded prompts)"""
    folder, prompts = overfitted
    return folder, [tiny.encode_chat(messages(prompt)) for prompt in prompts]


@pytest.fixture(scope="module")
def drafter(trained):
    return load_drafter(trained[0])


@pytest.fixture(scope="module")
def prompts(trained):
    return trained[1][:36]  # the 24 that it was trained on, and 12 others


@pytest.fixture(scope="module")
def plain(tiny, prompts):
    return [s.tokens for s in decode(tiny, None, prompts, max_new_tokens=LENGTH, stop_ids=NONE).sequences]


def emitted(sequence):
    return [step.emitted for step in sequence.steps]


@pytest.fixture
def reference(monkeypatch, trained):
    module = pytest.importorskip("dflash.model")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)  # its clock, on a machine without a GPU
    model = module.DFlashDraftModel.from_pretrained(trained[0]).eval()

    def generate(target, prompt, **settings):
        found = module.dflash_generate(
            model, target.model, torch.tensor([prompt]), return_stats=True, temperature=0.0, **settings
        )
        return found.output_ids[0, len(prompt) :].tolist(), found.acceptance_lengths

    return generate


@pytest.mark.parametrize("block_size", [pytest.param(4, marks=pytest.mark.slow), 8, 16])
def test_parity_with_the_reference(tiny, drafter, prompts, plain, reference, block_size):
    # a token that answers really contain ends some of them early, inside accepted runs too
    stop = Counter(token for answer in plain for token in answer[8:]).most_common(1)[0][0]
    seen, reasons = Counter(), Counter()
    for i, prompt in enumerate(prompts):
        room = LENGTH - i % 5  # limits at different places of a block
        stops = [stop] if i % 2 else [2]
        expected = reference(tiny, prompt, max_new_tokens=room, stop_token_ids=stops, block_size=block_size)
        found = decode(
            tiny, drafter, [prompt], max_new_tokens=room, block_size=block_size, stop_ids=frozenset(stops)
        ).sequences[0]
        assert (found.tokens, emitted(found)) == expected
        seen.update(emitted(found))
        reasons[found.finish_reason] += 1
    assert set(reasons) == {"stop", "length"}
    assert {1, 2, 3, block_size} <= set(seen)


def test_accepted_lengths_take_every_value(tiny, drafter, prompts):
    found = decode(tiny, drafter, prompts, max_new_tokens=LENGTH, block_size=8, stop_ids=NONE)
    assert {n for s in found.sequences for n in emitted(s)} == set(range(1, 9))


@pytest.fixture(scope="module")
def theirs(tiny, prompts):
    """transformers' own greedy output."""
    settings = GenerationConfig(do_sample=False, max_new_tokens=LENGTH, eos_token_id=2, pad_token_id=0)
    outputs = [tiny.model.generate(torch.tensor([prompt]), generation_config=settings) for prompt in prompts]
    return [ids[0, len(prompt) :].tolist() for ids, prompt in zip(outputs, prompts, strict=True)]


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_greedy_is_the_targets_own_output(tiny, drafter, prompts, theirs, batch):
    found = [
        sequence.tokens
        for start in range(0, len(prompts), batch)
        for sequence in decode(tiny, drafter, prompts[start : start + batch], max_new_tokens=LENGTH).sequences
    ]
    assert found == theirs


def test_a_batch_decodes_each_sequence_as_alone(tiny, drafter, prompts):
    together = decode(tiny, drafter, prompts[::5], max_new_tokens=LENGTH).sequences
    for prompt, found in zip(prompts[::5], together, strict=True):
        alone = decode(tiny, drafter, [prompt], max_new_tokens=LENGTH).sequences[0]
        assert (found.tokens, found.steps) == (alone.tokens, alone.steps)


def test_counts_add_up_to_the_output(tiny, drafter, prompts):
    for sequence in decode(tiny, drafter, prompts, max_new_tokens=LENGTH).sequences:
        assert sum(emitted(sequence)) == len(sequence.tokens) - 1
        assert all(step.accepted <= step.eligible <= step.drafted for step in sequence.steps)


def first_long_run(sequences, least=4):
    """(index, place in the output, step) of the first step that adds at least ``least`` tokens."""
    for index, sequence in enumerate(sequences):
        place = 1
        for step in sequence.steps:
            if step.emitted >= least:
                return index, place, step
            place += step.emitted
    raise AssertionError("the drafter never accepts enough")


@pytest.fixture(scope="module")
def long_run(tiny, drafter, prompts):
    sequences = decode(tiny, drafter, prompts, max_new_tokens=LENGTH, stop_ids=NONE).sequences
    index, place, step = first_long_run(sequences)
    return prompts[index], sequences[index].tokens, place, step


def test_stop_token_inside_an_accepted_run(tiny, drafter, long_run):
    prompt, tokens, place, _ = long_run
    stop = tokens[place + 1]
    expected = tokens[: tokens.index(stop) + 1]
    found = decode(tiny, drafter, [prompt], max_new_tokens=LENGTH, stop_ids=frozenset({stop})).sequences[0]
    assert (found.tokens, found.finish_reason) == (expected, "stop")
    assert found.steps[-1].ended == "stop" and sum(emitted(found)) == len(expected) - 1


def test_several_stop_tokens_stop_at_the_first(tiny, drafter, long_run):
    prompt, tokens, place, _ = long_run
    stops = frozenset(tokens[place : place + 3])
    first = min(tokens.index(stop) for stop in stops)
    found = decode(tiny, drafter, [prompt], max_new_tokens=LENGTH, stop_ids=stops).sequences[0]
    assert found.tokens == tokens[: first + 1]


def test_length_limit_inside_a_block(tiny, drafter, long_run):
    prompt, tokens, place, step = long_run
    room = place + 2
    found = decode(tiny, drafter, [prompt], max_new_tokens=room, stop_ids=NONE).sequences[0]
    assert (found.tokens, found.finish_reason) == (tokens[:room], "length")
    assert found.steps[-1].emitted == 2 < step.emitted
    assert (found.steps[-1].eligible, found.steps[-1].ended) == (1, "length")


@pytest.mark.parametrize("room", [1, 2, 3])
def test_room_for_fewer_tokens_than_a_block(tiny, drafter, prompts, plain, room):
    found = decode(tiny, drafter, prompts[:4], max_new_tokens=room, stop_ids=NONE).sequences
    assert [s.tokens for s in found] == [answer[:room] for answer in plain[:4]]


def test_stop_string(tiny, drafter, long_run):
    prompt, tokens, _, _ = long_run
    text = tiny.decode(tokens)
    word = text[len(text) // 2 : len(text) // 2 + 2]
    found = decode(
        tiny, drafter, [prompt], max_new_tokens=LENGTH, stop_ids=NONE, stop_strings=["never there", word]
    ).sequences[0]
    assert found.finish_reason == "stop"
    assert tiny.decode(found.tokens)[: found.text_end] == text[: text.index(word)]
    assert word in tiny.decode(found.tokens) and word not in tiny.decode(found.tokens[:-1])


def test_prompt_of_one_token(tiny, drafter):
    expected = decode(tiny, None, [[65]], max_new_tokens=20, stop_ids=NONE).sequences[0].tokens
    assert decode(tiny, drafter, [[65]], max_new_tokens=20, stop_ids=NONE).sequences[0].tokens == expected


def test_the_mask_token_in_prompt_and_output_is_a_token_like_any_other(tiny, prompts, plain, trained):
    import shutil

    mask = plain[0][5]  # a token that the output contains
    folder = trained[0].parent / "other-mask"
    shutil.copytree(trained[0], folder, dirs_exist_ok=True)
    data = json.loads((folder / "config.json").read_text())
    data["dflash_config"]["mask_token_id"] = mask
    (folder / "config.json").write_text(json.dumps(data))
    found = decode(tiny, load_drafter(folder), prompts[:8], max_new_tokens=LENGTH, stop_ids=NONE).sequences
    assert [s.tokens for s in found] == plain[:8]
    assert mask in found[0].tokens


def test_block_size_of_one_is_plain_decoding(tiny, drafter, prompts, plain):
    found = decode(tiny, drafter, prompts[:3], max_new_tokens=LENGTH, block_size=1, stop_ids=NONE).sequences
    assert [s.tokens for s in found] == plain[:3]
    assert all(step.drafted == 0 for s in found for step in s.steps)


@pytest.mark.parametrize(
    "bad", [{"prompts": []}, {"prompts": [[]]}, {"block_size": 17}, {"block_size": 0}, {"max_new_tokens": 0}]
)
def test_impossible_calls_are_refused(tiny, drafter, prompts, bad):
    settings = {"prompts": prompts[:1], "max_new_tokens": 5} | bad
    with pytest.raises(ValueError, match=r"decoding requires|block size"):
        decode(tiny, drafter, settings.pop("prompts"), **settings)


def test_tokens_are_reported_as_they_come(tiny, drafter, prompts):
    heard = {0: [], 1: []}
    found = decode(
        tiny,
        drafter,
        prompts[:2],
        max_new_tokens=LENGTH,
        on_tokens=lambda index, step, tokens: heard[index].extend(tokens),
    )
    assert [heard[0], heard[1]] == [s.tokens for s in found.sequences]


def test_caches_grow_with_the_sequence_and_are_never_copied_per_step(tiny, drafter, prompts, monkeypatch):
    from drafters.decoding import ragged

    grown = []
    reserve = ragged.Store._reserve

    def counting(self, *arguments):
        before = self.data
        data = reserve(self, *arguments)
        if data is not before:
            grown.append(data.shape[2])
        return data

    monkeypatch.setattr(ragged.Store, "_reserve", counting)
    decode(tiny, drafter, prompts[:1], max_new_tokens=300, stop_ids=NONE)
    layers = 2 * (tiny.num_layers + drafter.config.num_layers)
    assert len(grown) <= 3 * layers  # room doubles: a few allocations a layer for 300 tokens
    assert max(grown) < 2 * (len(prompts[0]) + 300 + 256)
