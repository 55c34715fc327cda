"""The part of a report about the shift function."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.comparison.pairwise import Comparison
from analysis.report.markdown import table
from analysis.stats.method import FEWEST
from analysis.stats.shift import Decile
from analysis.wording import interval, number, percent, signed

#: From this share of equal values on, the text says that quantiles move in steps.
_TIED = 0.2


def decile_table(c: Comparison) -> str:
    """One decile per row."""
    assert c.shift is not None
    units = number(c.shift.n_effective, 1) if c.shift.draws else "—"
    rows = [
        (f"{d.q:.0%}", number(d.a), number(d.b), signed(d.difference), interval(d.lo, d.hi), units)
        for d in c.shift.deciles
    ]
    headers = ["decile", "A", "B", "difference", "simultaneous 95% interval", "effective"]
    return table(headers, rows, numeric=6)


def sentence(c: Comparison) -> str:
    """At which deciles the arms differ, and what to keep in mind."""
    s = c.shift
    assert s is not None
    if not s.draws:
        told = f"Intervals require {FEWEST} effective clusters."
    elif higher := [d for d in s.deciles if d.differs and d.difference > 0]:
        lower = [d for d in s.deciles if d.differs and d.difference < 0]
        told = f"B is higher at {_named(higher)}" + (f" and lower at {_named(lower)}." if lower else ".")
    elif lower := [d for d in s.deciles if d.differs]:
        told = f"B is lower at {_named(lower)}."
    else:
        told = "At no decile the interval excludes 0."
    if s.tied >= _TIED:
        told += (
            f" Up to {percent(s.tied, 0)} of an arm's prompts have the same value, so its quantiles move in steps; the "
            "estimator averages over neighbouring values."
        )
    return told


def _named(deciles: Sequence[Decile]) -> str:
    return ", ".join(f"{d.q:.0%}" for d in deciles)
