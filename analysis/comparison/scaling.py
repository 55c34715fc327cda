"""What scales: the headline against one axis of the runs, in steps between neighbours and as a slope.

Runs that are equal but for the axis form a series. Neighbouring levels are compared as any two runs, paired by prompt
and clustered, p adjusted by Holm over all steps of the axis. With three levels or more, the slope per doubling is the
least-squares slope of each prompt's values against log2 of the level, averaged over prompts: a contrast of the same
prompts, with an interval over them. No value is extrapolated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.cautions import Caution, caution
from analysis.comparison.common import Common, common_values
from analysis.comparison.factorial import AXES as DEFAULTS
from analysis.comparison.question import listed, open_run
from analysis.comparison.trainings import cautions_between
from analysis.display import Shown
from analysis.errors import DataError, UsageError
from analysis.runlog.manifest import Manifest
from analysis.runlog.reading import Run
from analysis.stats.cluster import FloatArray, cluster_t, partition
from analysis.stats.estimate import Estimate, interval_of, of_values, without_means
from analysis.stats.families import adjust
from analysis.wording import Estimand


def _depth(manifest: Manifest) -> float:
    return float(_config(manifest)["num_layers"])


def _target_layers(manifest: Manifest) -> float:
    return float(len(_config(manifest)["target_layer_ids"]))


def _examples(manifest: Manifest) -> float:
    assert manifest.training is not None and manifest.training.examples is not None
    share = manifest.training.settings["training"].get("share", 1.0)
    return float(math.ceil(share * manifest.training.examples))


def _compute(manifest: Manifest) -> float:
    """Operations of all steps: 6 a drafter's parameter and block slot."""
    assert manifest.training is not None and manifest.drafter is not None and manifest.training.steps is not None
    settings, parameters = manifest.training.settings["training"], manifest.drafter.parameters or {}
    slots = settings["batch"] * settings["accumulate"] * settings["anchors"] * _config(manifest)["block_size"]
    return 6.0 * parameters["total"] * slots * manifest.training.steps


def _config(manifest: Manifest) -> dict[str, Any]:
    assert manifest.drafter is not None
    return manifest.drafter.config


@dataclass(frozen=True)
class Axis:
    """``level`` of a run, from its manifest; ``field``: of the configuration that it replaces in a series."""

    name: str
    unit: str
    level: Callable[[Manifest], float]
    field: str | None


AXES = {
    axis.name: axis
    for axis in (
        Axis("depth", "draft layers", _depth, "num_layers"),
        Axis("target-layers", "target layers", _target_layers, "target_layer_ids"),
        Axis("examples", "training examples", _examples, None),
        Axis("compute", "operations of training", _compute, None),
    )
}


@dataclass(frozen=True)
class Point:
    """One run of a series: its level, its mean of the headline's metric, and the interval of that mean over prompts;
    ``n_effective``: effective number of clusters."""

    level: float
    run: str
    mean: float
    lo: float | None
    hi: float | None
    n_effective: float | None


@dataclass(frozen=True)
class Series:
    """Runs that are equal but for the axis. ``steps``: each level less the one before; ``slope`` per doubling of the
    level, None with fewer than three levels."""

    name: str
    points: tuple[Point, ...]
    steps: tuple[Estimate, ...]
    slope: Estimate | None


@dataclass(frozen=True, eq=False, repr=False)
class Scaling(Shown):
    """The headline's metric against an axis."""

    axis: str
    unit: str
    protocol: str
    estimand: Estimand
    series: tuple[Series, ...]
    prompts: int
    clusters: int
    cautions: tuple[Caution, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row per point."""
        rows = [(s.name, p.level, p.run, p.mean, p.lo, p.hi) for s in self.series for p in s.points]
        table = pd.DataFrame(rows, columns=["series", "level", "run", "mean", "lo", "hi"])
        return table.astype({"lo": float, "hi": float})


def compare_scaling(
    runs: Sequence[Run | Path | str], over: str, *, protocol: str | None = None, metric: str | None = None
) -> Scaling:
    """The headline of ``runs`` against the axis ``over`` (see AXES).

    Raises UsageError for an unknown axis or fewer than two runs, DataError for runs that do not record the axis, for
    two runs of a series at one level, and without a series of two levels.
    """
    if over not in AXES:
        raise UsageError(f"unknown axis '{over}'; choose from {', '.join(AXES)}")
    opened = [open_run(run, allow_incomplete=False) for run in listed(runs)]
    if len(opened) < 2:
        raise UsageError("scaling requires at least two runs")
    axis = AXES[over]
    groups: dict[_Description, dict[float, Run]] = {}
    for run in opened:
        level, described = _level(run, axis), _description(run, axis)
        if (other := groups.setdefault(described, {}).get(level)) is not None:
            raise DataError(f"{other.address} and {run.address} are of one series at {level:g} {axis.unit}; give one")
        groups[described][level] = run
    if max(map(len, groups.values())) < 2:
        raise DataError(f"no two of the runs differ in {over} alone")
    common = common_values(opened, protocol, metric)
    named = zip(_names(list(groups)), groups.values(), strict=True)
    series = [_series(name, dict(sorted(levels.items())), common) for name, levels in named]
    adjusted = iter(adjust([step for one in series for step in one.steps]))
    slopes = iter(adjust([one.slope for one in series if one.slope is not None]))
    return Scaling(
        axis=axis.name,
        unit=axis.unit,
        protocol=common.protocol,
        estimand=common.estimand,
        series=tuple(
            replace(one, steps=tuple(next(adjusted) for _ in one.steps), slope=one.slope and next(slopes))
            for one in series
        ),
        prompts=len(common.frame),
        clusters=int(common.frame["cluster_id"].nunique()),
        cautions=(*_between_neighbours(groups.values(), common.protocol), caution("one-seed-per-level")),
    )


def _between_neighbours(series: Iterable[Mapping[float, Run]], protocol: str) -> tuple[Caution, ...]:
    """What neighbours differ in beside the axis: the data consumed, the steps, the evaluation, and the like."""
    found = []
    for levels in series:
        for one, other in itertools.pairwise(run for _, run in sorted(levels.items())):
            for c in cautions_between([one], [other], protocol, paired=True):
                if c.code not in _BY_DESIGN:
                    found.append(Caution(c.code, f"{one.name} and {other.name}: {c.text}"))
    return tuple(found)


#: Codes of cautions about what an axis changes: parameters, and with them the initial weights.
_BY_DESIGN = ("parameters-differs", "init-differs")


def _level(run: Run, axis: Axis) -> float:
    try:
        return axis.level(run.manifest)
    except (AssertionError, KeyError, TypeError) as error:
        raise DataError(f"{run.address}: its manifest does not record its {axis.unit}") from error


_Description = tuple[tuple[str, str], ...]
#: Fields of a drafter's configuration that distinguish series, in words.
_FIELDS = {
    "fusion": "",
    "kv": "kv ",
    "mixing": "mixing ",
    "selection": "selection ",
    "num_layers": "depth ",
    "target_layer_ids": "target layers ",
    "block_size": "block ",
}


def _description(run: Run, axis: Axis) -> _Description:
    """What is equal within a series: field and value."""
    config = run.manifest.drafter.config if run.manifest.drafter is not None else {}
    values = {name: config.get(name, DEFAULTS[name]) for name in _FIELDS if name != axis.field}
    return tuple((name, str(len(v) if isinstance(v, list | tuple) else v)) for name, v in values.items())


def _names(series: Sequence[_Description]) -> list[str]:
    """What distinguishes each series from the others; of a single one its fusion."""
    varied = [i for i, _ in enumerate(series[0]) if len({one[i] for one in series}) > 1] or [0]
    return [", ".join(_FIELDS[one[i][0]] + one[i][1] for i in varied) for one in series]


def _series(name: str, levels: dict[float, Run], common: Common) -> Series:
    clusters, weights = partition(common.frame["cluster_id"]), common.weights
    values = {level: common.values[run.address] for level, run in levels.items()}
    means = {level: cluster_t(values[level], clusters, weights=weights) for level in levels}
    points = [
        Point(level, run.manifest.label or run.name, *interval_of(mean), mean.effective if mean.se else None)
        for (level, run), mean in zip(levels.items(), means.values(), strict=True)
    ]
    ordered = list(values)
    steps = [
        _difference(values[a], values[b], common.tied({levels[a].address: -1, levels[b].address: 1}), common)
        for a, b in itertools.pairwise(ordered)
    ]
    return Series(name, tuple(points), tuple(steps), _slope(levels, common) if len(levels) > 2 else None)


def _difference(low: FloatArray, high: FloatArray, ties: NDArray[np.bool_], common: Common) -> Estimate:
    weights = None if common.weights is None else (common.weights, common.weights)
    return of_values(low, high, ties, common.frame["cluster_id"], common.estimand, weights=weights)


def _slope(levels: Mapping[float, Run], common: Common) -> Estimate:
    """Mean over prompts of the least-squares slope against log2 of the level."""
    x = np.log2(list(levels))
    factors = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    slopes = factors @ np.array([common.values[run.address] for run in levels.values()])
    ties = common.tied({run.address: float(f) for run, f in zip(levels.values(), factors, strict=True)})
    return without_means(_difference(np.zeros_like(slopes), slopes, ties, common))
