"""The cheapest mix of seeds and prompts for an effect, from the parts of a pilot's variance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from analysis.stats.cluster import Partition
from analysis.stats.planning import MOST_CLUSTERS, Spread, plan, seeds_needed
from analysis.stats.seeds import Parts, crossed
from analysis.wording import ACCEPTED_LENGTH, Verdict


def spread(of_seeds, of_clusters, of_both, clusters=100, prompts=100, df_seeds=1.0):
    return Spread(of_seeds, of_clusters, of_both, clusters, prompts, df_seeds, clusters - 1.0)


def test_a_spread_gives_back_the_parts_it_came_from():
    parts = Parts(seeds=0.05, prompts=0.03, residual=0.01, total=0.07, df_seeds=4, df_prompts=99, df=7.5)
    found = Spread.of(parts, 5, 100, 400)
    assert (found.of_seeds, found.of_clusters, found.of_both) == pytest.approx((0.2, 2.0, 5.0))
    assert (found.clusters, found.prompts, found.df_seeds, found.df_prompts) == (100, 400, 1, 99)
    less = Spread.of(
        Parts(0.01, 0.03, 0.02, 0.03, 4, 99, 7), 5, 100, 400
    )  # fewer than their residual: none of their own
    assert (less.of_seeds, less.of_clusters) == pytest.approx((0, 1.0))


def test_power_of_seeds_alone_is_that_of_a_t_test():
    alone = spread(0.25, 0, 0)
    shift, critical = 0.6 / math.sqrt(0.25 / 8), stats.t.ppf(0.975, 7)
    exact = stats.nct.sf(critical, 7, shift) + stats.nct.cdf(-critical, 7, shift)
    assert alone.power(0.6, 8, 100) == pytest.approx(exact, rel=1e-6)
    assert alone.power(0.6, 8, 10**6) == pytest.approx(exact, rel=1e-4)


def test_power_of_prompts_alone_is_that_of_a_t_test():
    alone = spread(0, 4.0, 0)
    shift, critical = 0.5 / math.sqrt(4.0 / 150), stats.t.ppf(0.975, 149)
    assert alone.power(0.5, 5, 150) == pytest.approx(stats.nct.sf(critical, 149, shift), rel=1e-6)
    assert alone.power(0.5, 50, 150) == pytest.approx(alone.power(0.5, 5, 150))


def test_power_is_what_simulated_studies_find():
    rng, clusters, seeds, found = np.random.default_rng(0), Partition(np.arange(40), 40), 6, 0
    pilot = spread(0.04, 1.0, 1.0, 40, 40)
    for _ in range(400):
        d = 0.5 + rng.normal(0, 0.2, (seeds, 1)) + rng.normal(0, 1.0, 40) + rng.normal(0, 1.0, (seeds, 40))
        found += (
            crossed(np.zeros_like(d), d, clusters, ACCEPTED_LENGTH, paired=True).estimate.verdict is Verdict.B_BETTER
        )
    assert found / 400 == pytest.approx(pilot.power(0.5, seeds, 40), abs=0.06)


def test_every_design_has_the_power_and_one_cluster_less_has_not():
    pilot = spread(0.04, 2.0, 3.0, clusters=60, prompts=240)
    found = plan(pilot, 0.4, cost_training=10, cost_prompt=0.01)
    assert found.cheapest in found.designs
    assert found.cheapest.cost == min(d.cost for d in found.designs)
    for d in found.designs:
        assert d.power >= 0.8 > pilot.power(0.4, d.seeds, d.clusters - 1)
        assert d.prompts == 4 * d.clusters
        assert d.cost == pytest.approx(2 * d.seeds * (10 + 0.01 * d.prompts))


def test_dear_trainings_buy_prompts_and_dear_prompts_buy_trainings():
    pilot = spread(0.04, 1.0, 6.0, clusters=60, prompts=60)
    few = plan(pilot, 0.4, cost_training=1000, cost_prompt=0.01).cheapest
    many = plan(pilot, 0.4, cost_training=0.01, cost_prompt=1.0).cheapest
    assert few.seeds < many.seeds
    assert few.prompts > many.prompts


def test_the_cheapest_is_that_of_an_exhaustive_search():
    pilot = spread(0.05, 1.0, 4.0, clusters=50, prompts=50)
    found = plan(pilot, 0.5, cost_training=3.0, cost_prompt=0.05)
    costs = {
        (s, c): 2 * s * (3.0 + 0.05 * c) for s in range(5, 60) for c in range(6, 400) if pilot.power(0.5, s, c) >= 0.8
    }
    assert (found.cheapest.seeds, found.cheapest.clusters) == min(costs, key=costs.get)


def test_one_fixed_arm_is_not_trained():
    pilot = spread(0.04, 1.0, 1.0)
    found = plan(pilot, 0.4, cost_training=10, cost_prompt=1.0, trained=1, fixed=1)
    d = found.designs[0]
    assert (d.trainings_cost, d.prompts_cost) == (10 * d.seeds, (d.seeds + 1) * d.prompts)


def test_an_effect_that_no_number_finds():
    # no number of prompts makes up for seeds that differ, and the least power is out of reach with 1,000
    wide = spread(10.0**6, 1.0, 1.0)
    assert wide.power(0.1, 1000, MOST_CLUSTERS) < 0.8
    found = plan(wide, 0.1, cost_training=1, cost_prompt=1)
    assert (found.designs, found.cheapest) == ((), None)


def test_seeds_that_would_do():
    pilot = spread(0.2, 0.5, 0.5)
    needed = seeds_needed(pilot, 0.4)
    assert pilot.power(0.4, needed, 100) >= 0.8 > pilot.power(0.4, needed - 1, 100)
    assert seeds_needed(pilot, 0.05) is None  # the prompts alone leave a standard error of 0.07
    assert seeds_needed(spread(0.0, 0.1, 0.1), 1.0) == 5
