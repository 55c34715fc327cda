"""The six benchmarks of the published drafters in one table: both arms as measured, and what was published elsewhere.

The counting follows the benchmark script of the DFlash authors (z-lab/dflash, ``benchmark.py``):

* tau is the mean over responses (each turn of a conversation is one) of the mean tokens per verification step;
* a speed-up is a ratio of means: mean seconds per token of plain decoding over that of the drafter. Here seconds per
  token exclude the prefill token, which the script includes in its divisor;
* averages over benchmarks are arithmetic for tau and geometric for speed-ups, which reproduces the printed averages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.measures.benchmark_names import SIX, benchmark_of, spelling
from analysis.measures.published import AVERAGE, read_published
from analysis.measures.speed import timings_of
from analysis.runlog.load import Evaluated
from analysis.runlog.manifest import Target
from analysis.runlog.pairing import Pairs
from analysis.runlog.reading import Run
from analysis.stats.cluster import cluster_t, partition
from analysis.stats.estimate import interval_of, values_of
from analysis.stats.ratio import linearise_log, weights
from analysis.wording import TAU_MEAN, TAU_POOLED


@dataclass(frozen=True)
class Measured:
    """One arm on one benchmark, with 95% cluster-robust t intervals (None: no spread between prompt clusters).

    ``tau``: mean over responses; ``tau_pooled``: all tokens over all steps. ``speedup``: over plain decoding of the
    same ``timed`` responses, interval from the log scale; None if no response was timed both ways.
    ``tau_n_effective``, ``speedup_n_effective``: effective numbers of clusters of the two intervals.
    """

    tau: float
    tau_lo: float | None
    tau_hi: float | None
    tau_pooled: float
    speedup: float | None
    speedup_lo: float | None
    speedup_hi: float | None
    timed: int
    tau_n_effective: float | None
    speedup_n_effective: float | None


@dataclass(frozen=True)
class BenchmarkRow:
    """A benchmark, the matching data sets of the runs (empty if there are none), and both arms over the same
    responses."""

    benchmark: str
    datasets: tuple[str, ...]
    prompts: int
    responses: int
    a: Measured | None
    b: Measured | None


@dataclass(frozen=True)
class Average:
    """Over the available benchmarks: arithmetic mean of tau, geometric mean of speed-ups; None if a value is
    missing."""

    tau: float | None
    speedup: float | None


@dataclass(frozen=True)
class Published:
    """A drafter as reported by its authors, on their hardware with their settings.

    ``tau``, ``speedup``: by benchmark, as far as the source reports them. ``same_target``: whether the runs' target has
    the same name, None if it is not recorded. ``average``: over the benchmarks that the runs have. ``own_average``: as
    printed, over the data sets named in ``own_average_of``.
    """

    method: str
    target: str
    same_target: bool | None
    temperature: float
    hardware: str | None
    settings: str | None
    source: str
    tau: Mapping[str, float]
    speedup: Mapping[str, float]
    average: Average
    own_average: Average
    own_average_of: str | None


@dataclass(frozen=True)
class BenchmarkTable:
    """``rows``: the six benchmarks in order; ``average_a``, ``average_b``: over the available ones. ``plain_run``:
    label of the baseline run whose times are used as an arm's plain decoding, if any."""

    rows: tuple[BenchmarkRow, ...]
    average_a: Average
    average_b: Average
    plain_run: str | None
    published: tuple[Published, ...]


def benchmark_table(
    a: Evaluated, b: Evaluated, pairs: Pairs, temperature: float, baseline: Run | None = None
) -> BenchmarkTable | None:
    """The table over paired responses; None for the protocol ``prefix``, whose accepted length is not a tau, and where
    no data set is one of the six. ``baseline``: a run of plain decoding, for arms that timed none.
    Published rows are greedy ones for a ``temperature`` of 0, else those of temperature 1."""
    known = pairs.frame["dataset"].map({name: benchmark_of(name) for name in pairs.frame["dataset"].unique()})
    if a.protocol == "prefix" or not known.notna().any():
        return None
    times = [_seconds_per_token(arm.run, arm.protocol, pairs) for arm in (a, b)]
    lacking = [of_arm for of_arm in times if of_arm["plain"].empty and not of_arm["draft"].empty]
    plain_run = None
    if lacking and baseline is not None:
        of_baseline = _seconds_per_token(baseline, a.protocol, pairs)
        plain_times = of_baseline["draft" if of_baseline["plain"].empty else "plain"]
        for of_arm in lacking:
            of_arm["plain"] = plain_times
        plain_run = None if plain_times.empty else baseline.label
    rows = tuple(_row(name, pairs.frame[known == name], times) for name in SIX)
    present = [row for row in rows if row.datasets]
    return BenchmarkTable(
        rows=rows,
        average_a=_average((row.a.tau, row.a.speedup) for row in present if row.a),
        average_b=_average((row.b.tau, row.b.speedup) for row in present if row.b),
        plain_run=plain_run,
        published=_published([row.benchmark for row in present], temperature, a.run.manifest.target),
    )


_Times = dict[str, "pd.Series[float]"]


def _seconds_per_token(run: Run, protocol: str, pairs: Pairs) -> _Times:
    """Per mode, by row of the pairs' frame; repeats of a response together."""
    times = timings_of(run, protocol, pairs)
    usable = times[(times["tokens"] > 0) & (times["decode_s"] > 0)].set_index("prompt")
    seconds = usable["decode_s"].astype(float) / usable["tokens"].astype(float)
    return {mode: seconds[usable["mode"] == mode] for mode in ("plain", "draft")}


def _row(benchmark: str, frame: pd.DataFrame, times: Iterable[_Times]) -> BenchmarkRow:
    if frame.empty:
        return BenchmarkRow(benchmark, (), 0, 0, None, None)
    means, pooled = values_of(frame, TAU_MEAN), values_of(frame, TAU_POOLED)
    a, b = (_measured(frame, *values) for values in zip(means, pooled, times, strict=True))
    names = tuple(sorted(frame["dataset"].unique()))
    return BenchmarkRow(benchmark, names, frame["prompt_id"].nunique(), len(frame), a, b)


def _measured(frame: pd.DataFrame, means: np.ndarray, pooled: np.ndarray, times: _Times) -> Measured:
    of_tau = cluster_t(means, partition(frame["cluster_id"]))
    timed = frame.index.intersection(times["plain"].index).intersection(times["draft"].index)
    of_speed = None
    if len(timed):
        plain, draft = times["plain"].loc[timed], times["draft"].loc[timed]
        clusters = partition(frame.loc[timed, "cluster_id"])
        of_speed = cluster_t(linearise_log(plain, draft), clusters, weights=weights(draft))
    logs = interval_of(of_speed) if of_speed is not None else (None,) * 3
    speedup, lo, hi = (None if x is None else math.exp(x) for x in logs)
    of_taus, of_speeds = (mean.effective if mean is not None and mean.se else None for mean in (of_tau, of_speed))
    taus = interval_of(of_tau)
    return Measured(*taus, float(pooled.mean()), speedup, lo, hi, len(timed), of_taus, of_speeds)


def _average(values: Iterable[tuple[float | None, float | None]]) -> Average:
    taus, speedups = zip(*values, strict=True)
    return Average(
        tau=float(np.mean(taus)) if None not in taus else None,
        speedup=float(np.exp(np.mean(np.log(speedups)))) if None not in speedups else None,
    )


def _published(present: list[str], temperature: float, target: Target | None) -> tuple[Published, ...]:
    table = read_published()
    of_temperature = table[table["temperature"] == (1 if temperature > 0 else 0)]
    ours = spelling(target.id.rsplit("/", 1)[-1]) if target else None
    published = []
    for (method, name), rows in of_temperature.groupby(["method", "target"], sort=False):
        own = rows[rows["dataset"] == AVERAGE].iloc[0]
        each = rows[rows["dataset"].isin(SIX)].set_index("dataset")
        tau, speedup = each["tau"].dropna().to_dict(), each["speedup"].dropna().to_dict()
        first = own if each.empty else each.iloc[0]
        published.append(
            Published(
                method=method,
                target=name,
                same_target=None if ours is None else spelling(name) == ours,
                temperature=float(own["temperature"]),
                hardware=_text(own["hardware"]),
                settings=None if each.empty else _text(first["settings"]),
                source=first["source"],
                tau=tau,
                speedup=speedup,
                average=_average((tau.get(b), speedup.get(b)) for b in present),
                own_average=Average(_number(own["tau"]), _number(own["speedup"])),
                own_average_of=_text(own["settings"]),
            )
        )
    return tuple(published)


def _text(cell: object) -> str | None:
    return None if pd.isna(cell) else str(cell)


def _number(cell: float) -> float | None:
    return None if pd.isna(cell) else float(cell)
