"""Betting: the martingale by hand, the promise by simulation, and its edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.stats.sequential import _stakes, sequential


def by_hand(d, bound):
    """The capital against a mean of 0 after every difference, one bet at a time."""
    up = down = 1.0
    history = []
    stakes = _stakes((np.asarray(d) / bound + 1) / 2)
    for value, stake in zip(d, stakes, strict=True):
        stake = min(stake, 1.0)  # half of the capital, per distance of 1/2
        away = (value / bound + 1) / 2 - 0.5
        up, down = up * (1 + stake * away), down * (1 - stake * away)
        history.append((up + down) / 2)
    return history


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(-7, 7), min_size=1, max_size=60))
def test_the_capital_by_hand(d):
    found, history = sequential(np.array(d, float), 7), by_hand(d, 7)
    assert found.e_value == pytest.approx(history[-1])
    assert found.p == pytest.approx(min(1.0, 1 / max(history)))
    assert found.decided_at == next((i for i, e in enumerate(history, 1) if e >= 20), None)
    assert found.lo <= found.hi and found.lo >= -7 and found.hi <= 7


def test_stakes_know_the_past_alone():
    x = np.random.default_rng(0).random(50)
    other = x.copy()
    other[30:] = 1 - other[30:]
    np.testing.assert_array_equal(_stakes(x)[:31], _stakes(other)[:31])


def test_looking_after_every_prompt_errs_at_most_one_time_in_twenty():
    rng = np.random.default_rng(1)
    wrong = sum(sequential(rng.choice([-2.0, 0.0, 1.0, 1.0], 100), 7).decided for _ in range(100))
    assert wrong <= 5 + 3 * math.sqrt(100 * 0.05 * 0.95)


def test_a_difference_is_found_and_stays_found():
    rng = np.random.default_rng(2)
    d = rng.integers(-3, 5, 3000).astype(float)  # mean 0.5
    found = sequential(d, 7)
    assert found.decided and 0 < found.lo < 0.5 < found.hi < 1
    after = sequential(np.concatenate([d, -d[:2000]]), 7)
    assert after.decided_at == found.decided_at and after.p <= found.p


def test_the_sign_turns_with_the_arms():
    d = np.random.default_rng(3).integers(-2, 5, 400).astype(float)
    one, other = sequential(d, 7), sequential(-d, 7)
    assert (one.lo, one.hi, one.e_value) == pytest.approx((-other.hi, -other.lo, other.e_value))


@pytest.mark.parametrize(("d", "bound"), [([], 1), ([2.0], 1), ([0.0], 0)])
def test_what_cannot_be_bet_on(d, bound):
    with pytest.raises(ValueError, match="betting requires"):
        sequential(np.array(d), bound)
