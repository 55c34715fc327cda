"""An installed wheel works outside the repository, in a folder that has an ``analysis`` of its own (minutes: slow)."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.analysis.importers import logs

ROOT = Path(__file__).parents[1]
FRAMES = """
import pandas as pd
import draftlab
a = pd.DataFrame({"prompt_id": [f"p{i}" for i in range(12)], "accepted_length": [2] * 12})
b = a.assign(accepted_length=[3] * 11 + [2])
result = draftlab.compare_runs(a, b, value="accepted_length")
print(result.overall.estimate, result.overall.verdict)
"""


@pytest.mark.slow
def test_an_installed_wheel(tmp_path):
    def run(*call, cwd=ROOT):
        return subprocess.run(list(map(str, call)), cwd=cwd, check=True, capture_output=True, text=True).stdout

    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "dist", ROOT)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    bin = tmp_path / "env" / "bin"
    run(bin / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel)

    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "analysis").mkdir(parents=True)
    (elsewhere / "analysis" / "__init__.py").write_text("raise RuntimeError('not this one')")
    for name in ("eagle", "sps"):
        logs.write(elsewhere, f"{name}.jsonl", logs.lines(logs.ANSWERS))
    run(bin / "draftlab", "compare", "eagle.jsonl", "sps.jsonl", "--out", "report", cwd=elsewhere)
    assert (elsewhere / "report" / "report.md").exists() and (elsewhere / "report" / "figures").exists()

    clean = tmp_path / "clean"
    clean.mkdir()
    assert run(bin / "python", "-c", FRAMES, cwd=clean).split()[0].startswith("0.91")
