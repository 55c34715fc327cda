"""Acceptance by draft position: survival, conditional acceptance, and what a longer block could add."""

from __future__ import annotations

import pandas as pd

from analysis.comparison.pairwise import Comparison
from analysis.report.markdown import table
from analysis.wording import number, percent, signed


def survival_table(c: Comparison) -> str | None:
    """Survival per slot, both arms, with the steps at risk, and the difference."""
    if c.position_difference.empty:
        return None
    a, b = _curves(c)
    rows = []
    for row in c.position_difference.itertuples():
        first, second = a.loc[row.k], b.loc[row.k]
        bounds = "—" if pd.isna(row.lo) else f"{_points(row.lo)} to {_points(row.hi)}"
        rows.append(
            (f"{row.k}", *(f"{x['at_risk']:,.0f}" for x in (first, second)),
             *(percent(x["survival"]) for x in (first, second)), _points(row.difference), bounds,
             "—" if pd.isna(row.n_effective) else number(row.n_effective, 1))
        )  # fmt: skip
    headers = ["k", "at risk, A", "B", "survival, A", "B", "difference", "95% interval", "effective"]
    return table(headers, rows, numeric=8)


def conditional_table(c: Comparison) -> str:
    """Acceptance per slot among the steps that reached it, and the share that failed for lack of vocabulary."""
    arms = _curves(c)
    columns = (("reached", lambda x: f"{x:,.0f}"), ("conditional", percent), ("missed_vocabulary", percent))
    rows = [
        (f"{k}", *(shown(arm.loc[k, column]) for column, shown in columns for arm in arms))
        for k in c.position_difference["k"]
    ]
    headers = ["k", "reached, A", "B", "conditional, A", "B", "not in vocabulary, A", "B"]
    return table(headers, rows, numeric=7)


def _curves(c: Comparison) -> tuple[pd.DataFrame, pd.DataFrame]:
    return c.a.positions.curve.set_index("k"), c.b.positions.curve.set_index("k")


def _points(share: float) -> str:
    return "—" if pd.isna(share) else signed(100 * share, 1)


def _effective(last: pd.Series) -> str:
    n = last["n_effective"]
    return "" if pd.isna(n) else f"; {number(n, 1)} effective clusters"


def ceilings(c: Comparison) -> list[str]:
    """Upper bound of the gain from a longer block, per arm."""
    lines = []
    for arm in (c.a, c.b):
        if arm.positions.ceiling is None:
            continue
        last = arm.positions.curve.iloc[-1]
        lines.append(
            f"{arm.side}: all {last['k']:.0f} draft tokens are accepted in {percent(last['survival'])} of steps "
            f"({percent(last['lo'])} to {percent(last['hi'])}{_effective(last)}). One more slot could add at most "
            f"{number(arm.positions.ceiling, 2)} tokens per step; the actual gain is unknown."
        )
    return lines
