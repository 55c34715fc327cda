"""Every table of the committed reports that has an interval states the effective number of clusters behind it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

REPORTS = Path(__file__).parents[3] / "reports"
PAGES = sorted(REPORTS.glob("**/report.md"))
#: Tables whose units are not prompts: servers' trials by blocks, which stand in a column of their own.
_OTHER_UNITS = ("blocks", "B / A per block")


def headers(text):
    """The header cells of every Markdown table."""
    lines = text.splitlines()
    return [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line, below in itertools.pairwise(lines)
        if line.startswith("|") and re.fullmatch(r"[|\-: ]+", below)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_tables_with_an_interval_state_their_units(page):
    tables = [h for h in headers(page.read_text()) if any("interval" in cell for cell in h)]
    for table in tables:
        assert any("effective" in cell for cell in table) or set(_OTHER_UNITS) & set(table), table


def test_there_are_such_tables():
    assert sum(any("interval" in cell for cell in h) for page in PAGES for h in headers(page.read_text())) > 20
