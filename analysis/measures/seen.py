"""Estimates by whether training contained the kind of prompt. The two groups answer different questions, so they are
shown separately, over all data sets."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from analysis.stats.estimate import Estimate, of_pairs
from analysis.stats.families import adjust
from analysis.wording import Estimand


def by_seen(frame: pd.DataFrame, estimand: Estimand, margin: float | None = None) -> dict[str, Estimate]:
    """The estimate per value of the pairs' column ``seen``, a family adjusted by Holm; pairs without a value
    are excluded."""
    groups = frame.groupby("seen", sort=True)
    estimates = [replace(of_pairs(rows, estimand, margin=margin), subset=str(name)) for name, rows in groups]
    return {str(e.subset): e for e in adjust(estimates)}
