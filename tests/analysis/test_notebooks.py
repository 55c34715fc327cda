"""The shipped notebooks run, on the shipped runs, and end with the line to change for one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "reports" / "notebooks").glob("*.ipynb"))
SHIPPED = [ROOT / "runs" / name / "run.json" for name in ("study-dflash", "study-dynadflash", "study-dflare-seed4")]


def test_they_have_an_order():
    assert [path.stem for path in NOTEBOOKS] == [
        "1-compare-two-runs",
        "2-where-the-gain-comes-from",
        "3-what-the-gate-does",
        "4-plan-a-study",
        "5-your-own-logs",
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_thin_and_ends_with_the_line_to_change(path):
    notebook = nbformat.read(path, as_version=4)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert "compare_" in code[-1]
    assert len(code[-1].splitlines()) == 1
    assert "Change the next line" in notebook.cells[-2].source
    assert max(len(source.splitlines()) for source in code) <= 12
    assert not any("def " in source for source in code)
    assert path.stat().st_size < 400_000


@pytest.mark.skipif(not all(path.exists() for path in SHIPPED), reason="the study's runs are not here yet")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path):
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in shown)
    assert not any(output.output_type == "error" or output.get("name") == "stderr" for output in shown)
