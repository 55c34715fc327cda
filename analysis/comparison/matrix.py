"""More than two arms: each against the first, and all against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.comparison.common import common_prompts
from analysis.comparison.pairwise import Comparison, compare_runs
from analysis.comparison.question import listed
from analysis.display import Shown
from analysis.errors import UsageError
from analysis.runlog.reading import Run
from analysis.stats.estimate import Estimate
from analysis.stats.families import adjust
from analysis.stats.ranking import Ranking, rank


@dataclass(frozen=True, eq=False, repr=False)
class Matrix(Shown):
    """Arms against the first. ``comparisons``: each in full, as a separate comparison. ``overall``: their headlines, p
    adjusted by Holm over arms; ``by_dataset``: per arm and data set, p adjusted by Holm over all of these. ``ranking``:
    all arms against each other, over the prompts that every arm has; None without such prompts."""

    comparisons: tuple[Comparison, ...]
    overall: tuple[Estimate, ...]
    by_dataset: tuple[Mapping[str, Estimate], ...]
    ranking: Ranking | None

    @property
    def datasets(self) -> list[str]:
        """Every data set of any comparison."""
        return sorted({name for each in self.by_dataset for name in each})

    def to_frame(self) -> pd.DataFrame:
        """One row per arm, then one per arm and data set."""
        rows = []
        for c, overall, each in zip(self.comparisons, self.overall, self.by_dataset, strict=True):
            for e in (overall, *each.values()):
                row: dict[str, Any] = {"arm": c.b.label, "against": c.a.label, "subset": e.subset}
                for name in ("mean_a", "mean_b", "estimate", "lo", "hi", "p", "p_adjusted", "family_size", "n_pairs"):
                    row[name] = getattr(e, name)
                rows.append(row | {"n_clusters": e.n_clusters, "verdict": str(e.verdict)})
        return pd.DataFrame(rows)


def compare_many(runs: Sequence[Run | Path | str], **options: Any) -> Matrix:
    """Compare ``runs[1:]`` with the first; ``options`` are those of
    :func:`analysis.comparison.pairwise.compare_runs`."""
    runs = listed(runs)
    if len(runs) < 2:
        raise UsageError("comparing several arms requires at least two runs")
    comparisons = tuple(compare_runs(runs[0], run, **options) for run in runs[1:])
    cells = adjust([e for c in comparisons for e in c.by_dataset.values()])
    by_dataset, taken = [], 0
    for c in comparisons:
        by_dataset.append(dict(zip(c.by_dataset, cells[taken:], strict=False)))
        taken += len(c.by_dataset)
    return Matrix(comparisons, adjust([c.overall for c in comparisons]), tuple(by_dataset), _ranking(comparisons))


def _ranking(comparisons: Sequence[Comparison]) -> Ranking | None:
    frames = common_prompts([c.pairs for c in comparisons])
    if frames[0].empty:
        return None
    arms = [comparisons[0].a, *(c.b for c in comparisons)]
    labels = [arm.manifest.label or arm.name for arm in arms]
    names = labels if len(set(labels)) == len(labels) else [arm.name for arm in arms]
    return rank(names, frames, comparisons[0].estimand)
