"""Reasons for which rows were left out, counted: alike are those that differ in their numbers and names alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

from analysis.importers.source import Problem

_MOST = 3
_PARTICULARS = re.compile(r"'[^']*'|\d+|(?<=prompt )\S+|(?<=question )\S+")


def by_reason(problems: Sequence[tuple[str, Problem]]) -> str:
    """How many rows there are for each of the most usual reasons, which are one but for their numbers and names."""
    alike: dict[str, list[str]] = {}
    for name, problem in problems:
        alike.setdefault(_PARTICULARS.sub("", problem.reason), []).append(
            f"{name}, {problem}" if name else str(problem)
        )
    usual = sorted(alike.values(), key=len, reverse=True)
    told = [f"{len(some):,} as {some[0]}" for some in usual[:_MOST]]
    told += [f"{sum(map(len, usual[_MOST:])):,} for other reasons"] if usual[_MOST:] else []
    return "; ".join(told)
