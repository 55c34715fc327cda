"""Sampled speculative decoding has the target's distribution, whatever the drafter: chi-square against
exact enumeration of all continuations of a target with a tiny vocabulary."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from drafters.decoding import loop as loop_module
from drafters.decoding.decode import decode
from drafters.decoding.lookup_first import LookupFirst
from drafters.decoding.proposers import BlockProposer, LookupProposer, NextTokenProposer
from drafters.decoding.sampling import Sampling, accept_sampled
from drafters.model.drafter import Context, Drafter
from tests.drafters.configs import drafter_config
from tests.tiny import tiny_target

VOCAB, LENGTH, DRAWS, PROMPT = 5, 3, 3_000, [1, 3, 4]
REJECT = 1e-4


@pytest.fixture(scope="module")
def target():
    return tiny_target(vocab=VOCAB, layers=3, hidden=16, seed=3)


def by_definition(logits, sampling):
    """Temperature and top-p as their definitions say, one distribution at a time, in numpy."""
    p = np.exp((logits - logits.max()) / sampling.temperature)
    p /= p.sum()
    kept = np.zeros_like(p)
    for i in np.argsort(-p, kind="stable"):
        kept[i] = p[i]
        if kept.sum() >= sampling.top_p:
            break
    return kept / kept.sum()


def exact(target, sampling):
    """Probability of every continuation of LENGTH tokens."""
    table = {}
    for prefix in itertools.product(range(VOCAB), repeat=LENGTH - 1):
        ids = torch.tensor([PROMPT + list(prefix)])
        logits = target.forward(ids, logits=LENGTH).logits[0].double().numpy()
        p = [by_definition(row, sampling) for row in logits]
        for last in range(VOCAB):
            tokens = (*prefix, last)
            table[tokens] = float(np.prod([p[k][token] for k, token in enumerate(tokens)]))
    assert sum(table.values()) == pytest.approx(1)
    return table


class ScriptedDrafter:
    """A drafter that gives the same logits [V] at every slot, whatever it sees; corrected by a selection, if any."""

    def __init__(self, target, logits, **axes):
        self.dtype = target.dtype
        self.selection = self.confidence_head = None
        if axes:
            config = drafter_config(vocab_size=VOCAB, hidden_size=16, mask_token_id=0, selection_rank=4, **axes)
            trained = Drafter(config)
            g = torch.Generator().manual_seed(8)
            for parameter in trained.parameters():
                parameter.data = torch.randn(parameter.shape, generator=g)
            self.selection, self.confidence_head = trained.selection, trained.confidence_head
        self.config = SimpleNamespace(
            block_size=4,
            num_layers=1,
            target_layer_ids=(0,),
            mask_token_id=0,
            vocab_size=VOCAB,
            draft_vocab=None,
            prompt_tokens=False,
        )
        self.hidden = torch.linalg.pinv(target.head_weight) @ torch.tensor(logits)

    def project_context(self, features, positions):
        empty = torch.zeros(1, 1, features.shape[1], 1)
        return Context([empty], [empty])

    def __call__(self, embeddings, anchors, context, sizes):
        return self.hidden.expand(*embeddings.shape[:-1], -1)


DRAFTERS = {
    "uniform": [0.0, 0.0, 0.0, 0.0, 0.0],
    "peaked": [9.0, 0.0, 0.0, 0.0, 0.0],
    "wrong": [-4.0, 2.0, -4.0, 2.0, -4.0],
}
SETTINGS = {
    "T=1": Sampling(1.0),
    "T=0.5": Sampling(0.5),
    "T=1, top-p 0.9": Sampling(1.0, top_p=0.9),
    "T=1, greedy draft": Sampling(1.0, greedy_draft=True),
}


def p_value(target, drafter, sampling, seed=0, draws=DRAWS):
    expected = exact(target, sampling)
    counts = dict.fromkeys(expected, 0)
    for start in range(0, draws, 1000):
        found = decode(
            target,
            drafter,
            [PROMPT] * 1000,
            max_new_tokens=LENGTH,
            sampling=sampling,
            keys=[(seed, start + i) for i in range(1000)],
            stop_ids=frozenset(),
        )
        for sequence in found.sequences:
            counts[tuple(sequence.tokens)] += 1
    observed = np.array(list(counts.values()))
    wanted = draws * np.array(list(expected.values()))
    assert observed[wanted == 0].sum() == 0, "a continuation that the target cannot produce"
    # pool the rare continuations, for which the chi-square is not valid
    rare = wanted < 5
    if rare.any():
        observed = np.append(observed[~rare], observed[rare].sum())
        wanted = np.append(wanted[~rare], wanted[rare].sum())
    keep = wanted > 0
    return stats.chisquare(observed[keep], wanted[keep] * observed[keep].sum() / wanted[keep].sum()).pvalue


@pytest.mark.parametrize("draws", [DRAWS, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("setting", ["T=1", "T=0.5", "T=1, top-p 0.9"])
def test_the_distribution_is_the_targets(target, drafter, setting, draws):
    assert p_value(target, ScriptedDrafter(target, DRAFTERS[drafter]), SETTINGS[setting], draws=draws) > REJECT


def test_a_greedy_draft_keeps_the_distribution(target):
    assert p_value(target, ScriptedDrafter(target, DRAFTERS["peaked"]), SETTINGS["T=1, greedy draft"]) > REJECT


def test_a_good_drafter_keeps_the_distribution(target):
    # the target's own first-step logits: right at slot 1, somewhat wrong later
    logits = target.forward(torch.tensor([[*PROMPT, 0]]), logits=1).logits[0, -1].tolist()
    assert p_value(target, ScriptedDrafter(target, logits), Sampling(1.0)) > REJECT


@pytest.mark.parametrize("confidence", [0.1, 0.5])
def test_a_block_cut_by_confidence_keeps_the_distribution(target, confidence):
    logits = target.forward(torch.tensor([[*PROMPT, 0]]), logits=1).logits[0, -1].tolist()
    proposer = BlockProposer(target, ScriptedDrafter(target, logits), confidence=confidence)
    assert p_value(target, proposer, Sampling(1.0)) > REJECT


@pytest.mark.parametrize("confidence", [0.0, 0.4])
@pytest.mark.parametrize("selection", ["path", "markov", "markov_gated"])
def test_a_walk_keeps_the_distribution(target, selection, confidence):
    """Tokens that depend on the tokens drawn before them, from 3 of 5 candidates with a path; blocks cut by a head."""
    drafter = ScriptedDrafter(
        target, DRAFTERS["uniform"], selection=selection, selection_top_k=3, confidence="head" if confidence else "none"
    )
    assert p_value(target, BlockProposer(target, drafter, confidence=confidence), Sampling(1.0)) > REJECT


@pytest.mark.parametrize("kind", ["lookup", "next token"])
def test_proposers_without_training_keep_the_distribution(target, kind):
    proposer = LookupProposer(4) if kind == "lookup" else NextTokenProposer(np.array([1, 2, 3, 4, 0]), 3)
    assert p_value(target, proposer, Sampling(1.0)) > REJECT


def accept_all(draft, q, p, generator):
    return len(draft), int(torch.multinomial(p[len(draft)], 1, generator=generator))


def no_residual(draft, q, p, generator):
    accepted, _ = accept_sampled(draft, q, p, generator)
    return accepted, int(torch.multinomial(p[accepted], 1, generator=generator))


def test_lookup_before_a_drafter_keeps_the_distribution(target):
    drafter = BlockProposer(target, ScriptedDrafter(target, DRAFTERS["uniform"]))
    assert p_value(target, LookupFirst(drafter, least=1), Sampling(1.0)) > REJECT


@pytest.mark.parametrize("broken", [accept_all, no_residual])
def test_a_broken_rule_is_found(target, monkeypatch, broken):
    monkeypatch.setattr(loop_module, "accept_sampled", broken)
    assert p_value(target, ScriptedDrafter(target, DRAFTERS["wrong"]), Sampling(1.0)) < REJECT


def test_draws_do_not_depend_on_the_batch(target):
    drafter = ScriptedDrafter(target, DRAFTERS["uniform"])
    prompts = [[1, 2], [3, 4, 1, 2], [4]]
    settings = {"max_new_tokens": 12, "sampling": Sampling(1.0), "stop_ids": frozenset()}
    together = decode(target, drafter, prompts, keys=["a", "b", "c"], **settings).sequences
    for prompt, key, sequence in zip(prompts, "abc", together, strict=True):
        assert decode(target, drafter, [prompt], keys=[key], **settings).sequences[0].tokens == sequence.tokens


# apart by more than float32 resolves: which of two equal tokens comes first is not defined
logit_lists = st.lists(st.integers(-256, 256).map(lambda n: n / 32), min_size=2, max_size=9, unique=True)


@given(logit_lists, st.floats(0.2, 2), st.floats(0.05, 1))
def test_temperature_and_top_p_are_their_definitions(logits, temperature, top_p):
    sampling = Sampling(temperature, top_p=top_p)
    found = sampling.probabilities(torch.tensor(logits, dtype=torch.float64)).double().numpy()
    p = np.exp((np.array(logits) - max(logits)) / temperature)
    reached = np.cumsum(np.sort(p / p.sum())[::-1])
    if np.abs(reached - top_p).min() > 1e-5:  # at the very edge rounding decides who is in
        np.testing.assert_allclose(found, by_definition(np.array(logits), sampling), atol=1e-5)


def test_top_k_keeps_the_k_likeliest():
    p = Sampling(1.0, top_k=2).probabilities(torch.tensor([0.0, 3.0, 1.0, 2.0]))
    assert (p > 0).tolist() == [False, True, False, True]
    assert float(p[1] / p[3]) == pytest.approx(np.e, rel=1e-5)


@pytest.mark.parametrize("bad", [{"temperature": -1}, {"top_p": 0}, {"top_p": 1.1}, {"top_k": -1}])
def test_impossible_settings_are_refused(bad):
    with pytest.raises(ValueError, match="top_p"):
        Sampling(**({"temperature": 1.0} | bad))
