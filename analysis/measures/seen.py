"""Questions of a kind that training had, and others: the two say different things about a drafter, so they are told
apart, over all data sets."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from analysis.stats.estimate import Estimate, of_pairs
from analysis.stats.families import adjust
from analysis.wording import Estimand


def by_seen(frame: pd.DataFrame, estimand: Estimand, margin: float | None = None) -> dict[str, Estimate]:
    """The estimate per value of the pairs' column ``seen``, a family adjusted by Holm; pairs of which it is not known
    count nowhere."""
    groups = frame.groupby("seen", sort=True)
    found = [replace(of_pairs(rows, estimand, margin=margin), subset=str(name)) for name, rows in groups]
    return {str(e.subset): e for e in adjust(found)}
