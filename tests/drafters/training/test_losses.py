"""The weighted cross-entropy."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from drafters.config import LossSettings
from drafters.model.acceptance import count_first_block
from drafters.model.blocks import IGNORED, make_blocks
from drafters.model.head import OutputRows
from drafters.training import losses
from drafters.training.losses import (
    Supervision,
    block_loss,
    decaying,
    default_gamma,
    dpace_weights,
    fixed_weights,
    step_weights,
)


def test_published_weights():
    w = fixed_weights(16, default_gamma(16))
    assert len(w) == 15
    assert w[0] == 1
    assert float(w[14]) == pytest.approx(math.exp(-2), abs=1e-7)  # 0.135, as published for B = 16, gamma 7
    assert [default_gamma(b) for b in (8, 10, 16)] == [4, 5, 7]


def output_rows(weight, allowed=None):
    ids = torch.arange(len(weight))
    return OutputRows(weight, ids, allowed, ids)


def asked(labels, real, at_risk=None, previous=None, final=None):
    """Every slot at risk and after token 0, unless said otherwise."""
    risk = torch.ones_like(labels, dtype=torch.bool) if at_risk is None else at_risk
    return Supervision(labels, torch.zeros_like(labels) if previous is None else previous, real, risk, final)


def example(seed=0, batch=2, blocks=3, slots=4, hidden=8, vocab=11):
    g = torch.Generator().manual_seed(seed)
    h = torch.randn(batch, blocks, slots, hidden, generator=g, requires_grad=True)
    head = output_rows(torch.randn(vocab, hidden, generator=g))
    labels = torch.randint(0, vocab, (batch, blocks, slots), generator=g)
    labels[0, 1, 2] = IGNORED
    labels[1, 2] = IGNORED
    real = torch.ones(batch, blocks, dtype=torch.bool)
    real[1, 2] = False
    return h, head, labels, real


def test_sums_are_those_of_a_loop():
    h, head, labels, real = example()
    found = block_loss(h, head, asked(labels, real), decaying(5, 3.0))
    top = bottom = 0.0
    runs = 0
    for b in range(2):
        for n in range(3):
            run = 0
            alive = True
            for k in range(4):
                label = int(labels[b, n, k])
                logits = head.weight @ h[b, n, k]
                if label != IGNORED:
                    ce = (torch.logsumexp(logits, 0) - logits[label]).item()
                    top += math.exp(-k / 3.0) * ce
                    bottom += math.exp(-k / 3.0)
                alive = alive and label != IGNORED and int(logits.argmax()) == label
                run += alive
            runs += run
    assert float(found.numerator) == pytest.approx(top, rel=1e-6)
    assert float(found.denominator) == pytest.approx(bottom, rel=1e-6)
    assert int(found.accepted) == runs
    assert int(found.blocks) == 5
    assert int(found.count.sum()) == int((labels != IGNORED).sum())


def test_pieces_give_the_same_loss_and_gradient(monkeypatch):
    h, head, labels, real = example()
    w = decaying(5, 3.0)
    block_loss(h, head, asked(labels, real), w).numerator.backward()
    whole = h.grad.clone()
    h.grad = None
    monkeypatch.setattr(losses, "LOGIT_ROWS", 3)
    found = block_loss(h, head, asked(labels, real), w)
    found.numerator.backward()
    torch.testing.assert_close(h.grad, whole, rtol=1e-6, atol=1e-7)


def test_nothing_supervised_is_zero_over_zero_not_nan():
    h, head, labels, real = example()
    found = block_loss(h, head, asked(torch.full_like(labels, IGNORED), real), decaying(5, 3.0))
    assert float(found.numerator) == 0 and float(found.denominator) == 0
    found.numerator.backward()
    assert not h.grad.isnan().any()


@pytest.mark.parametrize(
    ("settings", "block_size", "gammas"),
    [
        ({}, 16, (4.5, 7.0, 9.5)),  # published: 4.5, and 1 more in each of six epochs
        ({}, 8, (4.5 * 4 / 7, 4.0, 9.5 * 4 / 7)),  # the same shares of gamma 4
        ({"gamma_start": 2.0, "gamma_end": 12.0}, 16, (2.0, 7.0, 12.0)),
    ],
)
def test_progressive_weights_at_the_first_middle_and_last_step(settings, block_size, gammas):
    steps = 101
    every = torch.ones(1, 1, block_size - 1, dtype=torch.bool)
    for step, expected in zip((0, 50, 100), gammas, strict=True):
        gamma, weights = step_weights(LossSettings(weighting="progressive", **settings), block_size, step, steps)
        assert gamma == pytest.approx(expected, rel=1e-12)
        k = np.arange(1, block_size)
        found = weights(torch.zeros(block_size - 1), every).numpy()
        np.testing.assert_allclose(found, np.exp(-(k - 1) / expected), atol=1e-6, rtol=0)


def test_progressive_training_of_one_step_starts_at_the_start():
    assert step_weights(LossSettings(weighting="progressive"), 16, 0, 1)[0] == pytest.approx(4.5)


def test_fixed_weights_are_the_same_at_every_step():
    assert [step_weights(LossSettings(), 8, step, 10)[0] for step in (0, 5, 9)] == [4, 4, 4]
    assert step_weights(LossSettings(gamma=2.5), 8, 3, 10)[0] == 2.5


def dpace_by_loop(ce, supervised, alpha):
    """w_j = sum over supervised m >= j of prod_{i <= m} s_i, block by block."""
    weights = np.zeros(ce.shape)
    for block, flags, out in zip(ce, supervised, weights, strict=True):
        s = [(1 - alpha) * np.exp(-c) + alpha if f else alpha for c, f in zip(block, flags, strict=True)]
        for j in np.flatnonzero(flags):
            out[j] = sum(np.prod(s[: m + 1]) for m in range(j, len(s)) if flags[m])
    return weights


@given(st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_dpace_weights_are_their_formula(seed, alpha):
    random = np.random.default_rng(seed)
    ce, supervised = random.exponential(1.0, (4, 7)), random.random((4, 7)) < 0.8
    found = dpace_weights(torch.tensor(ce[supervised]), torch.tensor(supervised), alpha).numpy()
    np.testing.assert_allclose(found, dpace_by_loop(ce, supervised, alpha)[supervised], atol=1e-9)


def test_dpace_weight_is_the_pull_of_a_slot_on_the_expected_accepted_length():
    ce = torch.tensor([0.1, 2.0, 0.5, 1.0], dtype=torch.float64)
    log_s = ((0.5 * (-ce).exp()) + 0.5).log().requires_grad_()
    log_s.exp().cumprod(-1).sum().backward()
    torch.testing.assert_close(dpace_weights(ce, torch.ones(4, dtype=torch.bool), 0.5), log_s.grad)


def test_dpace_without_doubt_counts_the_slots_still_to_come():
    every = torch.ones(1, 1, 5, dtype=torch.bool)
    assert dpace_weights(torch.zeros(5), every, 0.5).tolist() == [5, 4, 3, 2, 1]
    # nothing is sure: every further slot counts half of the one before it
    hopeless = dpace_weights(torch.full((5,), 1e3), every, 0.5)
    assert hopeless[-1] == pytest.approx(0.5**5)


def test_dpace_is_normalised_by_its_own_weights_and_not_differentiated_through():
    h, head, labels, real = example()
    gamma, weights = step_weights(LossSettings(weighting="dpace"), 5, 0, 10)
    found = block_loss(h, head, asked(labels, real), weights)
    assert gamma is None
    supervised = labels != IGNORED
    logits = (h.detach() @ head.weight.T)[supervised]
    ce = torch.nn.functional.cross_entropy(logits, labels[supervised], reduction="none")
    w = torch.tensor(dpace_by_loop(*(x.reshape(6, 4).numpy() for x in (spread(ce, supervised), supervised)), 0.5))
    w = w.view(2, 3, 4)[supervised].float()
    assert float(found.numerator) == pytest.approx(float((w * ce).sum()), rel=1e-6)
    assert float(found.denominator) == pytest.approx(float(w.sum()), rel=1e-6)
    (gradient,) = torch.autograd.grad(found.numerator, h)
    again = h.detach().requires_grad_()
    ce = torch.nn.functional.cross_entropy((again @ head.weight.T)[supervised], labels[supervised], reduction="none")
    torch.testing.assert_close(gradient, torch.autograd.grad((w * ce).sum(), again)[0])


def spread(values, places):
    out = torch.zeros(places.shape)
    out[places] = values
    return out


@pytest.mark.parametrize(
    "settings",
    [{"weighting": "fixed", "alpha": 0.3}, {"weighting": "dpace", "gamma": 4.0}, {"gamma_end": 9.0}],
)
def test_settings_that_the_weighting_does_not_read_are_refused(settings):
    with pytest.raises(ValidationError, match="is for weighting"):
        LossSettings(**settings)
    # what a run's manifest keeps of its settings can be read again
    kept = LossSettings(weighting="dpace", alpha=0.3).model_dump()
    assert LossSettings(**kept).alpha == 0.3


@given(st.lists(st.sampled_from([2, 7, 9]), min_size=2, max_size=9), st.randoms(use_true_random=False))
def test_an_accepted_length_is_counted_as_evaluation_counts_it(answer, random):
    """Against count_first_block, the other form of the same rule: 2 is the stop token."""
    answer = answer[: answer.index(2) + 1] if 2 in answer else answer
    draft = [random.choice([token, 9]) for token in answer[1:]] + [9] * (9 - len(answer))
    if len(answer) < 2:
        return  # no anchor: Trainer.validate counts these
    supervised = np.ones(len(answer), dtype=bool)
    places = [np.array([0])]
    blocks = make_blocks([torch.tensor(answer)], [supervised], places, block_size=9, mask_token_id=3)
    head = torch.eye(10)
    hidden = 9 * head[torch.tensor(draft)][None, None]
    found = block_loss(
        hidden, output_rows(head), asked(blocks.labels, blocks.real, blocks.at_risk({2})), decaying(9, 4.0)
    )
    assert 1 + int(found.accepted) == count_first_block(draft, answer, {2}).emitted


def test_a_row_that_its_sequence_may_not_predict_is_not_there():
    h, head, labels, real = example()
    allowed = torch.ones(2, 11, dtype=torch.bool)
    allowed[0, 9:] = False  # the first sequence cannot predict the last two rows
    labels[0] = labels[0].clamp(max=8)
    both = block_loss(h, output_rows(head.weight, allowed), asked(labels, real), decaying(5, 3.0))
    parts = [
        block_loss(
            h[i : i + 1], output_rows(head.weight[:n]), asked(labels[i : i + 1], real[i : i + 1]), decaying(5, 3.0)
        )
        for i, n in ((0, 9), (1, 11))
    ]
    assert float(both.numerator) == pytest.approx(sum(float(p.numerator) for p in parts), rel=1e-6)
    assert int(both.accepted) == sum(int(p.accepted) for p in parts)
