"""What a new user runs into: which protocol, where the report goes, narrow terminals, runs against themselves."""

from __future__ import annotations

import hashlib
import json
import shlex
from pathlib import Path

import pytest

from analysis import compare_runs
from analysis.commands.check import main as check
from analysis.commands.compare import main
from analysis.commands.importers import main as importers
from analysis.commands.power import main as power
from analysis.errors import Exit, run_command
from analysis.keys import natural
from analysis.report import terminal as shown
from analysis.runlog.reading import Run
from analysis.wording import cut_apart
from tests.analysis.importers import logs
from tests.analysis.runs import prompt, prompts_of, two_runs, write_run

BARE = {"gates": False, "history": False}


@pytest.fixture
def compare(tmp_path, monkeypatch, capsys):
    """Call the command in ``tmp_path``; gives exit code, stdout and stderr."""
    (tmp_path / "runs").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path)

    def call(*argv):
        code = run_command(main, [str(a) for a in argv])
        return (code, *capsys.readouterr())

    return call


def test_the_protocol_that_was_chosen_is_said_first(compare, tmp_path):
    for name, shift in (("one", 0), ("two", 1)):
        both = tmp_path / "runs" / name
        write_run(both, prompts_of([1 + shift, 2, 3]), **BARE)
        more = write_run(
            tmp_path / "more" / name, prompts_of([[1, 2], [3, shift], [2, 2]]), protocol="generate", **BARE
        )
        add_evaluations(both, more)
    code, out, _ = compare("one", "two")
    first = out.splitlines()[0]
    assert code == Exit.OK and first.startswith("Protocol generate") and "--protocol prefix" in first
    assert not compare("one", "two", "--protocol", "prefix")[1].startswith("Protocol")


def add_evaluations(run, more):
    """The rows of the run ``more`` as further rows of ``run``."""
    data, added = (json.loads((folder / "run.json").read_text()) for folder in (run, more))
    data["evaluations"] |= added["evaluations"]
    for table, parts in added["tables"].items():
        for part in parts:
            name = f"more-{part['file'].replace('/', '-')}"
            (run / name).write_bytes((more / part["file"]).read_bytes())
            data["tables"].setdefault(table, []).append({**part, "file": name})
    (run / "run.json").write_text(json.dumps(data))


def test_printed_advice_runs_as_it_stands(compare, tmp_path, capsys):
    two_runs(tmp_path / "runs", [1, 2, 3, 4] * 8, [2, 1, 4, 3] * 8, **BARE)
    out = compare("one", "two")[1]
    _, command = out.split("python -m analysis.power ")
    arguments = shlex.split(command.split("\n")[0])
    arguments = arguments[: arguments.index("--effect") + 2]
    assert "--protocol" in arguments and "--metric" in arguments
    assert run_command(power, [a.rstrip(".") if a.endswith(".") else a for a in arguments]) == Exit.OK


def test_a_report_of_the_plan_is_replaced_only_by_the_plan(compare, tmp_path):
    two_runs(tmp_path / "runs", [1, 2, 3], [2, 3, 4], **BARE)
    reports = tmp_path / "reports"
    planned = reports / "one-vs-two"
    planned.mkdir(parents=True)
    (reports / "plan.yaml").write_text("comparisons:\n  - {a: one, b: two}\n")
    (planned / "report.md").write_text("of the plan")
    code, out, _ = compare("one", "two")
    assert code == Exit.OK and (planned / "report.md").read_text() == "of the plan"
    assert out.splitlines()[-1] == "report: reports/one-vs-two-unplanned/report.md"
    code, _, err = compare("one", "two", "--out", planned)
    assert code == Exit.USAGE and "--force" in err
    assert compare("one", "two", "--force")[0] == Exit.OK
    assert (planned / "report.md").read_text() != "of the plan"


def test_a_run_against_itself_says_so(compare, tmp_path):
    run = write_run(tmp_path / "runs" / "one", prompts_of([1, 2, 3]), **BARE)
    found = compare_runs(run, run)
    assert "same-run" in [c.code for c in found.cautions]
    a, b = two_runs(tmp_path / "other", [1, 2, 3], [1, 2, 4], **BARE)
    assert "same-run" not in [c.code for c in compare_runs(a, b).cautions]


def test_a_baseline_that_drafts_draws_a_caution(tmp_path):
    rows = [prompt(f"p{i}", [1, 2]) for i in range(6)]
    plain = [prompt(f"p{i}", [0] * 5) for i in range(6)]
    runs = [write_run(tmp_path / n, r, protocol="generate", **BARE) for n, r in (("a", rows), ("p", plain))]
    codes = {
        n: [c.code for c in compare_runs(runs[0], runs[0], baseline=run).cautions]
        for n, run in zip("ap", runs, strict=True)
    }
    assert "baseline-drafts" in codes["a"] and "baseline-drafts" not in codes["p"]


def test_check_lists_every_data_set_in_natural_order(tmp_path, capsys):
    rows = [prompt(f"p{i}", 1, dataset=f"gsm-{i}") for i in range(12)]
    run_command(check, [str(write_run(tmp_path / "a", rows, **BARE))])
    assert ", ".join(f"gsm-{i}" for i in range(12)) in capsys.readouterr().out
    found = compare_runs(tmp_path / "a", tmp_path / "a")
    assert list(found.by_dataset) == [f"gsm-{i}" for i in range(12)]
    assert sorted(["b10", "b9", "a", "10", "9"], key=natural) == ["9", "10", "a", "b9", "b10"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_terminal_keeps_the_names_of_rows(tmp_path, width, monkeypatch, capsys):
    from rich.console import Console

    rows = [prompt(f"p{i}", 1, dataset=f"a-data-set-of-a-longer-name-{i % 3}") for i in range(9)]
    run = write_run(tmp_path / "a", rows, **BARE)
    console = Console(width=width, markup=False, highlight=False, emoji=False)
    shown.summarise(compare_runs(run, run), console)
    out = capsys.readouterr().out
    assert all(f"a-data-set-of-a-longer-name-{i}" in out for i in range(3))


def test_names_cut_to_the_same_letters_stay_distinct():
    names = [f"{'x' * 40}-{i}" for i in range(12)] + ["short"]
    cut = cut_apart(names, 32)
    assert len(set(cut)) == len(names) and max(map(len, cut)) <= 32 and cut[-1] == "short"


def test_tables_without_anything_known_are_folded_and_no_python_is_shown(tmp_path):
    path = logs.write(tmp_path, "answers.jsonl")
    report = compare_runs(path, path).to_markdown()
    assert "| unknown |" not in report and "Not recorded in either run:" in report

    def change(manifest):
        manifest.training.settings.update(sources=[{"source": "x", "count": 3}], flag=True, nothing=None)

    a = write_run(tmp_path / "a", prompts_of([1, 2, 3]), change=change, **BARE)
    b = write_run(tmp_path / "b", prompts_of([1, 2, 3]), **BARE)
    report = compare_runs(a, b).to_markdown()
    assert "source x, count 3" in report and "{'" not in report and r"\{" not in report and "None" not in report


def test_labels_target_and_map_on_the_command(compare, tmp_path):
    csv = "id,acc,n\n" + "".join(f"q{i},{i % 3},{3}\n" for i in range(8))
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(csv)
    maps = ["--map", "prompt_id=id", "--map", "accepted=acc", "--map", "drafted=n", "--out", "out"]
    code, out, err = compare("a.csv", "b.csv", *maps, "--label-a", "Oak", "--label-b", "Elm", "--target", "m-8b")
    assert (code, err) == (Exit.OK, "") and "Oak (A)" in out and "Elm (B)" in out
    report = Path("out/report.md").read_text(encoding="utf-8")
    assert "m-8b" in report
    run = write_run(tmp_path / "runs" / "one", prompts_of([1, 2, 3]), **BARE)
    assert compare(run, run, "--target", "another")[0] == Exit.USAGE


def test_files_of_one_name_are_told_apart_by_their_paths(tmp_path):
    paths = []
    for folder in ("oak", "elm"):
        (tmp_path / folder).mkdir()
        paths.append(logs.write(tmp_path / folder, "answers.jsonl"))
    found = compare_runs(*paths)
    assert (found.a.label, found.b.label) == ("oak", "elm")


def test_json_quiet_and_version(compare, tmp_path, capsys):
    two_runs(tmp_path / "runs", [1, 2, 3] * 8, [2, 4, 4] * 8, **BARE)
    code, out, err = compare("one", "two", "--json")
    assert (code, err, out.count("\n")) == (Exit.OK, "", 1)
    assert json.loads(out)["report"].endswith("report.md")
    assert compare("one", "two", "--quiet") == (Exit.OK, "", "")
    assert compare("one", "two", "--quiet", "--fail-if", "delta>0.5")[0] == Exit.RULE_FAILED
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0 and capsys.readouterr().out.startswith("draftlab ")
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "delta[DATASET]" in capsys.readouterr().out


def test_results_save_themselves_and_show_as_latex_and_html(tmp_path):
    a, b = two_runs(tmp_path, [1, 2, 3, 4], [2, 3, 4, 6], **BARE)
    found = compare_runs(a, b)
    assert found.save(tmp_path / "saved") == tmp_path / "saved" / "report.md"
    assert (tmp_path / "saved" / "result.json").exists()
    latex = found.to_latex()
    assert latex.startswith("\\begin{tabular}") and "\\toprule" in latex and "accepted\\_length" in latex
    assert "<table" in found._repr_html_() and Run.open(a).name in found._repr_html_() + "one"


def test_imported_runs_keep_where_they_come_from(tmp_path):
    path = logs.write(tmp_path, "answers.jsonl")
    assert run_command(importers, [str(path), "--out", str(tmp_path / "run")]) == Exit.OK
    (source,) = Run.open(tmp_path / "run").manifest.sources
    data = path.read_bytes()
    assert (source.path, source.bytes, source.sha256) == (str(path), len(data), hashlib.sha256(data).hexdigest())
    assert source.importer_version >= 1
    assert source.sha256[:12] in compare_runs(path, path).to_markdown()
