"""Generated pages are what the code would write, and describe every column."""

import subprocess
import sys
from pathlib import Path

import pytest

from analysis.runlog.columns import FACTS, column_of
from analysis.runlog.schema import TABLES

ROOT = Path(__file__).parents[1]


def test_generated_pages_are_current():
    done = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", TABLES)
def test_every_column_is_described_once(name):
    assert all(column_of(name, column).meaning for column in TABLES[name].names)
    assert set(FACTS[name].columns) <= set(TABLES[name].names), "a column that the schema does not have"


def test_the_guide_names_files_that_exist():
    for page in ("CONTRIBUTING.md", "docs/architecture.md"):
        words = (ROOT / page).read_text(encoding="utf-8").replace("(", "`").replace(")", "`").split("`")
        paths = [w for w in words if "/" in w and " " not in w and w.endswith((".py", ".j2", ".md", ".yaml"))]
        assert paths
        missing = [w for w in paths if "<" not in w and not any((p / w).exists() for p in (ROOT, ROOT / "docs"))]
        assert not missing, f"{page} names {missing}"
