"""Several trained runs per arm in, one frozen result out: ``compare_seeds(runs_a, runs_b)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.cautions import Caution, caution
from analysis.comparison.common import common_prompts, side_by_side
from analysis.comparison.question import headline_of, listed, margin_of, open_run, require_coverage
from analysis.comparison.trainings import (
    cautions_between,
    cautions_of_arm,
    require_one_arm,
    seed_name,
    seeds_of,
    untrained,
)
from analysis.display import Shown
from analysis.errors import DataError, UsageError
from analysis.measures.fairness import require_same_target
from analysis.runlog.identities import load_sound
from analysis.runlog.load import protocols
from analysis.runlog.pairing import pair
from analysis.runlog.reading import Run
from analysis.stats import ratio
from analysis.stats.cluster import FloatArray, Partition, partition
from analysis.stats.datasets import disagreement
from analysis.stats.estimate import Estimate, joint, of_pairs, values_of
from analysis.stats.families import adjust
from analysis.stats.method import FEWEST
from analysis.stats.planning import Spread, seeds_needed
from analysis.stats.seeds import Crossed, crossed, unchanged
from analysis.stats.sensitivity import POWER
from analysis.wording import HEADLINES, METRICS, TAU_POOLED, Estimand, balanced


@dataclass(frozen=True)
class LeftOut:
    """The estimate without one seed: of ``arm`` A or B, or of both where they are paired (None)."""

    arm: str | None
    seed: str
    estimate: Estimate


@dataclass(frozen=True)
class SeedsNeeded:
    """Seeds per arm that detect a true difference of ``effect`` on the present prompts with probability ``power``; None
    if no number of seeds does."""

    effect: float
    power: float
    seeds: int | None


@dataclass(frozen=True, repr=False)
class SeedComparison(Shown):
    """The comparison of several trainings of two arms, over the prompts that all of them have.

    ``overall``, ``balanced`` (equal weight per data set; None for one data set), ``by_dataset`` and ``by_seen`` (two
    families, each adjusted by Holm) cover seeds and prompts. ``per_seed``: each training against its partner, with an
    interval over prompts only; empty if the arms are independent. ``without``: the overall estimate without each seed;
    ``needed``: seeds that would detect a difference as large as the observed one. ``seeds_a``, ``seeds_b``: names of
    the runs' seeds. An arm with one run is fixed: its other trainings are not covered.
    """

    label_a: str
    label_b: str
    runs_a: tuple[str, ...]
    runs_b: tuple[str, ...]
    seeds_a: tuple[str, ...]
    seeds_b: tuple[str, ...]
    protocol: str
    overall: Crossed
    balanced: Crossed | None
    by_dataset: Mapping[str, Crossed]
    by_seen: Mapping[str, Crossed]
    per_seed: tuple[Estimate, ...]
    without: tuple[LeftOut, ...]
    needed: SeedsNeeded | None
    prompts: int
    prompts_lost: int
    cautions: tuple[Caution, ...]

    @property
    def seeds(self) -> tuple[str, ...]:
        """Names of the seeds of the trained arm, or of both where they are paired."""
        return self.seeds_a if len(self.seeds_a) > 1 else self.seeds_b

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """Over seeds and prompts: overall, balanced, then the data sets."""
        every = (self.overall, *([self.balanced] if self.balanced else []), *self.by_dataset.values())
        return tuple(c.estimate for c in every)

    def to_frame(self) -> pd.DataFrame:
        """One row per estimate: over all seeds, then per seed."""
        names = [f.name for f in fields(Estimate) if f.name not in ("equivalence", "cautions")]
        rows = []
        for seed, e in [*((None, e) for e in self.estimates), *zip(self.seeds, self.per_seed, strict=False)]:
            row = {"seed": seed, **{name: getattr(e, name) for name in names}}
            rows.append(row | {"estimand": e.estimand.key, "verdict": str(e.verdict)})
        return pd.DataFrame(rows)


def compare_seeds(
    runs_a: Sequence[Run | Path | str],
    runs_b: Sequence[Run | Path | str],
    *,
    protocol: str | None = None,
    metric: str | None = None,
    margin: float | None = None,
    min_coverage: float = 0.95,
    strict: bool = False,
    allow_incomplete: bool = False,
) -> SeedComparison:
    """Compare two arms, at least one of which was trained several times. Arms are paired if their sets of seeds are
    equal; an arm with one run, such as a baseline without training, is compared with every training of the other.

    Raises UsageError if both arms have one run. Raises DataError as
    :func:`analysis.comparison.pairwise.compare_runs` does, for runs of an arm that differ in recipe or share seeds, and
    if the prompts in common are under ``min_coverage`` of the largest run.
    """
    margin = margin_of(margin)
    require_coverage(min_coverage)
    arms = listed(runs_a), listed(runs_b)
    if max(map(len, arms)) < 2:
        raise UsageError("comparing seeds requires at least two trainings of an arm: A1 A2 ... --vs B1 B2 ...")
    a, b = ([open_run(run, allow_incomplete) for run in runs] for runs in arms)
    for run in (*a, *b):
        require_same_target(run, a[0], strict=strict)
    for arm in (a, b):
        require_one_arm(arm)
    b, paired = _match(a, b)
    protocol, estimand = _headline([*a, *b], protocol, metric)
    evaluated = [load_sound(run, protocol) for run in (*a, *b)]
    pairs = [pair(evaluated[0], other, min_coverage=min_coverage, strict=strict) for other in evaluated[1:]]
    frames = common_prompts(pairs)
    if frames[0].empty:
        raise DataError("no prompt has a value in every run; evaluate all runs on the same prompt set")
    prompts, most = len(frames[0]), max(len(e.prompts) for e in evaluated)
    if prompts < min_coverage * most:
        raise DataError(
            f"the {len(evaluated)} runs have {prompts} prompts in common, {prompts / most:.1%} of the largest run, "
            f"under {min_coverage:.0%}; --min-coverage allows less"
        )
    rows = _Rows(tuple(frames[: len(a)]), tuple(frames[len(a) :]), estimand, paired, margin)
    overall = rows.crossed()
    by_dataset = _family({name: rows.where(dataset=name).crossed(name) for name in rows.datasets})
    evenly = rows.balanced()
    return SeedComparison(
        label_a=_label(a),
        label_b=_label(b),
        runs_a=tuple(run.name for run in a),
        runs_b=tuple(run.name for run in b),
        seeds_a=tuple(map(seed_name, a)),
        seeds_b=tuple(map(seed_name, b)),
        protocol=protocol,
        overall=overall,
        balanced=evenly,
        by_dataset=by_dataset,
        by_seen=_family({name: rows.where(seen=name).crossed(name) for name in rows.kinds}),
        per_seed=rows.per_seed() if overall.design != "independent" else (),
        without=rows.without(list(map(seed_name, a)), list(map(seed_name, b))),
        needed=_needed(overall),
        prompts=prompts,
        prompts_lost=most - prompts,
        cautions=(
            *_design_cautions(overall, a, b),
            *cautions_of_arm("A", a),
            *cautions_of_arm("B", b),
            *cautions_between(a, b, protocol, paired=paired),
            *disagreement(
                overall.estimate,
                evenly.estimate if evenly else None,
                {name: c.estimate for name, c in by_dataset.items()},
            ),
        ),
    )


def _headline(runs: Sequence[Run], protocol: str | None, metric: str | None) -> tuple[str, Estimand]:
    """Protocol and metric: as requested, else the first protocol of the metric that every run has."""
    if protocol is None and (metric is None or metric in METRICS):
        known = [protocols(run) for run in runs]
        fitting = [p for p, estimands in HEADLINES.items() if metric in (None, *(e.key for e in estimands))]
        protocol = next((p for p in fitting if all(p in each for each in known)), None)
        if protocol is None:
            protocols_of_runs = "; ".join(
                f"{r.address}: {', '.join(sorted(k)) or 'none'}" for r, k in zip(runs, known, strict=True)
            )
            raise DataError(
                f"the runs were evaluated under no common protocol ({protocols_of_runs}); evaluate all under one"
            )
    return headline_of(runs[0], runs[-1], protocol, metric)


def _match(a: Sequence[Run], b: Sequence[Run]) -> tuple[list[Run], bool]:
    """Arm B in the order of A's seeds, and whether both arms have the same seeds."""
    by_seeds = {seeds_of(run): run for run in b}
    wanted = [seeds_of(run) for run in a]
    if () in wanted or set(wanted) != set(by_seeds) or len(a) != len(b):
        return list(b), False
    return [by_seeds[seeds] for seeds in wanted], True


def _label(runs: Sequence[Run]) -> str:
    """The label that all runs of the arm share, else their names."""
    labels = {run.label for run in runs}
    return labels.pop() if len(labels) == 1 else ", ".join(run.name for run in runs)


def _design_cautions(overall: Crossed, a: Sequence[Run], b: Sequence[Run]) -> tuple[Caution, ...]:
    if overall.design == "independent":
        return (caution("unpaired-seeds"),)
    return tuple(
        caution("one-training", side=side, run=arm[0].name)
        for side, arm in (("A", a), ("B", b))
        if len(arm) == 1 and not untrained(arm[0])
    )


def _family(members: Mapping[str, Crossed]) -> dict[str, Crossed]:
    adjusted = adjust([c.estimate for c in members.values()])
    return {name: replace(c, estimate=e) for (name, c), e in zip(members.items(), adjusted, strict=True)}


def _needed(overall: Crossed) -> SeedsNeeded | None:
    e, parts = overall.estimate, overall.parts
    if parts is None or not e.estimate or parts.total <= 0:
        return None
    spread = Spread.of(parts, overall.seeds, e.n_clusters, e.n_pairs)
    return SeedsNeeded(abs(e.estimate), POWER, seeds_needed(spread, e.estimate))


@dataclass(frozen=True, eq=False)
class _Rows:
    """A frame per run of each arm (:func:`analysis.comparison.common.common_prompts`), over the same prompts."""

    a: tuple[pd.DataFrame, ...]
    b: tuple[pd.DataFrame, ...]
    estimand: Estimand
    paired: bool
    margin: float | None

    @property
    def datasets(self) -> list[str]:
        return sorted(self.a[0]["dataset"].unique())

    @property
    def kinds(self) -> list[str]:
        """Values of ``seen``; prompts without a value are excluded."""
        return sorted(self.a[0]["seen"].dropna().unique())

    def where(self, **columns: str) -> _Rows:
        """The rows with these values in these columns."""
        ((column, value),) = columns.items()
        rows = (self.a[0][column] == value).to_numpy()
        return replace(self, a=tuple(f[rows] for f in self.a), b=tuple(f[rows] for f in self.b))

    def values(self) -> tuple[FloatArray, FloatArray]:
        """(seeds, n) of each arm, whose row means are the metric of each run."""
        of_a, of_b = (np.stack([_values(f, self.estimand) for f in frames]) for frames in (self.a, self.b))
        return of_a, of_b

    def ties(self) -> NDArray[np.bool_]:
        """(n,) prompts with the same counts in all runs that are compared; linearised ratios differ even there."""
        tokens, steps = (
            unchanged(*(np.stack([f[name] for f in frames]) for frames in (self.a, self.b)), paired=self.paired)
            for name in ("tokens", "steps")
        )
        return tokens & steps

    def clusters(self) -> Partition:
        return partition(self.a[0]["cluster_id"])

    def weights(self) -> FloatArray | None:
        """(n,) weights of prompts in the metric, None where they are equal."""
        if self.estimand is not TAU_POOLED:
            return None
        of_a, of_b = (np.mean([ratio.weights(f["steps"]) for f in frames], axis=0) for frames in (self.a, self.b))
        return joint((of_a, of_b))

    def crossed(self, subset: str | None = None) -> Crossed:
        a, b = self.values()
        return crossed(
            a,
            b,
            self.clusters(),
            self.estimand,
            paired=self.paired,
            subset=subset,
            margin=self.margin,
            weights=self.weights(),
            ties=self.ties(),
        )

    def balanced(self) -> Crossed | None:
        """Equal weight per data set; None for a single data set."""
        each = [self.where(dataset=name) for name in self.datasets]
        if len(each) < 2:
            return None
        values = [rows.values() for rows in each]
        a, b = (np.concatenate([v[arm] for v in values], axis=1) for arm in (0, 1))
        ids = pd.concat([rows.a[0]["cluster_id"] for rows in each])
        numbers = np.repeat(np.arange(len(each)), [len(rows.a[0]) for rows in each])
        estimand = balanced(self.estimand)
        weights = None if each[0].weights() is None else np.concatenate([rows.weights() for rows in each])
        evenly = crossed(
            a,
            b,
            partition(ids),
            estimand,
            paired=self.paired,
            margin=self.margin,
            datasets=numbers,
            weights=weights,
            ties=np.concatenate([rows.ties() for rows in each]),
        )
        small = [name for name, rows in zip(self.datasets, each, strict=True) if rows.clusters().count < FEWEST]
        if not small:
            return evenly
        few_clusters = caution("small-datasets", names=", ".join(small), least=FEWEST)
        return replace(evenly, estimate=replace(evenly.estimate, cautions=(*evenly.estimate.cautions, few_clusters)))

    def per_seed(self) -> tuple[Estimate, ...]:
        """Each training against its partner, or against the only run of the other arm."""
        count = max(len(self.a), len(self.b))
        a, b = (frames * count if len(frames) == 1 else frames for frames in (self.a, self.b))
        return tuple(of_pairs(side_by_side(x, y), self.estimand) for x, y in zip(a, b, strict=True))

    def without(self, seeds_a: Sequence[str], seeds_b: Sequence[str]) -> tuple[LeftOut, ...]:
        """The overall estimate without each seed, if at least two remain."""
        a, b = self.a, self.b
        left: list[tuple[str | None, str, _Rows]] = []
        if self.paired or min(len(a), len(b)) == 1:
            seeds = max(seeds_a, seeds_b, key=len)
            left += [(None, s, replace(self, a=_less(a, i), b=_less(b, i))) for i, s in enumerate(seeds)]
        else:
            left += [("A", s, replace(self, a=_less(a, i))) for i, s in enumerate(seeds_a) if len(a) > 2]
            left += [("B", s, replace(self, b=_less(b, i))) for i, s in enumerate(seeds_b) if len(b) > 2]
        if max(len(a), len(b)) < 3:
            return ()
        return tuple(LeftOut(arm, seed, rows.crossed().estimate) for arm, seed, rows in left)


def _less(frames: tuple[pd.DataFrame, ...], place: int) -> tuple[pd.DataFrame, ...]:
    """Without the one at this place; an only one stays."""
    return frames if len(frames) == 1 else frames[:place] + frames[place + 1 :]


def _values(frame: pd.DataFrame, estimand: Estimand) -> FloatArray:
    """(n,) values of one run whose mean is its metric."""
    return np.asarray(values_of(side_by_side(frame, frame), estimand)[0], dtype=np.float64)
