"""Degenerate data, declarations and rules through ``python -m analysis.compare``; importing costs nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from analysis.commands.compare import main
from analysis.errors import Exit, run_command
from analysis.report.markdown import escape
from tests.analysis.runs import prompt, prompts_of, study, two_runs, write_run

ROOT = Path(__file__).parents[3]
BARE = {"gates": False, "history": False}


@pytest.fixture
def compare(tmp_path, monkeypatch, capsys):
    """Call the command on differences per prompt; gives exit code, stdout, and the result if there is one."""
    monkeypatch.chdir(tmp_path)

    def call(d, *argv, clusters=None):
        a, b = two_runs(tmp_path, [3] * len(d), [3 + x for x in d], clusters, **BARE)
        try:
            code = run_command(main, [str(a), str(b), *argv])
        except SystemExit as error:
            code = error.code
        results = sorted(tmp_path.glob("reports/*/result.json"))
        return code, capsys.readouterr().out, json.loads(results[0].read_text("utf-8")) if results else None

    return call


# --- the rows of degenerate data, with a margin ------------------------------------------------------------------

D = [1, 2, 0, -1, 3, 1, 0, 2, -2, 3]
ROWS = {
    # differences, clusters, margin: verdict, cautions, whether the two one-sided tests are defined
    "one pair": ([0], None, "9", "inconclusive", {"single-pair"}, False),
    "five pairs": ([0, 1, 0, -1, 0], None, "9", "inconclusive", {"few-pairs"}, False),
    "no difference, five pairs": ([0] * 5, None, "0.1", "identical", {"zero-variance"}, False),
    "no difference, six pairs": ([0] * 6, None, "0.1", "identical", {"zero-variance", "no-range"}, True),
    "no difference, three clusters": ([0] * 9, [0, 1, 2] * 3, "0.1", "identical", {"zero-variance"}, False),
    "one difference, inside": ([1] * 8, None, "1.5", "equivalent",
                               {"few-units", "zero-variance", "inside-margin"}, True),
    "one difference, outside": ([1] * 8, None, "0.5", "B better", {"few-units", "zero-variance"}, True),
    "one cluster": (D, [0] * 10, "9", "inconclusive", {"one-cluster"}, False),
    "cluster error of zero": ([1, 2, 0, -1, 3, 1, 0, 2, -2, 4], [0, 0, 0, 1, 1, 1, 2, 2, 3, 3], "9", "inconclusive",
                              {"few-clusters", "zero-cluster-error"}, False),
    "enough": ([0, 1, -1, 0, 0, 0, 1, -1] * 8, None, "0.5", "equivalent", set(), True),
}  # fmt: skip


@pytest.mark.parametrize("row", sorted(ROWS))
def test_degenerate_rows_with_a_margin(compare, row):
    d, clusters, margin, verdict, codes, defined = ROWS[row]
    code, out, result = compare([x if abs(x) < 4 else 4 for x in d], "--margin", margin, clusters=clusters)
    overall = result["overall"]
    assert (code, overall["verdict"]) == (Exit.OK, verdict)
    assert {c["code"] for c in overall["cautions"]} - {"p-without-interval", "interval-without-p"} == codes
    assert (overall["equivalence"] is not None) == defined
    if defined:
        assert 0 < overall["equivalence"]["p"] <= 1
    assert verdict in out
    report = Path("reports/one-vs-two/report.md").read_text(encoding="utf-8")
    assert f" {float(margin):g} tokens " in report


def test_a_dataset_without_pairs_has_no_equivalence(compare, tmp_path, capsys):
    rows = prompts_of([1] * 30)
    a = write_run(tmp_path / "a", [*rows, prompt("x", 1, dataset="gone")], **BARE)
    b = write_run(tmp_path / "b", rows, **BARE)
    assert run_command(main, [str(a), str(b), "--margin", "0.5"]) == Exit.OK
    assert "| gone | — | — | — | not defined |" in Path("reports/a-vs-b/report.md").read_text(encoding="utf-8")


# --- the gate for continuous integration ---------------------------------------------------------------------------

WORSE = [-1] * 30 + [0] * 10


@pytest.mark.parametrize(
    ("rules", "code", "word"),
    [
        (["delta<-0.05"], Exit.RULE_FAILED, "failed"),
        (["delta<-2"], Exit.OK, "passed"),
        (["delta<-0.75"], Exit.INCONCLUSIVE, "inconclusive"),
        (["delta<-2", "delta<-0.75"], Exit.INCONCLUSIVE, "inconclusive"),
        (["delta<-2", "delta[sums]<-0.05"], Exit.RULE_FAILED, "failed"),
    ],
)
def test_a_rule_decides_the_exit_code(compare, rules, code, word):
    found, out, result = compare(WORSE, *(part for rule in rules for part in ("--fail-if", rule)))
    assert found == code
    assert f"rule {rules[-1]}: {word} " in out and "-0.875 to -0.600" in out
    assert result["overall"]["verdict"] == "A better"  # the report is written whatever the rule says


def test_a_rule_in_a_process_of_its_own(tmp_path):
    a, b = two_runs(tmp_path, [3] * 40, [3 + x for x in WORSE], **BARE)
    command = [sys.executable, "-m", "analysis.compare", str(a), str(b), "--out", str(tmp_path / "out"), "--fail-if"]
    done = [
        subprocess.run([*command, rule], cwd=ROOT, capture_output=True, text=True) for rule in ("delta<0", "delta>0")
    ]
    assert [d.returncode for d in done] == [1, 0]
    assert [d.stderr for d in done] == ["", ""]  # no warning of the import machinery either


@pytest.mark.parametrize("rule", ["delta", "tau<1", "delta[nowhere]<1"])
def test_a_rule_that_is_none_is_a_wrong_call(compare, rule):
    assert compare(WORSE, "--fail-if", rule)[0] == Exit.USAGE


# --- declarations --------------------------------------------------------------------------------------------------


def test_hypothesis_metric_and_role_are_shown(compare, tmp_path, capsys):
    rows = [*prompts_of([1, 2, 3, 4, 5, 6, 7]), prompt("other", 1, dataset="words")]
    a, b = write_run(tmp_path / "a", rows, **BARE), write_run(tmp_path / "b", rows, **BARE)
    call = [str(a), str(b), "--hypothesis", "gates | help", "--metric", "accepted_length"]
    assert run_command(main, [*call, "--dataset", "sums"]) == Exit.OK
    out = capsys.readouterr().out
    result = json.loads((tmp_path / "reports/a-vs-b/result.json").read_text("utf-8"))
    assert (result["declaration"]["hypothesis"], result["declaration"]["picked"]) == ("gates | help", ["sums"])
    assert (result["declaration"]["metric_declared"], result["declaration"]["roles"]) == (True, {"not recorded": 7})
    (post_hoc,) = [caution["text"] for caution in result["cautions"] if caution["code"] == "post-hoc"]
    assert post_hoc in out
    report = Path("reports/a-vs-b/report.md").read_text(encoding="utf-8")
    assert "*gates \\| help*" in report
    assert escape(post_hoc) in report
    # all data sets are no subset
    assert run_command(main, [*call, "--dataset", "sums", "--dataset", "words"]) == Exit.OK
    assert post_hoc not in capsys.readouterr().out
    result = json.loads((tmp_path / "reports/a-vs-b/result.json").read_text("utf-8"))
    assert "post-hoc" not in {caution["code"] for caution in result["cautions"]}


@pytest.mark.parametrize(
    "wrong", [["--margin", "0"], ["--margin", "x"], ["--metric", "tau_mean", "--protocol", "prefix"]]
)
def test_wrong_declarations(compare, wrong):
    assert compare(D, *wrong)[0] == Exit.USAGE


def test_small_or_inconclusive_data_say_what_they_could_have_shown(compare):
    _, out, result = compare(D)
    mde = result["overall"]["mde"]
    assert f"{mde:.3f}" in out
    assert compare([0, 1, 2])[2]["overall"]["mde"] is None


# --- importing -------------------------------------------------------------------------------------------------


def test_importing_the_package_loads_nothing_and_offers_compare_runs():
    script = (
        "import sys, analysis\n"
        "assert {'compare_runs', 'compare_many', 'compare_seeds'} <= set(dir(analysis))\n"
        "assert not {'pandas', 'numpy', 'matplotlib', 'pyarrow'} & set(sys.modules)\n"
        "from analysis import compare_runs\n"
        "import analysis.comparison.entry\n"
        "assert compare_runs is analysis.comparison.entry.compare_runs\n"
        "from analysis import *\n"
        "assert (compare_many.__name__, compare_seeds.__name__) == ('compare_many', 'compare_seeds')\n"
        "assert not {'torch', 'drafters', 'matplotlib.pyplot', 'seaborn'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_comparison_shows_itself(tmp_path):
    from analysis import compare_runs

    comparison = compare_runs(*study(tmp_path))
    short, whole = comparison._repr_markdown_(), comparison.to_markdown()
    assert short.startswith("**DynaDFlash (B) ")
    assert whole.startswith("# DynaDFlash ")
    assert all(f"figures/{plot.name}.png" in whole for plot in comparison.figures())
    assert comparison.figures()[0]._repr_png_().startswith(b"\x89PNG")


# --- the published result --------------------------------------------------------------------------------------


def test_the_arithmetic_of_the_published_comparison(compare):
    # n = 700, mean difference 0.15, interval 0.07 to 0.22: so the standard deviation is near 0.08 * sqrt(700) / 1.96
    d = np.repeat([-3, -2, -1, 0, 1, 2, 3], [10, 23, 99, 362, 149, 42, 15])
    assert (d.size, round(d.mean(), 2), round(d.std(), 2)) == (700, 0.15, 1.01)
    _, _, result = compare(d.tolist())
    overall = result["overall"]
    assert (round(overall["lo"], 2), round(overall["hi"], 2)) == (0.07, 0.22)
    assert overall["p"] < 0.001
    assert overall["verdict"] == "B better"
