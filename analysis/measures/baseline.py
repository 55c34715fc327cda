"""Two arms against a baseline run: their speed-ups in each common convention, and whether their outputs are the same.

The unit is a prompt with all its turns and repeats, as in Spec-Bench's own script. With x the tokens per second
of a prompt under an arm and v under the baseline, a speed-up is

* ratio of means: mean(x) / mean(v); prompts that decode fast weigh more;
* mean of ratios: mean(x / v); every prompt has the same weight;
* pooled: (all tokens / all seconds) over the baseline's; long outputs weigh more.

They answer different questions and can differ by 10%, so each is shown under its name. "B's speed-up over A's" is the
ratio of the two speed-ups over the same prompts. All are paired by prompt and clustered as prompts are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from analysis.cautions import Caution, caution
from analysis.errors import DataError
from analysis.runlog.counting import counting_of
from analysis.runlog.load import load
from analysis.runlog.reading import Run
from analysis.runlog.schema import PAIR_KEY
from analysis.stats.cluster import FloatArray, Partition, cluster_t, partition
from analysis.stats.estimate import joint
from analysis.stats.ratio import linearise_log, weights

CONVENTIONS = ("ratio of means", "mean of ratios", "pooled")
_UNIT = ["prompt_id", "sample"]


@dataclass(frozen=True)
class SpeedUp:
    """``what`` is ``estimate`` times as fast as ``against``, with a 95% interval over prompt clusters, of which
    ``n_effective`` are effective."""

    what: str
    against: str
    convention: str
    estimate: float
    lo: float | None
    hi: float | None
    n_prompts: int
    n_clusters: int
    n_effective: float | None


@dataclass(frozen=True, eq=False)
class SameOutput:
    """One arm's outputs against the baseline's. ``same`` of ``prompts`` have every turn equal; ``turns``: those that
    differ, a row each: prompt_id, turn, sample, dataset, ``position`` of the first difference (None: not known),
    output tokens of both. ``unit`` of positions: tokens or words. Means are output tokens per turn."""

    prompts: int
    same: int
    turns: pd.DataFrame
    unit: str
    mean_tokens: float | None
    mean_tokens_baseline: float | None


@dataclass(frozen=True)
class AgainstBaseline:
    """``format`` of the baseline's log, None for a native run; ``seconds``: what the runs' times cover.
    ``speedups``: per convention A and B over the baseline, then B's over A's; empty if a run has no timings.
    ``outputs``: by side, None if the outputs cannot be compared."""

    name: str
    label: str
    format: str | None
    seconds: str
    speedups: tuple[SpeedUp, ...]
    outputs: Mapping[str, SameOutput | None]
    cautions: tuple[Caution, ...]


def against_baseline(baseline: Run, a: Run, b: Run, protocol: str = "generate") -> AgainstBaseline:
    """Compare both arms with the baseline, over the prompts that all three have (speed) or that an arm shares with the
    baseline (outputs). Raises DataError if there is no prompt in common."""
    tables = {name: _prompts(run, protocol) for name, run in (("baseline", baseline), ("A", a), ("B", b))}
    for side in "AB":
        if not len(tables[side].index.intersection(tables["baseline"].index)):
            raise DataError(
                f"{baseline.address} and arm {side} have no prompt in common; run the baseline on the same prompts"
            )
    speeds = [_speeds(run, protocol, mode) for run, mode in ((baseline, "plain"), (a, "draft"), (b, "draft"))]
    timed = [frame for frame in speeds if frame is not None]
    common = _common(timed, tables["A"]) if len(timed) == 3 else None
    speedups = _speedups(common[0], common[1]) if common else []
    units = {
        name: counting_of(run.manifest, protocol).ids for name, run in (("baseline", baseline), ("A", a), ("B", b))
    }
    outputs = {
        side: _same_output(tables[side], tables["baseline"], units[side]) if units[side] == units["baseline"] else None
        for side in "AB"
    }
    formats = {e.settings.get("format") for e in baseline.manifest.evaluations.values()}
    return AgainstBaseline(
        name=baseline.name,
        label=baseline.label,
        format=formats.pop() if len(formats) == 1 else None,
        seconds=", ".join(sorted({counting_of(run.manifest, protocol).time for run in (baseline, a, b)})),
        speedups=tuple(speedups),
        outputs=outputs,
        cautions=(
            *_drafts(baseline, protocol),
            *(c for side in "AB" for c in _cautions(side, outputs[side])),
            *((caution("one-session"),) if speedups else ()),
        ),
    )


def has_times_alone(run: Run) -> bool:
    """Whether the run has times of prompts but no verification steps."""
    if run.has("acceptance") or not (run.has("timings") and run.has("prompts")):
        return False
    return not pc.any(pc.greater(run.read("prompts", ["steps"])["steps"], 0)).as_py()


def speed_alone(a: Run, b: Run) -> tuple[SpeedUp, ...]:
    """B's speed over A's in each convention, for logs with times only; empty without common timed prompts."""
    timed = [frame for run in (a, b) if (frame := _speeds(run, "generate", "draft")) is not None]
    common = _common(timed, _prompts(a, "generate")) if len(timed) == 2 else None
    if common is None:
        return ()
    (first, second), clusters = common
    values = _over(second, first)
    return tuple(_speedup("B", "A", c, *values[c], clusters, c != "mean of ratios") for c in CONVENTIONS)


def _prompts(run: Run, protocol: str) -> pd.DataFrame:
    columns = [*PAIR_KEY, "dataset", "cluster_id", "output_tokens", "output_hash", "output_ids"]
    table = run.read("prompts", columns)
    frame = table.filter(pc.equal(table["protocol"], protocol)).to_pandas().drop(columns="protocol")
    return frame.set_index(["prompt_id", "turn", "sample"])


def _speeds(run: Run, protocol: str, mode: str) -> pd.DataFrame | None:
    """Tokens and seconds by prompt, of this mode if the run has it; None without usable timings."""
    if not run.has("timings"):
        return None
    table = run.read("timings", [*PAIR_KEY, "mode", "decode_s", "output_tokens"])
    rows = table.filter(pc.equal(table["protocol"], protocol)).to_pandas()
    rows = rows[rows["mode"] == mode] if (rows["mode"] == mode).any() else rows
    rows = rows.assign(tokens=rows["output_tokens"] - counting_of(run.manifest, protocol).untimed)
    sums = rows.groupby(_UNIT)[["tokens", "decode_s"]].sum()
    sums = sums[(sums["tokens"] > 0) & (sums["decode_s"] > 0)]
    return sums if len(sums) else None


@dataclass(frozen=True, eq=False)
class _Rates:
    """Tokens and seconds of the common prompts, (n,) each."""

    tokens: FloatArray
    seconds: FloatArray

    @property
    def rate(self) -> FloatArray:
        return self.tokens / self.seconds

    def log_pooled(self) -> FloatArray:
        return linearise_log(self.tokens, self.seconds)


def _common(frames: Sequence[pd.DataFrame], prompts: pd.DataFrame) -> tuple[list[_Rates], Partition] | None:
    """The rates over the common prompts, and the clusters of these prompts."""
    index = frames[0].index
    for frame in frames[1:]:
        index = index.intersection(frame.index)
    if not len(index):
        return None
    index = index.sort_values()
    clusters = prompts.reset_index().groupby(_UNIT)["cluster_id"].first().reindex(index)
    columns = [[f.loc[index, name].to_numpy(dtype=float) for name in ("tokens", "decode_s")] for f in frames]
    return [_Rates(*pair) for pair in columns], partition(clusters)


_Weighted = tuple[FloatArray, FloatArray | None]


def _over(x: _Rates, y: _Rates) -> dict[str, _Weighted]:
    """Values whose mean is the speed of x over that of y, by convention, on the log scale except for mean of ratios;
    and the weights of prompts in it, None where they are equal."""
    return {
        "ratio of means": (linearise_log(x.rate, y.rate), weights(y.rate)),
        "mean of ratios": (x.rate / y.rate, None),
        "pooled": (x.log_pooled() - y.log_pooled(), joint((weights(x.seconds), weights(y.seconds)))),
    }


def _speedups(rates: Sequence[_Rates], clusters: Partition) -> list[SpeedUp]:
    baseline, a, b = rates
    # the baseline's mean cancels in the ratio of the arms' speed-ups, except for the mean of ratios
    of_a = a.rate / baseline.rate
    both = {**_over(b, a), "mean of ratios": (linearise_log(b.rate / baseline.rate, of_a), weights(of_a))}
    return [
        _speedup(what, against, convention, *values[convention], clusters, log or convention != "mean of ratios")
        for convention in CONVENTIONS
        for what, against, values, log in (
            ("A", "baseline", _over(a, baseline), False),
            ("B", "baseline", _over(b, baseline), False),
            ("B's speed-up", "A's", both, True),
        )
    ]


def _speedup(
    what: str, against: str, convention: str, x: FloatArray, w: FloatArray | None, clusters: Partition, log: bool
) -> SpeedUp:
    mean = cluster_t(x, clusters, weights=w)
    point, lo, hi = (None if y is None else float(np.exp(y)) if log else y for y in (mean.mean, mean.lo, mean.hi))
    assert point is not None
    effective = mean.effective if mean.se else None
    return SpeedUp(what, against, convention, point, lo, hi, x.size, clusters.count, effective)


def _same_output(arm: pd.DataFrame, baseline: pd.DataFrame, unit: str) -> SameOutput | None:
    both = arm.join(baseline, rsuffix="_baseline", how="inner").sort_index()
    known = both[both["output_hash"].notna() & both["output_hash_baseline"].notna()]
    if known.empty:
        return None
    differs = known["output_hash"] != known["output_hash_baseline"]
    by_prompt = differs.groupby(_UNIT).any()
    rows = known[differs]
    positions = [_first_difference(*pair) for pair in zip(rows["output_ids"], rows["output_ids_baseline"], strict=True)]
    turns = rows.reset_index()[["prompt_id", "turn", "sample", "dataset", "output_tokens", "output_tokens_baseline"]]
    turns.insert(4, "position", pd.array(positions, dtype="Int64"))
    means = [known[name].dropna() for name in ("output_tokens", "output_tokens_baseline")]
    return SameOutput(
        prompts=len(by_prompt),
        same=int((~by_prompt).sum()),
        turns=turns,
        unit=unit,
        mean_tokens=float(means[0].mean()) if len(means[0]) else None,
        mean_tokens_baseline=float(means[1].mean()) if len(means[1]) else None,
    )


def _first_difference(a: np.ndarray | None, b: np.ndarray | None) -> int | None:
    """0-based index of the first difference (the length of the shorter if it is a prefix); None if not known."""
    if a is None or b is None:
        return None
    length = min(len(a), len(b))
    differs = np.flatnonzero(np.asarray(a[:length]) != np.asarray(b[:length]))
    return int(differs[0]) if differs.size else length


def _drafts(baseline: Run, protocol: str) -> list[Caution]:
    """A warning about a baseline that drafts: its steps give more than a token each, and no plain decoding is timed."""
    if baseline.has("timings") and pc.any(pc.equal(baseline.read("timings", ["mode"])["mode"], "plain")).as_py():
        return []
    rows = load(baseline, protocol).prompts
    rows = rows[rows["problem"].isna()]
    tau = float(rows["tokens"].sum()) / max(int(rows["steps"].sum()), 1)
    return [caution("baseline-drafts", run=baseline.name, tau=tau)] if tau > 1 else []


def _cautions(side: str, outputs: SameOutput | None) -> list[Caution]:
    if outputs is None or outputs.same == outputs.prompts:
        return []
    first = outputs.turns["position"].dropna()
    where = (
        f"; the median position of the first difference is {outputs.unit[:-1]} {int(first.median())}"
        if len(first)
        else ""
    )
    return [caution("baseline-differs", arm=side, n=outputs.prompts - outputs.same, total=outputs.prompts, where=where)]
