"""Several trained runs per arm in, one frozen result out: ``compare_seeds(runs_a, runs_b)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.comparison.question import headline_of, listed, open_run, require_coverage
from analysis.display import Shown
from analysis.errors import DataError, UsageError
from analysis.measures.fairness import require_same_target
from analysis.runlog.load import load
from analysis.runlog.pairing import Pairs, pair
from analysis.runlog.reading import Run
from analysis.runlog.schema import PAIR_KEY
from analysis.stats.cluster import FloatArray, partition
from analysis.stats.estimate import Estimate, of_pairs, values_of
from analysis.stats.families import adjust
from analysis.stats.seeds import Crossed, crossed
from analysis.wording import Caution, Estimand, caution


@dataclass(frozen=True, repr=False)
class SeedComparison(Shown):
    """What several trainings of two arms say about each other, over the prompts that all of them have.

    ``overall`` and ``by_dataset`` (p adjusted by Holm) cover seeds and prompts. ``per_seed``: each pair of runs of one
    seed as a comparison of its own, whose interval covers prompts alone; empty if the arms are not paired by seed.
    ``seeds``: how reports call the seed of each run of A, and of B.
    """

    label_a: str
    label_b: str
    runs_a: tuple[str, ...]
    runs_b: tuple[str, ...]
    seeds_a: tuple[str, ...]
    seeds_b: tuple[str, ...]
    protocol: str
    overall: Crossed
    by_dataset: Mapping[str, Crossed]
    per_seed: tuple[Estimate, ...]
    prompts: int
    prompts_lost: int
    cautions: tuple[Caution, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row per estimate: over all seeds, per data set, then per seed."""
        names = [f.name for f in fields(Estimate) if f.name not in ("equivalence", "cautions")]
        rows = []
        found = [(None, self.overall.estimate), *((None, c.estimate) for c in self.by_dataset.values())]
        for seed, e in [*found, *zip(self.seeds_a, self.per_seed, strict=False)]:
            row = {"seed": seed, **{name: getattr(e, name) for name in names}}
            rows.append(row | {"estimand": e.estimand.key, "verdict": str(e.verdict)})
        return pd.DataFrame(rows)


def compare_seeds(
    runs_a: Sequence[Run | Path | str],
    runs_b: Sequence[Run | Path | str],
    *,
    protocol: str | None = None,
    metric: str | None = None,
    min_coverage: float = 0.95,
    strict: bool = False,
    allow_incomplete: bool = False,
) -> SeedComparison:
    """Compare two arms that were trained several times each. Arms are paired where the sets of their seeds are equal.

    Raises UsageError for an arm of one run. Raises DataError as :func:`analysis.comparison.pairwise.compare_runs`
    does, and for two runs of an arm with the same seeds: copies of a training say nothing about another.
    """
    require_coverage(min_coverage)
    arms = listed(runs_a), listed(runs_b)
    if min(map(len, arms)) < 2:
        raise UsageError("comparing seeds wants at least two runs per arm: A1 A2 ... --vs B1 B2 ...")
    a, b = ([open_run(run, allow_incomplete) for run in runs] for runs in arms)
    for run in (*a, *b):
        require_same_target(run, a[0], strict=strict)
    for arm in (a, b):
        _refuse_copies(arm)
    b, paired = _match(a, b)
    protocol, estimand = headline_of(a[0], b[0], protocol, metric)
    evaluated = [load(run, protocol) for run in (*a, *b)]
    pairs = [pair(evaluated[0], other, min_coverage=min_coverage, strict=strict) for other in evaluated[1:]]
    frames = _common(pairs)
    if frames[0].empty:
        raise DataError("no prompt has a value in every run; evaluate all of them on one prompt set")
    overall = _crossed(frames, len(a), estimand, paired, None)
    each = {name: _crossed(frames, len(a), estimand, paired, name) for name in sorted(frames[0]["dataset"].unique())}
    adjusted = adjust([c.estimate for c in each.values()])
    told = () if paired else (caution("unpaired-seeds"),)
    return SeedComparison(
        label_a=_label(a),
        label_b=_label(b),
        runs_a=tuple(run.name for run in a),
        runs_b=tuple(run.name for run in b),
        seeds_a=tuple(map(_seed, a)),
        seeds_b=tuple(map(_seed, b)),
        protocol=protocol,
        overall=overall,
        by_dataset={name: replace(c, estimate=e) for (name, c), e in zip(each.items(), adjusted, strict=True)},
        per_seed=_per_seed(frames, len(a), estimand) if paired else (),
        prompts=len(frames[0]),
        prompts_lost=max(len(e.prompts) for e in evaluated) - len(frames[0]),
        cautions=told,
    )


def _seeds(run: Run) -> tuple[tuple[str, int], ...]:
    training = run.manifest.training
    return tuple(sorted(training.seeds.items())) if training else ()


def _seed(run: Run) -> str:
    """``init 1, data 1`` or, where all are one number, ``1``; the run's name if it recorded none."""
    seeds = dict(_seeds(run))
    if len(set(seeds.values())) == 1:
        return str(next(iter(seeds.values())))
    return ", ".join(f"{name} {seed}" for name, seed in seeds.items()) or run.name


def _refuse_copies(arm: Sequence[Run]) -> None:
    known = [(run, _seeds(run)) for run in arm if _seeds(run)]
    for i, (run, seeds) in enumerate(known):
        for other, same in known[:i]:
            if seeds == same:
                raise DataError(
                    f"{other.address} and {run.address} are runs of one arm with the same seeds ({_seed(run)}); "
                    "give each seed once"
                )


def _match(a: Sequence[Run], b: Sequence[Run]) -> tuple[list[Run], bool]:
    """Arm B in the order of A's seeds, and whether the arms have the same ones."""
    by_seeds = {_seeds(run): run for run in b}
    wanted = [_seeds(run) for run in a]
    if () in wanted or set(wanted) != set(by_seeds):
        return list(b), False
    return [by_seeds[seeds] for seeds in wanted], True


def _label(runs: Sequence[Run]) -> str:
    """The label that all runs of the arm share, else their names."""
    labels = {run.label for run in runs}
    return labels.pop() if len(labels) == 1 else ", ".join(run.name for run in runs)


def _common(pairs: Sequence[Pairs]) -> list[pd.DataFrame]:
    """A frame per run over the prompts that all have: PAIR_KEY, dataset, cluster_id, tokens, steps; same order."""
    key = list(PAIR_KEY)
    keys = pairs[0].frame[key]
    for other in pairs[1:]:
        keys = keys.merge(other.frame[key], on=key)
    columns = [*key, "dataset", "cluster_id"]
    first = pairs[0].frame[[*columns, "tokens_a", "steps_a"]]
    others = [p.frame[[*columns, "tokens_b", "steps_b"]] for p in pairs]
    named = [f.set_axis([*columns, "tokens", "steps"], axis=1) for f in (first, *others)]
    return [keys.merge(frame, on=key).sort_values(key, ignore_index=True) for frame in named]


def _values(frame: pd.DataFrame, estimand: Estimand) -> FloatArray:
    """(n,) values of one run whose mean is its metric."""
    twice = {f"{column}_{side}": frame[column] for side in "ab" for column in ("tokens", "steps")}
    return np.asarray(values_of(pd.DataFrame(twice), estimand)[0], dtype=np.float64)


def _crossed(
    frames: Sequence[pd.DataFrame], of_a: int, estimand: Estimand, paired: bool, subset: str | None
) -> Crossed:
    rows = [frame if subset is None else frame[frame["dataset"] == subset] for frame in frames]
    values = [_values(frame, estimand) for frame in rows]
    clusters = partition(rows[0]["cluster_id"])
    return crossed(np.stack(values[:of_a]), np.stack(values[of_a:]), clusters, estimand, paired=paired, subset=subset)


def _per_seed(frames: Sequence[pd.DataFrame], of_a: int, estimand: Estimand) -> tuple[Estimate, ...]:
    """Each seed's two runs as a comparison of their own."""
    found = []
    for a, b in zip(frames[:of_a], frames[of_a:], strict=True):
        both = a.assign(tokens_a=a["tokens"], steps_a=a["steps"], tokens_b=b["tokens"], steps_b=b["steps"])
        found.append(of_pairs(both, estimand))
    return tuple(found)
