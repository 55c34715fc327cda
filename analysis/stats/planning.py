"""How many trainings and prompts are needed to detect an effect, from the variance components of a pilot.

The variance of a difference over S seeds and C clusters of prompts is seeds/S + prompts/C + residual/(S C). A pilot
estimates the three. A plan is the cheapest S and C at which the test of :mod:`analysis.stats.seeds` detects the effect.
That test requires both of its t tests to reject (over seeds; over seeds and prompts), so its power is the smaller.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

from analysis.stats.method import FEWEST
from analysis.stats.seeds import FEWEST_SEEDS, Parts
from analysis.stats.sensitivity import POWER, t_power

#: Larger designs are not considered.
MOST_SEEDS, MOST_CLUSTERS = 1_000, 10**7


@dataclass(frozen=True)
class Spread:
    """Variance components of the difference: one seed, one cluster of prompts, and one seed on one cluster.

    ``clusters``, ``prompts``: how many the pilot had; ``df_seeds``: per seed beyond the first (2 for arms that are not
    paired, whose spread both estimate); ``df_prompts``: of the pilot's clusters.
    """

    of_seeds: float
    of_clusters: float
    of_both: float
    clusters: int
    prompts: int
    df_seeds: float
    df_prompts: float

    @classmethod
    def of(cls, parts: Parts, seeds: float, clusters: int, prompts: int) -> Spread:
        """From the parts over ``seeds`` trainings per arm, ``clusters`` and ``prompts``."""
        return cls(
            of_seeds=seeds * max(parts.seeds - parts.residual, 0.0),
            of_clusters=clusters * max(parts.prompts - parts.residual, 0.0),
            of_both=seeds * clusters * parts.residual,
            clusters=clusters,
            prompts=prompts,
            df_seeds=parts.df_seeds / (seeds - 1),
            df_prompts=parts.df_prompts,
        )

    def power(self, effect: float, seeds: int, clusters: float) -> float:
        """Probability that a two-sided test at 5% over so many seeds per arm and clusters detects ``effect``."""
        both = self.of_both / (seeds * clusters)
        of_seeds, of_prompts = self.of_seeds / seeds + both, self.of_clusters / clusters + both
        total = of_seeds + of_prompts - both
        if total <= 0:
            return 1.0
        df_seeds = self.df_seeds * (seeds - 1)
        df_prompts = (self.df_prompts + 1) * clusters / self.clusters - 1
        if df_prompts <= 0:
            return 0.0
        squares = of_seeds**2 / df_seeds + of_prompts**2 / df_prompts + both**2 / (df_seeds * df_prompts)
        tests = [(of_seeds, df_seeds), (total, total**2 / squares)]
        return min(t_power(abs(effect) / math.sqrt(v), df) for v, df in tests if v > 0)


@dataclass(frozen=True)
class Design:
    """A number of seeds per arm and of prompts, in clusters like the pilot's, with cost and power."""

    seeds: int
    prompts: int
    clusters: int
    trainings_cost: float
    prompts_cost: float
    power: float

    @property
    def cost(self) -> float:
        """Of trainings and prompts together."""
        return self.trainings_cost + self.prompts_cost


@dataclass(frozen=True)
class Plan:
    """``designs``: for each number of seeds, the fewest prompts that detect the effect; ``cheapest``: the cheapest of
    them. Empty and None if no design is large enough."""

    effect: float
    wanted: float
    designs: tuple[Design, ...]
    cheapest: Design | None


def plan(
    spread: Spread,
    effect: float,
    *,
    cost_training: float,
    cost_prompt: float,
    trained: int = 2,
    fixed: int = 0,
    power: float = POWER,
) -> Plan:
    """Plan for ``effect``. ``cost_training``: of one training of one arm; ``cost_prompt``: of one prompt in one run, in
    the same unit. ``trained``: arms that every seed trains; ``fixed``: runs beside them that only answer prompts."""
    designs: list[Design] = []
    cheapest: Design | None = None
    least = -(-FEWEST * spread.clusters // max(1, math.floor(spread.df_prompts + 1)))  # effective clusters, at least
    for seeds in range(FEWEST_SEEDS, MOST_SEEDS + 1):
        clusters = _clusters(spread, effect, seeds, least, power)
        trainings = trained * seeds * cost_training
        if cheapest is not None and trainings + (trained * seeds + fixed) * cost_prompt * least > 4 * cheapest.cost:
            break
        if clusters is None:
            continue
        prompts = -(-clusters * spread.prompts // spread.clusters)
        reached = spread.power(effect, seeds, clusters)
        design = Design(seeds, prompts, clusters, trainings, (trained * seeds + fixed) * prompts * cost_prompt, reached)
        designs.append(design)
        if cheapest is None or design.cost < cheapest.cost:
            cheapest = design
    return Plan(effect, power, tuple(designs), cheapest)


def _clusters(spread: Spread, effect: float, seeds: int, least: int, power: float) -> int | None:
    """The fewest clusters that suffice with this number of seeds; None if no number does."""
    if spread.power(effect, seeds, MOST_CLUSTERS) < power:
        return None
    return least + bisect_left(
        range(least, MOST_CLUSTERS + 1), True, key=lambda clusters: spread.power(effect, seeds, clusters) >= power
    )


def seeds_needed(spread: Spread, effect: float, *, power: float = POWER) -> int | None:
    """Seeds per arm that detect ``effect`` on the pilot's own prompts; None if no number does."""
    if spread.power(effect, MOST_SEEDS, spread.clusters) < power:
        return None
    seeds = range(FEWEST_SEEDS, MOST_SEEDS + 1)
    return FEWEST_SEEDS + bisect_left(seeds, True, key=lambda n: spread.power(effect, n, spread.clusters) >= power)
