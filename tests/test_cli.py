"""The console command: it knows its subcommands, passes exit codes on, and says so when ours is shadowed."""

import subprocess
import sys
from pathlib import Path

import pytest

from draftlab import cli
from tests.analysis.runs import two_runs

BARE = {"gates": False, "history": False}

ROOT = Path(__file__).parents[1]


def test_every_subcommand_starts(capsys):
    for name in cli.COMMANDS:
        with pytest.raises(SystemExit) as stopped:
            cli.main([name, "--help"])
        assert stopped.value.code == 0, name
        assert capsys.readouterr().out.startswith("usage:"), name


def test_compare(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    a, b = two_runs(tmp_path / "runs", [1, 2, 3], [1, 3, 3], **BARE)
    assert cli.main(["compare", str(a), str(b), "--out", "out"]) == 0
    assert (tmp_path / "out" / "result.json").exists()
    assert cli.main(["compare", str(a), "nowhere"]) == 65 and "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(("argv", "named"), [(["comprae"], "compare"), (["x"], "commands")])
def test_an_unknown_command_names_the_nearest(capsys, argv, named):
    assert cli.main(argv) == 64
    assert named in capsys.readouterr().err


def test_without_arguments_it_lists_commands(capsys):
    assert cli.main([]) == 64
    listed = capsys.readouterr().out
    assert all(name in listed for name in cli.COMMANDS)
    assert cli.main(["--version"]) == 0 and capsys.readouterr().out.startswith("draftlab ")


def test_a_foreign_analysis_is_named(tmp_path):
    (tmp_path / "analysis").mkdir()
    (tmp_path / "analysis" / "__init__.py").write_text("")
    (tmp_path / "draftlab").symlink_to(ROOT / "draftlab")
    call = [sys.executable, "-c", "import draftlab"]
    done = subprocess.run(call, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 1 and "shadowed" in done.stderr and str(tmp_path / "analysis") in done.stderr
