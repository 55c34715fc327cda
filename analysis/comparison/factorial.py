"""A full factorial of arms: what each axis of a drafter adds, and whether one needs another.

With k axes of two levels there are 2^k cells. A main effect is the mean of the cells at an axis's second level less the
mean of those at its first. An interaction is a difference of differences: the effect of one axis at the second level
of another, less its effect at the first. All are contrasts of the same prompts' values, so they are paired and
clustered as any comparison, over seeds too where every cell has the same ones. The levels of the first run come first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.cautions import Caution, caution
from analysis.comparison.common import Common, common_values
from analysis.comparison.question import listed, open_run
from analysis.comparison.trainings import cautions_between, seed_name, seeds_of
from analysis.display import Shown
from analysis.errors import DataError, UsageError
from analysis.runlog.reading import Run
from analysis.stats.cluster import FloatArray, partition
from analysis.stats.estimate import Estimate, of_values, without_means
from analysis.stats.families import adjust
from analysis.stats.seeds import crossed
from analysis.wording import Estimand

#: Axes that may be factors, with what they were before they could be chosen: fields of a drafter's configuration.
AXES: dict[str, Any] = {
    "fusion": "concat",
    "kv": "shared",
    "mixing": "none",
    "selection": "argmax",
    "confidence": "none",
    "num_layers": None,
    "target_layer_ids": None,
    "block_size": None,
}
#: The same, of the loss that it was trained with.
LOSS_AXES: dict[str, Any] = {"weighting": "fixed", "distill": "none"}


@dataclass(frozen=True)
class Factor:
    """An axis and its two levels."""

    name: str
    low: str
    high: str


@dataclass(frozen=True)
class Cell:
    """One combination of levels, with its runs (one per seed) and their mean of the headline's metric."""

    levels: tuple[str, ...]
    labels: tuple[str, ...]
    mean: float


@dataclass(frozen=True)
class Effect:
    """The effect of an axis, or the interaction of several; p adjusted by Holm over all effects."""

    factors: tuple[str, ...]
    estimate: Estimate

    @property
    def name(self) -> str:
        """The axes, joined."""
        return " x ".join(self.factors)


@dataclass(frozen=True, eq=False, repr=False)
class Factorial(Shown):
    """``effects``: of all axes and of all their combinations, main effects first. ``first``: the run whose levels come
    first; ``seeds``: trainings per cell; ``prompts``, ``clusters``: that every run has."""

    first: str
    protocol: str
    estimand: Estimand
    factors: tuple[Factor, ...]
    cells: tuple[Cell, ...]
    effects: tuple[Effect, ...]
    seeds: int
    prompts: int
    clusters: int
    cautions: tuple[Caution, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row per effect."""
        names = ("estimate", "lo", "hi", "p", "p_adjusted", "n_pairs", "n_clusters")
        rows = [{"effect": e.name} | {n: getattr(e.estimate, n) for n in names} for e in self.effects]
        return pd.DataFrame(rows).astype(dict.fromkeys(("estimate", "lo", "hi", "p", "p_adjusted"), float))


def compare_factorial(
    runs: Sequence[Run | Path | str], *, protocol: str | None = None, metric: str | None = None
) -> Factorial:
    """The effects of the axes in which ``runs`` differ.

    Raises UsageError for fewer than four runs, DataError for runs that are not a full factorial of two levels, for
    cells with different seeds, and for runs that :func:`analysis.comparison.pairwise.compare_runs` would not compare.
    """
    opened = [open_run(run, allow_incomplete=False) for run in listed(runs)]
    if len(opened) < 4:
        raise UsageError("a factorial requires at least four runs: two axes of two levels each")
    first, *others = opened
    factors, cells = _design(opened)
    common = common_values(opened, protocol, metric)
    protocol, estimand, frame = common.protocol, common.estimand, common.frame
    values = {levels: np.array([common.values[run.address] for run in of]) for levels, of in cells.items()}
    effects = [
        Effect(tuple(factors[i].name for i in some), _effect(cells, values, some, factors, common))
        for order in range(1, len(factors) + 1)
        for some in itertools.combinations(range(len(factors)), order)
    ]
    adjusted = adjust([effect.estimate for effect in effects])
    seeds = len(next(iter(cells.values())))
    cautions = [
        Caution(c.code, f"{first.name} and {other.name}: {c.text}")
        for other in others
        for c in cautions_between([first], [other], protocol, paired=seeds == 1)
        if c.code != "parameters-differs"  # by design
    ]
    return Factorial(
        first=first.name,
        protocol=protocol,
        estimand=estimand,
        factors=factors,
        cells=tuple(
            Cell(levels, tuple(run.manifest.label or run.name for run in of), float(values[levels].mean()))
            for levels, of in cells.items()
        ),
        effects=tuple(replace(effect, estimate=e) for effect, e in zip(effects, adjusted, strict=True)),
        seeds=seeds,
        prompts=len(frame),
        clusters=int(frame["cluster_id"].nunique()),
        cautions=(*dict.fromkeys(cautions), *((caution("one-seed-per-cell"),) if seeds == 1 else ())),
    )


def _design(runs: Sequence[Run]) -> tuple[tuple[Factor, ...], dict[tuple[str, ...], list[Run]]]:
    """The axes that vary, and the runs of each cell in the order of their seeds, the first run's levels first."""
    settings = [_settings(run) for run in runs]
    levels = {name: list(dict.fromkeys(each[name] for each in settings)) for name in settings[0]}
    varied = {name: found for name, found in levels.items() if len(found) > 1}
    if odd := [name for name, found in varied.items() if len(found) > 2]:
        raise DataError(f"{odd[0]} has {len(varied[odd[0]])} levels ({', '.join(varied[odd[0]])}); a factorial has two")
    if len(varied) < 2:
        only = f"in {next(iter(varied))} alone" if varied else f"in none of {', '.join(settings[0])}"
        raise DataError(f"the runs differ {only}; a factorial requires two axes")
    cells: dict[tuple[str, ...], list[Run]] = {cell: [] for cell in itertools.product(*varied.values())}
    for run, each in zip(runs, settings, strict=True):
        cells[tuple(each[name] for name in varied)].append(run)
    reference = next(iter(cells))
    for cell, of in cells.items():
        of.sort(key=seeds_of)
        if list(map(seeds_of, of)) != sorted({seeds_of(run) for run in cells[reference]}):
            named = f"{_named(varied, cell, of)}, {_named(varied, reference, cells[reference])}"
            raise DataError(f"not a full factorial: {named}; every cell requires the same seeds, each once")
    return tuple(Factor(name, *found) for name, found in varied.items()), cells


def _named(axes: Iterable[str], levels: Sequence[str], runs: Sequence[Run]) -> str:
    cell = ", ".join(f"{name} {level}" for name, level in zip(axes, levels, strict=True))
    return f"the cell {cell} has seeds {', '.join(map(seed_name, runs)) or 'none'}"


def _settings(run: Run) -> dict[str, str]:
    """The run's level on every axis."""
    drafter, training = run.manifest.drafter, run.manifest.training
    if drafter is None or "fusion" not in drafter.config or training is None:
        raise DataError(f"{run.address}: its manifest does not record the axes of a trained drafter")
    loss: Mapping[str, Any] = training.settings.get("loss") or {}
    levels = {name: drafter.config.get(name, default) for name, default in AXES.items()}
    levels |= {f"loss.{name}": loss.get(name, default) for name, default in LOSS_AXES.items()}
    return {name: str(level) for name, level in levels.items()}


def _effect(
    cells: Mapping[tuple[str, ...], Sequence[Run]],
    values: Mapping[tuple[str, ...], FloatArray],
    some: Sequence[int],
    factors: Sequence[Factor],
    common: Common,
) -> Estimate:
    """The contrast of these factors: 2^(order - 1) times the mean over the cells with an even number of first levels
    among them, less that over the others. ``values``: (seeds, n) of each of the ``cells``."""
    sides = {levels: 1 - 2 * (_firsts(levels, some, factors) % 2) for levels in cells}
    low, high = (
        np.mean([values[levels] for levels in cells if sides[levels] == side], axis=0) * 2 ** (len(some) - 1)
        for side in (-1, 1)
    )
    of_seeds = zip(*cells.values(), strict=True)
    ties = np.all(
        [common.tied({r.address: side for r, side in zip(runs, sides.values(), strict=True)}) for runs in of_seeds],
        axis=0,
    )
    ids, weights = common.frame["cluster_id"], common.weights
    if len(low) == 1:
        of_arm = None if weights is None else (weights, weights)
        found = of_values(low[0], high[0], ties, ids, common.estimand, weights=of_arm)
    else:
        found = crossed(low, high, partition(ids), common.estimand, paired=True, weights=weights, ties=ties).estimate
    return found if len(some) == 1 else without_means(found)  # the sides of an interaction are no cells


def _firsts(levels: tuple[str, ...], some: Sequence[int], factors: Sequence[Factor]) -> int:
    """How many of ``some`` factors have their first level in the cell."""
    return sum(levels[i] == factors[i].low for i in some)
