"""What a sample may have missed: exact tails by hand, by the binomial and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.stats.unseen import tail_above, units_wanted


def singles(values):
    return np.asarray(values), np.ones(len(values), np.int64)


@pytest.mark.parametrize(("n", "bound", "reach"), [(12, 0.05, 7), (209, 0.1, 7), (5000, 0.002, 15), (6, 3.0, 7.5)])
def test_equal_pairs_leave_the_chance_that_the_other_kind_was_never_drawn(n, bound, reach):
    # prompts that differ by `reach` move the mean to the bound if bound/reach of all prompts are of their kind
    assert tail_above(*singles([0] * n), reach, bound) == pytest.approx((1 - bound / reach) ** n, rel=1e-9)


@settings(deadline=None)
@given(st.integers(1, 2000), st.floats(0, 1), st.floats(0.0005, 0.98), st.sampled_from([1, 7, 0.3]))
def test_two_values_give_the_exact_binomial_tail(n, share, mean, reach):
    # k of n prompts differ by all they can: P(at most k of n) if the true mean is the bound
    k = int(share**3 * n)
    values = reach * (np.arange(n) < k)
    assert tail_above(*singles(values), reach, mean * reach) == pytest.approx(
        stats.binom.cdf(k, n, mean), rel=1e-7, abs=1e-12
    )


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_share_of_weights_that_reach_the_bound(seed):
    rng = np.random.default_rng(seed)
    sums, sizes, reach = rng.normal(0, 2, 25), rng.integers(1, 6, 25), 3.0
    bound = float(rng.uniform(-0.2, 0.6))
    weights = rng.dirichlet(np.ones(26), 40_000)
    means = weights @ np.append(sums, sizes.mean() * reach) / (weights @ np.append(sizes, sizes.mean()))
    assert tail_above(sums, sizes, reach, bound) == pytest.approx((means >= bound).mean(), abs=0.011)


def test_what_cannot_be_reached_has_no_probability():
    assert tail_above(*singles([0, 1, -1]), 2, 2.5) == 0.0
    assert tail_above(*singles([3, 4, 5]), 7, 3.0) == 1.0


def test_units_wanted_at_a_block_of_8_and_a_margin_of_a_tenth():
    # (1 - 0.1/7)^n < 0.05 from n = ln 0.05 / ln(1 - 0.1/7) = 208.2 on, however many were there
    assert math.log(0.05) / math.log(1 - 0.1 / 7) == pytest.approx(208.2, abs=0.05)
    assert units_wanted(*singles([0] * 12), 7, 0.1, 0.05) == units_wanted(*singles([0] * 640), 7, 0.1, 0.05) == 209
    wanted = units_wanted(*singles([0] * 50 + [3, -2, 1, 1]), 7, 0.4, 0.05)
    assert tail_above(*singles(([0] * 50 + [3, -2, 1, 1]) * 4), 7, 0.4) < 0.05 or wanted > 216
    assert units_wanted(*singles([1, 1, 1]), 7, 0.5, 0.05) is None
