"""Generated pages are what the code would write, and describe every column; pages name files and options that exist."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from analysis.runlog.columns import FACTS, column_of
from analysis.runlog.schema import TABLES
from draftlab.cli import COMMANDS

ROOT = Path(__file__).parents[1]


def test_generated_pages_are_current():
    done = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", TABLES)
def test_every_column_is_described_once(name):
    assert all(column_of(name, column).meaning for column in TABLES[name].names)
    assert set(FACTS[name].columns) <= set(TABLES[name].names), "a column that the schema does not have"


def test_the_guide_names_files_that_exist():
    for page in ("CONTRIBUTING.md", "docs/architecture.md", "docs/training.md", "docs/serving.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        paths = [word for word in re.findall(r"[\w./<>-]+\.(?:py|sh|j2|md|yaml)\b", text) if "/" in word]
        assert paths
        missing = [w for w in paths if "<" not in w and not any((p / w).exists() for p in (ROOT, ROOT / "docs"))]
        assert not missing, f"{page} names {missing}"


GUIDES = ("README.md", "docs/index.md", "docs/training.md", "docs/serving.md")


def commands_in(page):
    """(command, its options) for every ``draftlab ...`` and ``python -m package.command ...`` of a page."""
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
    # an indented command may go on in the next line
    text = re.sub(r"\n( {4,})--", r" --", text)
    pattern = r"(?:draftlab|python -m (?:analysis|drafters)\.|-m drafters\.) ?([a-z]+)([^`\n#]*)"
    return [(name, re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest)) for name, rest in re.findall(pattern, text)]


@pytest.mark.parametrize("page", GUIDES)
def test_commands_and_options_of_the_pages_exist(page, capsys):
    found = [(name, options) for name, options in commands_in(page) if name in COMMANDS]
    assert found
    for name, options in found:
        with pytest.raises(SystemExit) as ended:
            import_module(COMMANDS[name].module).main(["--help"])
        known = set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out))
        assert ended.value.code == 0 and set(options) <= known, (page, name, set(options) - known)
