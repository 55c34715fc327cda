"""``python -m analysis.compare`` from end to end: degenerate and bad inputs, exit codes, and the one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.commands.check import main as check
from analysis.commands.compare import main
from analysis.errors import Exit, run_command
from analysis.report.markdown import escape
from analysis.runlog.reading import Run
from analysis.runlog.writing import sha256_of
from analysis.wording import HEADLINES
from tests.analysis.runs import prompt, prompts_of, study, two_runs, write_run

ROOT = Path(__file__).parents[3]
BARE = {"gates": False, "history": False}


@pytest.fixture
def compare(tmp_path, monkeypatch, capsys):
    """Call the command in ``tmp_path``; gives exit code, stdout, stderr, and the result if there is one."""
    (tmp_path / "runs").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path)

    def call(*argv):
        code = run_command(main, [str(a) for a in argv])
        out, err = capsys.readouterr()
        results = sorted(tmp_path.glob("reports/*/result.json"))
        return code, out, err, json.loads(results[0].read_text(encoding="utf-8")) if results else None

    return call


def edit_table(folder, name, edit):
    """Rewrite a table of a run in place, and list it in the manifest as it now is."""
    part = Run.open(folder).manifest.tables[name][0]
    pq.write_table(edit(pq.read_table(folder / part.file)), folder / part.file)
    data = json.loads((folder / "run.json").read_text())
    data["tables"][name][0]["sha256"] = sha256_of(folder / part.file)
    data["tables"][name][0]["rows"] = pq.read_metadata(folder / part.file).num_rows
    (folder / "run.json").write_text(json.dumps(data))


# --- what a good comparison does -------------------------------------------------------------------------------


def test_a_study(compare, tmp_path):
    study(tmp_path / "runs")
    code, out, err, result = compare("study-dflash", "study-dynadflash")
    assert (code, err) == (Exit.OK, "")
    folder = tmp_path / "reports" / "study-dflash-vs-study-dynadflash"
    assert {p.name for p in folder.iterdir()} == {"report.md", "result.json", "figures"}
    assert len(list((folder / "figures").iterdir())) == 7 * 4
    assert result["overall"]["verdict"] == "B better"
    assert out.startswith("DynaDFlash (B) ") and "3.300" in out.splitlines()[0]
    assert out.splitlines()[-1] == "report: reports/study-dflash-vs-study-dynadflash/report.md"
    for dataset in result["by_dataset"]:
        assert dataset in out
    report = (folder / "report.md").read_text(encoding="utf-8")
    figures = ("forest", "survival", "contribution-share", "training-curves")
    assert [name for name in figures if f"(figures/{name}.png)" not in report] == []
    assert "one-seed" in {caution["code"] for caution in result["cautions"]}
    links = [link.split(")")[0] for link in report.split("](")[1:]]
    assert [link for link in links if not link.startswith("#") and not (folder / link).exists()] == []


def test_out_names_the_folder_and_paths_are_taken(compare, tmp_path):
    a, b = two_runs(tmp_path / "my runs", [1, 2, 3], [1, 3, 3], **BARE)
    assert compare(a, b, "--out", tmp_path / "here and there")[0] == Exit.OK
    assert (tmp_path / "here and there" / "report.md").exists()
    assert not (tmp_path / "reports").exists()


def test_stale_figures_go_and_other_files_stay(compare, tmp_path):
    a, b = two_runs(tmp_path, [1, 2, 3], [1, 3, 3], gates=False)
    compare(a, b, "--out", "out")
    assert Path("out/figures/training-curves.png").exists()
    Path("out/notes.txt").write_text("mine")
    two_runs(tmp_path, [1, 2, 3], [1, 3, 3], **BARE)
    compare(a, b, "--out", "out")
    assert not Path("out/figures/training-curves.png").exists()
    assert Path("out/notes.txt").read_text() == "mine"


@pytest.mark.parametrize("after", [0, 11, 29])
def test_a_report_that_is_stopped_while_it_is_rewritten_is_none(compare, tmp_path, monkeypatch, after):
    from analysis.report import writing

    for kind in ("png", "svg", "pdf"):
        monkeypatch.setattr(writing.figures, kind, lambda figure: b"drawn")  # what the files hold does not matter here
    a, b = two_runs(tmp_path, [1, 2, 3], [1, 3, 3])
    assert compare(a, b, "--out", "out")[0] == Exit.OK
    files, write = [], writing.write_atomic

    def stopped(path, data):
        if len(files) == after:
            raise KeyboardInterrupt
        files.append(path)
        write(path, data)

    monkeypatch.setattr(writing, "write_atomic", stopped)
    code, out, err, _ = compare(b, a, "--out", "out")
    assert (code, out, err) == (Exit.INTERRUPTED, "", "draftlab: interrupted\n")
    assert not Path("out/report.md").exists() and Path("out/figures/forest.png").exists()
    assert Path("out/result.json").exists() == (after == 29)


def test_same_bytes_in_another_process_without_torch_display_or_utf8(tmp_path):
    here = tmp_path / "a folder"
    study(here / "runs")
    script = (
        "import sys; from analysis.commands.compare import main; from analysis.errors import run_command\n"
        "code = run_command(main, sys.argv[1:])\n"
        "loaded = [m for m in ('torch', 'matplotlib.pyplot', 'drafters') if m in sys.modules]\n"
        "sys.exit(code if not loaded else 99)"
    )
    files = []
    for out, hash_seed in (("out 1", "1"), ("out 2", "2")):
        env = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONHASHSEED": hash_seed}
        env = {k: v for k, v in env.items() if k not in ("DISPLAY", "PYTHONUTF8")} | {"PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", script, "study-dflash", "study-dynadflash", "--out", out]
        done = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        files.append({p.relative_to(here / out): p.read_bytes() for p in (here / out).rglob("*") if p.is_file()})
    assert len(files[0]) == 30
    assert files[0] == files[1]
    assert b"\r" not in files[0][Path("report.md")]


HOSTILE = "_a|b`c\n$x$ *עברית* <b>&amp; [z](y) \\"
ESCAPED = r"\_a\|b\`c \$x\$ \*עברית\* \<b\>\&amp; \[z\](y) \\"


def tables_are_whole(report):
    tables = [block.splitlines() for block in report.split("\n\n") if block.startswith("|")]
    assert tables
    for table in tables:
        bars = {line.replace("\\|", "").count("|") for line in table}
        assert len(bars) == 1, table


def test_names_survive_everywhere(compare, tmp_path):
    rows = [*prompts_of([1, 2, 3, 4, 5, 6, 7], dataset=HOSTILE), prompt("id|`\n", None, dataset=HOSTILE)]
    rows += [prompt(f"q{i}", i % 5, dataset="\u202e_other|") for i in range(8)]
    a = write_run(tmp_path / "a", rows, change=lambda m: setattr(m, "label", "_$A|"))
    b = write_run(tmp_path / "b", rows, fusion="gated", change=lambda m: setattr(m, "label", "[bold]B"))
    call = ("--min-coverage", "0", "--margin", "0.5", "--control", a, "--fail-if", f"delta[{HOSTILE}]<-5")
    code, out, err, result = compare(a, b, *call)
    assert (code, err) == (Exit.OK, "")
    assert set(result["by_dataset"]) == {HOSTILE, "\u202e_other|"}
    assert "[bold]B (B)" in out
    assert "\u202e" not in out
    report = (tmp_path / "reports/a-vs-b/report.md").read_text(encoding="utf-8")
    tables_are_whole(report)
    assert "\u202e" not in report
    # in the tables of data sets, equivalence, contrasts, facts, and of lost pairs
    assert sum(f"| {ESCAPED} |" in line for line in report.splitlines()) >= 5
    for figure in (tmp_path / "reports/a-vs-b/figures").glob("*.svg"):
        assert "<b>" not in figure.read_text(encoding="utf-8")


def test_names_survive_in_a_matrix_and_over_seeds(compare, tmp_path):
    rows = prompts_of([1, 2, 3, 4, 5, 6, 7], dataset=HOSTILE)

    def arm(name, seed, fusion="concat"):
        def change(manifest):
            manifest.label = f"_$|{fusion}"
            manifest.training.seeds = {"init|": seed}

        return write_run(tmp_path / name, rows, fusion=fusion, change=change, **BARE)

    runs = [arm("a0", 0), arm("a1", 1), arm("b0", 0, "gated"), arm("b1", 1, "gated")]
    for argv in (runs[:3], [*runs[:2], "--vs", *runs[2:]]):
        code, _, err, _ = compare(*argv, "--out", "out")
        assert (code, err) == (Exit.OK, "")
        report = (tmp_path / "out/report.md").read_text(encoding="utf-8")
        tables_are_whole(report)
        assert f"| {ESCAPED} |" in report


# --- degenerate data -------------------------------------------------------------------------------------------


def overall(compare, tmp_path, d, clusters=None):
    base = [3] * len(d)
    a, b = two_runs(tmp_path, base, [x + 3 for x in d], clusters, **BARE)
    code, out, err, result = compare(a, b)
    assert (code, err) == (Exit.OK, "")
    estimate = result["overall"]
    assert estimate["verdict"] in out
    return estimate, {c["code"] for c in estimate["cautions"]}


def test_one_pair(compare, tmp_path):
    estimate, codes = overall(compare, tmp_path, [3])
    assert (estimate["estimate"], estimate["lo"], estimate["hi"], estimate["p"]) == (3, None, None, 1)
    assert (estimate["verdict"], codes) == ("inconclusive", {"single-pair"})


def test_few_pairs(compare, tmp_path):
    estimate, codes = overall(compare, tmp_path, [1, 2])
    assert (estimate["lo"], estimate["hi"], estimate["p"]) == (1, 2, 0.5)
    assert (estimate["verdict"], "few-pairs" in codes) == ("inconclusive", True)


def test_no_difference_anywhere(compare, tmp_path):
    estimate, codes = overall(compare, tmp_path, [0, 0, 0, 0, 0, 0])
    assert (estimate["lo"], estimate["hi"], estimate["p"]) == (0, 0, 1)
    assert (estimate["verdict"], codes) == ("identical", {"zero-variance"})


def test_one_difference_everywhere(compare, tmp_path):
    estimate, codes = overall(compare, tmp_path, [1, 1, 1, 1, 1, 1])
    assert (estimate["lo"], estimate["hi"], estimate["p"]) == (1, 1, 1 / 32)
    assert (estimate["verdict"], codes) == ("B better", {"few-units", "zero-variance"})


def test_a_cluster_error_of_zero(compare, tmp_path):
    estimate, codes = overall(compare, tmp_path, [1, 2, 0, -1, 3, 1, 0, 2, -2, 4], [0, 0, 0, 1, 1, 1, 2, 2, 3, 3])
    assert (estimate["lo"], estimate["p"], estimate["verdict"]) == (None, 0.125, "inconclusive")
    assert "zero-cluster-error" in codes


def test_one_cluster(compare, tmp_path):
    estimate, codes = overall(compare, tmp_path, [1, 2, 3], ["x", "x", "x"])
    assert (estimate["lo"], estimate["p"], estimate["verdict"]) == (None, 1, "inconclusive")
    assert codes == {"one-cluster"}


def test_a_data_set_without_pairs_is_shown_empty(compare, tmp_path):
    rows = prompts_of([1] * 30)
    a = write_run(tmp_path / "a", [*rows, prompt("x", 1, dataset="gone")], **BARE)
    b = write_run(tmp_path / "b", rows, **BARE)
    code, _, _, result = compare(a, b)
    assert code == Exit.OK
    gone = result["by_dataset"]["gone"]
    assert (gone["n_pairs"], gone["estimate"], gone["p"]) == (0, None, None)
    assert "| gone | — | — | — | — | — | — | 0 | 0 | — | — | inconclusive |" in (
        tmp_path / "reports/a-vs-b/report.md"
    ).read_text(encoding="utf-8")


# --- data that are used, with a warning, unless --strict -------------------------------------------------------


def test_nan_in_acceptance_loses_the_pair_and_lists_it(compare, tmp_path):
    a, b = two_runs(tmp_path, [1] * 30, [2] * 30, **BARE)

    def with_nan(table):
        values = table["accepted"].to_numpy().astype(float)
        values[4] = np.nan
        return table.set_column(table.schema.get_field_index("accepted"), "accepted", pa.array(values))

    edit_table(b, "acceptance", with_nan)
    code, out, err, result = compare(a, b)
    assert (code, err) == (Exit.OK, "")
    assert result["overall"]["n_pairs"] == 29
    (lost,) = result["pairs"]["lost"]
    assert lost["prompt_id"] == "p004"
    assert "pairs-lost" in {caution["code"] for caution in result["cautions"]} and "1 of 30" in out
    report = (tmp_path / "reports/one-vs-two/report.md").read_text(encoding="utf-8")
    assert f"* p004 (turn 0, sample 0): {lost['reason']}" in report
    assert "p004" in (tmp_path / "reports/one-vs-two/lost-pairs.csv").read_text()
    code, _, err, _ = compare(a, b, "--strict")
    assert code == Exit.DATA
    assert lost["reason"] in err and "--strict" in err


def test_integer_ids_pair_with_strings(compare, tmp_path):
    a = write_run(tmp_path / "a", [prompt(str(i), i % 3) for i in range(12)], **BARE)
    b = write_run(tmp_path / "b", [prompt(str(i), i % 4) for i in range(12)], **BARE)

    def as_integers(table):
        ids = pa.array([int(i) for i in table["prompt_id"].to_pylist()])
        return table.set_column(table.schema.get_field_index("prompt_id"), "prompt_id", ids)

    for name in ("prompts", "acceptance"):
        edit_table(b, name, as_integers)
    code, _, err, result = compare(a, b)
    assert (code, err) == (Exit.OK, "")
    assert result["overall"]["n_pairs"] == 12


def test_nan_gates_leave_the_section_out_with_a_warning(compare, tmp_path):
    a, _ = two_runs(tmp_path, [1, 2], [2, 3])
    b = write_run(tmp_path / "bad", prompts_of([2, 3]), fusion="gated", poison_gates=True)
    code, out, err, result = compare(a, b)
    assert (code, err) == (Exit.OK, "")
    (unusable,) = [caution for caution in result["cautions"] if caution["code"] == "gates-nan"]
    assert f"caution: {unusable['text']}" in out
    assert (result["arms"]["a"]["gates"], result["arms"]["b"]["gates"]) == (None, None)
    report = (tmp_path / "reports/one-vs-bad/report.md").read_text(encoding="utf-8")
    assert "contribution-share" not in report
    assert escape(unusable["text"]) in report
    code, _, err, _ = compare(a, b, "--strict")
    assert (code, err.count("\n")) == (Exit.DATA, 1)


def test_an_unknown_target_is_a_row(compare, tmp_path):
    a, _ = two_runs(tmp_path, [1, 2], [2, 3], **BARE)
    b = write_run(tmp_path / "imported", prompts_of([2, 3]), change=lambda m: setattr(m, "target", None), **BARE)
    code, _, err, result = compare(a, b)
    assert (code, err) == (Exit.OK, "")
    row = next(r for r in result["fairness"] if r["key"] == "target")
    assert (row["a"], row["b"], row["status"]) == ("toy-135m", None, "unknown")
    assert "| target | toy-135m | — | unknown |" in (tmp_path / "reports/one-vs-imported/report.md").read_text(
        encoding="utf-8"
    )
    code, _, err, _ = compare(a, b, "--strict")
    assert (code, "target" in err) == (Exit.DATA, True)


# --- bad input: one line, 65, and nothing overwritten ----------------------------------------------------------


def truncate(folder):
    part = Run.open(folder).manifest.tables["acceptance"][0]
    path = folder / part.file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def other_version(folder):
    path = folder / "run.json"
    path.write_text(path.read_text().replace('"schema_version": 2', '"schema_version": 3'))


def float_ids(table):
    ids = pa.array(np.arange(table.num_rows, dtype=float))
    return table.set_column(table.schema.get_field_index("prompt_id"), "prompt_id", ids)


BAD = {
    "missing run": (lambda b: [p.unlink() for p in b.rglob("*") if p.is_file()], "run.json"),
    "wrong schema version": (other_version, "schema_version is 3"),
    "truncated Parquet": (truncate, "acceptance.parquet"),
    "other target": (
        lambda b: write_run(b, prompts_of([2, 3, 4]), change=lambda m: setattr(m.target, "sha256", "9" * 64)),
        "target",
    ),
    "no common prompts": (lambda b: write_run(b, [prompt("x", 1)]), "pairs"),
    "low coverage": (lambda b: write_run(b, [prompt("p000", 1), prompt("y", 1)]), "33.3%"),
    "duplicates": (
        lambda b: write_run(b, [prompt("p000", 1), prompt("p000", 1), prompt("p001", 1)]),
        "p000",
    ),
    "dataset changed": (lambda b: write_run(b, prompts_of([2, 3, 4], dataset="other")), "dataset"),
    "unfinished": (
        lambda b: write_run(b, prompts_of([2, 3, 4]), change=lambda m: setattr(m.training, "status", "failed")),
        "failed",
    ),
    "float ids": (lambda b: edit_table(b, "prompts", float_ids), "'prompt_id' is double"),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_bad_input(compare, tmp_path, case):
    spoil, message = BAD[case]
    _, b = two_runs(tmp_path / "runs", [1, 2, 3], [2, 3, 4], **BARE)
    report = tmp_path / "reports" / "one-vs-two" / "report.md"
    report.parent.mkdir(parents=True)
    report.write_text("earlier report")
    spoil(b)
    for strict in ([], ["--strict"]):
        code, out, err, _ = compare("one", "two", *strict)
        assert (code, out, err.count("\n")) == (Exit.DATA, "", 1)
        assert err.startswith("draftlab: ")
        assert message in err
    assert [p.name for p in report.parent.iterdir()] == ["report.md"]
    assert report.read_text() == "earlier report"


def test_a_name_that_is_no_run(compare, tmp_path):
    two_runs(tmp_path / "runs", [1], [2], **BARE)
    code, _, err, _ = compare("one", "three")
    assert code == Exit.DATA
    assert "'three'" in err and "one, two" in err


@pytest.mark.parametrize("argv", [["one"], ["one", "two", "--min-coverage", "1.5"], ["one", "two", "--nonsense"]])
def test_usage(compare, argv, capsys):
    try:
        code = compare(*argv)[0]
    except SystemExit as stop:
        code = stop.code
    assert code == Exit.USAGE


def test_a_folder_that_cannot_be_written(compare, tmp_path):
    a, b = two_runs(tmp_path, [1, 2, 3], [2, 3, 4], **BARE)
    (tmp_path / "file").write_text("")
    code, out, err, _ = compare(a, b, "--out", "file")
    assert (code, out, err.count("\n")) == (Exit.USAGE, "", 1)
    assert "file" in err


def test_min_coverage_and_allow_incomplete_allow_it(compare, tmp_path):
    a, b = two_runs(tmp_path, [1, 2, 3], [2, 3, 4], **BARE)
    write_run(b, prompts_of([2, 3]), change=lambda m: setattr(m.training, "status", "running"), **BARE)
    write_run(a, [*prompts_of([1]), prompt("x", 1)], **BARE)
    code, _, _, result = compare(a, b, "--min-coverage", "0.5", "--allow-incomplete", "--protocol", "prefix")
    assert code == Exit.OK
    assert result["pairs"]["coverage"] == 0.5


# --- starting and stopping -------------------------------------------------------------------------------------


def test_help_and_wrong_calls_wait_for_no_library():
    script = (
        "import sys; from analysis.commands.compare import main\n"
        "from analysis.errors import run_command\n"
        "assert run_command(main, ['one']) == 64\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'numpy', 'pandas', 'scipy', 'matplotlib', 'jinja2', 'rich'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert f"--protocol {{{','.join(HEADLINES)}}}" in done.stdout


def test_an_interrupt_while_libraries_load_is_a_line_and_130():
    script = (
        "import sys; from analysis.commands.compare import main\n"
        "from analysis.errors import run_command\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'pandas': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "sys.exit(run_command(main, ['one', 'two']))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "draftlab: interrupted\n")


def test_html_is_one_file_beside_the_report(compare, tmp_path):
    a, b = two_runs(tmp_path / "runs", [1, 2, 3], [1, 3, 3], **BARE)
    code, out, _, _ = compare(a, b, "--out", "out", "--html")
    assert code == Exit.OK and out.splitlines()[-1] == "page: out/report.html"
    assert (tmp_path / "out" / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("protocol", "row"),
    [
        ("generate", {"accepted": [1000]}),  # of 7 drafted
        ("prefix", {"accepted": [9]}),
    ],
)
def test_impossible_counts_are_refused_as_by_check(compare, tmp_path, protocol, row):
    sound = [prompt(f"p{i}", [1, 2] if protocol == "generate" else 1) for i in range(8)]
    a = write_run(tmp_path / "a", sound, protocol=protocol, **BARE)
    wrong = {**sound[0], **row}
    b = write_run(tmp_path / "b", [wrong, *sound[1:]], protocol=protocol, **BARE)
    assert run_command(check, [str(b)]) == Exit.DATA
    code, _, err, result = compare(a, b)
    assert (code, result) == (Exit.DATA, None) and "impossible counts" in err and "p0" in err


def test_what_can_turn_the_conclusion_stands_beside_it(compare, tmp_path):
    """Pooled, B is ahead by its steps on the easy data set; with data sets weighing the same it is behind."""

    def rows(easy, hard, many):
        return [prompt(f"e{i}", [easy] * many, dataset="easy") for i in range(9)] + [
            prompt(f"h{i}", [hard] * 4, dataset="hard") for i in range(9)
        ]

    a = write_run(tmp_path / "a", rows(5, 1, 2), protocol="generate", **BARE)
    b = write_run(tmp_path / "b", rows(4, 1, 20), protocol="generate", **BARE)
    code, out, _, _ = compare(a, b, "--out", "out")
    assert code == Exit.OK and "Simpson" in out.splitlines()[1]
    report = Path("out/report.md").read_text(encoding="utf-8")
    assert "Caution: Simpson" in report[: report.index("## Overall")]


def test_outputs_that_cannot_both_match_the_baseline(compare, tmp_path):
    runs = [
        write_run(
            tmp_path / name,
            [prompt(f"p{i}", [1, 2], output_hash=f"{i}{h}", matches_baseline=i < 3) for i in range(6)],
            protocol="generate",
            **BARE,
        )
        for name, h in (("a", ""), ("b", "x"))
    ]
    _, out, _, _ = compare(*runs, "--out", "out")
    result = json.loads(Path("out/result.json").read_text(encoding="utf-8"))
    assert [c["code"] for c in result["cautions"]].count("claims-disagree") == 1
    assert (result["outputs"]["claimed"], result["outputs"]["same"]) == (3, 0)
    assert "3 of 6" in out
