"""The part of a report about the candidates of every slot."""

from __future__ import annotations

from analysis.comparison.pairwise import Comparison
from analysis.measures.headroom import CANDIDATES
from analysis.report.markdown import table
from analysis.wording import number, percent


def oracle_table(c: Comparison) -> str:
    """tau of an oracle among K candidates, by arm."""
    rows = [
        (f"{k}", *(number(found.oracle.set_index("k")["tau"][k]) for found in c.headroom)) for k in CANDIDATES
    ]  # fmt: skip
    return table(
        ["candidates per slot", *(f"tau, {found.side}" for found in c.headroom)], rows, numeric=len(c.headroom)
    )


def recall_table(c: Comparison) -> str:
    """Recall of the right token at 1 and at all candidates, by slot and arm."""
    last = CANDIDATES[-1]
    headers = ["slot", *(f"{found.side}, first {k}" for found in c.headroom for k in (1, last))]
    slots = max(len(found.recall) for found in c.headroom)
    rows = []
    for slot in range(slots):
        cells: list[str | None] = []
        for found in c.headroom:
            there = slot < len(found.recall)
            cells += [percent(found.recall[f"recall_{k}"][slot]) if there else None for k in (1, last)]
        rows.append((f"{slot + 1}", *cells))
    return table(headers, rows, numeric=len(headers))
