"""The weighted cross-entropy."""

import math

import pytest
import torch

from drafters import losses
from drafters.blocks import IGNORED
from drafters.losses import block_loss, default_gamma, fixed_weights


def test_published_weights():
    w = fixed_weights(16, default_gamma(16))
    assert len(w) == 15
    assert w[0] == 1
    assert float(w[14]) == pytest.approx(math.exp(-2), abs=1e-7)  # 0.135, as published for B = 16, gamma 7
    assert [default_gamma(b) for b in (8, 10, 16)] == [4, 5, 7]


def example(seed=0, batch=2, blocks=3, slots=4, hidden=8, vocab=11):
    g = torch.Generator().manual_seed(seed)
    h = torch.randn(batch, blocks, slots, hidden, generator=g, requires_grad=True)
    head = torch.randn(vocab, hidden, generator=g)
    labels = torch.randint(0, vocab, (batch, blocks, slots), generator=g)
    labels[0, 1, 2] = IGNORED
    labels[1, 2] = IGNORED
    real = torch.ones(batch, blocks, dtype=torch.bool)
    real[1, 2] = False
    return h, head, labels, real


def test_sums_are_those_of_a_loop():
    h, head, labels, real = example()
    w = fixed_weights(5, 3.0)
    found = block_loss(h, head, labels, w, real)
    top = bottom = 0.0
    runs = 0
    for b in range(2):
        for n in range(3):
            run = 0
            alive = True
            for k in range(4):
                label = int(labels[b, n, k])
                logits = head @ h[b, n, k]
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
    w = fixed_weights(5, 3.0)
    block_loss(h, head, labels, w, real).numerator.backward()
    whole = h.grad.clone()
    h.grad = None
    monkeypatch.setattr(losses, "LOGIT_ROWS", 3)
    found = block_loss(h, head, labels, w, real)
    found.numerator.backward()
    torch.testing.assert_close(h.grad, whole, rtol=1e-6, atol=1e-7)


def test_nothing_supervised_is_zero_over_zero_not_nan():
    h, head, labels, real = example()
    found = block_loss(h, head, torch.full_like(labels, IGNORED), fixed_weights(5, 3.0), real)
    assert float(found.numerator) == 0 and float(found.denominator) == 0
    found.numerator.backward()
    assert not h.grad.isnan().any()
