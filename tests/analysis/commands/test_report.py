"""The plan and its reports; figures and CSV; Markdown that holds any name."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from analysis.commands.report import main, read_plan
from analysis.comparison.pairwise import compare_runs
from analysis.errors import Exit, run_command
from analysis.report.answers import headline
from analysis.report.markdown import escape, table
from analysis.report.plots.everything import NAMES, draw_all
from analysis.report.plots.style import ARM_COLOURS, csv, png, svg
from analysis.report.result import to_json
from analysis.wording import one_line
from tests.analysis.runs import prompts_of, study, two_runs, write_run

ROOT = Path(__file__).parents[3]
BARE = {"gates": False, "history": False}


@pytest.fixture
def report(tmp_path, monkeypatch, capsys):
    (tmp_path / "runs").mkdir()
    (tmp_path / "reports").mkdir()
    monkeypatch.chdir(tmp_path)

    def call(*entries, argv=()):
        if entries:
            Path("reports/plan.yaml").write_text(yaml.safe_dump({"comparisons": list(entries)}))
        code = run_command(main, list(argv))
        return code, *capsys.readouterr()

    return call


# --- the plan --------------------------------------------------------------------------------------------------


def test_a_plan_is_written_and_the_rest_is_named(report, tmp_path):
    two_runs(tmp_path / "runs", [1, 2, 3], [2, 3, 4], **BARE)
    running = {"change": lambda m: setattr(m.training, "status", "running"), **BARE}
    write_run(tmp_path / "runs" / "half", prompts_of([1, 2, 3]), **running)
    write_run(tmp_path / "runs" / "spare", prompts_of([1, 2, 3]), **BARE)
    code, out, err = report(
        {"a": "one", "b": "two", "name": "A title | with a bar", "question": "Is it?"}, {"a": "one", "b": "half"}
    )
    assert (code, err) == (Exit.OK, "")
    first, second, rest = out.splitlines()
    assert first == "[1/2] one vs two: inconclusive; reports/one-vs-two/report.md"
    assert second.startswith("[2/2] one vs half: ") and "half is running" in second
    assert rest.endswith(": spare")
    assert not (tmp_path / "reports" / "one-vs-half").exists()
    text = (tmp_path / "reports/one-vs-two/report.md").read_text(encoding="utf-8")
    assert text.startswith("# A title \\| with a bar\n\n*Is it?*\n\n**")


def test_a_comparison_that_fails_does_not_stop_the_others(report, tmp_path):
    two_runs(tmp_path / "runs", [1, 2, 3], [2, 3, 4], **BARE)
    code, _, err = report({"a": "one", "b": "gone"}, {"a": "one", "b": "two"})
    assert code == Exit.DATA
    assert "1 of 2" in err and "one vs gone" in err and "'gone'" in err
    assert (tmp_path / "reports/one-vs-two/result.json").exists()


def test_a_plan_may_list_controls_several_arms_and_several_seeds(report, tmp_path):
    for arm, fusion in (("a", "concat"), ("b", "gated")):
        for seed in range(2):
            change = {"change": lambda m, seed=seed: m.training.seeds.update(init=seed)}
            write_run(tmp_path / f"runs/{arm}{seed}", prompts_of([1, 2, 3]), fusion=fusion, **change, **BARE)
    code, out, err = report(
        {"a": "a0", "b": "b0", "controls": ["b1"], "margin": 0.5, "hypothesis": "it helps"},
        {"a": "a0", "b": ["a1", "b0"], "name": "Arms"},
        {"a": ["a0", "a1"], "b": ["b0", "b1"], "question": "Another seed?"},
    )
    assert (code, err) == (Exit.OK, "")
    assert out.splitlines() == [
        "[1/3] a0 vs b0: identical; reports/a0-vs-b0/report.md",
        "[2/3] a0 vs a1, b0: identical, identical; reports/a0-vs-a1-and-b0/report.md",
        "[3/3] a0, a1 vs b0, b1: inconclusive; reports/a0-x2-vs-b0-x2/report.md",
    ]
    result = json.loads((tmp_path / "reports/a0-vs-b0/result.json").read_text(encoding="utf-8"))
    assert [control["name"] for control in result["controls"]] == ["b1"]
    arms = (tmp_path / "reports/a0-vs-a1-and-b0/report.md").read_text(encoding="utf-8")
    assert arms.startswith("# Arms\n")
    assert "*Another seed?*" in (tmp_path / "reports/a0-x2-vs-b0-x2/report.md").read_text(encoding="utf-8")


def test_no_plan(report):
    code, _, err = report()
    assert (code, err.count("\n")) == (Exit.USAGE, 1)
    assert "reports/plan.yaml" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("comparisons: [{a: one}]", "comparisons.0.b: Field required"),
        ("comparisons: [{a: one, b: two, titel: x}]", "comparisons.0.titel"),
        ("- a: one", "the file"),
        ("", "the file"),
        ("{", "not YAML"),
    ],
)
def test_a_wrong_plan_names_the_field(report, text, message):
    Path("reports/plan.yaml").write_text(text)
    code, _, err = report()
    assert (code, err.count("\n")) == (Exit.DATA, 1)
    assert message in err


def test_the_shipped_plan_reads():
    assert read_plan(ROOT / "reports" / "plan.yaml").comparisons


def test_writing_again_gives_the_same_bytes(report, tmp_path):
    two_runs(tmp_path / "runs", [1, 2, 3, 0, 5, 6, 7], [2, 3, 4, 0, 5, 5, 7], **BARE)

    def contents():
        return {p: p.read_bytes() for p in (tmp_path / "reports").rglob("*") if p.is_file()}

    report({"a": "one", "b": "two"})
    first = contents()
    report()
    assert contents() == first


# --- figures ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    return compare_runs(*study(tmp_path_factory.mktemp("study")))


def test_every_figure_is_drawn_with_its_data(comparison):
    plots = draw_all(comparison)
    assert [plot.name for plot in plots] == [
        name for name in NAMES if name not in ("speed", "throughput", "acceptance-by-context", "recall")
    ]
    for plot in plots:
        assert len(plot.data)
        assert plot.caption.endswith(".")
    by_name = {plot.name: plot.data for plot in plots}
    assert by_name["paired-differences"]["difference"].mean() == pytest.approx(comparison.overall.estimate)
    assert by_name["forest"]["subset"].tolist() == ["overall", *comparison.by_dataset]


def test_figures_are_the_same_bytes_and_hold_no_date_or_version(comparison):
    first, again = draw_all(comparison)[1], draw_all(comparison)[1]
    assert svg(first.figure) == svg(first.figure)  # saving does not move the layout
    assert png(first.figure) == png(again.figure)
    assert svg(again.figure) == svg(first.figure)
    assert b"Matplotlib" not in png(first.figure)
    assert b"<dc:date>" not in svg(first.figure)


def test_an_arm_has_one_colour_everywhere(comparison):
    arms = set()
    for plot in draw_all(comparison):
        if plot.name in ("survival", "contribution-share", "training-curves"):
            for axes in plot.figure.axes:
                handles, labels = axes.get_legend_handles_labels()
                for handle, label in zip(handles, labels, strict=True):
                    line = handle if hasattr(handle, "get_color") else handle[0]
                    if label[:2] in ("A:", "B:"):  # others name line styles
                        arms.add(label[0])
                        assert line.get_color() == ARM_COLOURS[label[0]]
    assert arms == {"A", "B"}


def test_csv_has_fixed_line_ends_and_digits():
    assert csv(pd.DataFrame({"a": ["x,\n"], "b": [1 / 3]})) == 'a,b\n"x,\n",0.333333\n'


# --- text ------------------------------------------------------------------------------------------------------


@given(st.text())
def test_escaping_loses_nothing_and_leaves_no_markup(text):
    escaped = escape(text)
    bare = "".join(
        c for i, c in enumerate(escaped) if c != "\\" or (i and escaped[i - 1] == "\\" and pairs(escaped, i))
    )
    assert bare == one_line(text)
    assert "\n" not in escaped
    for i, c in enumerate(escaped):
        if c in "|`*_[]<$":
            assert escaped[i - 1] == "\\"


def pairs(text, i):
    """Whether the backslash at ``i`` is the escaped one of its pair."""
    run = 0
    while i - run >= 0 and text[i - run] == "\\":
        run += 1
    return run % 2 == 0


def test_a_table():
    assert table(["name", "n"], [("a|b", None), ("c", 3)], numeric=1) == (
        "| name | n |\n| --- | ---: |\n| a\\|b | — |\n| c | 3 |"
    )


def test_json_is_strict_and_whole(comparison):
    result = json.loads(to_json(comparison), parse_constant=pytest.fail)
    assert result["overall"]["estimate"] == pytest.approx(comparison.overall.estimate, rel=1e-11)
    assert set(result["by_dataset"]) == set(comparison.by_dataset)
    assert result["overall"]["estimand"] == "accepted_length"
    assert {row["layer"] for row in result["arms"]["b"]["gates"]} == {2, 9, 15, 21, 28}


def test_the_headline_says_who_is_better(comparison, tmp_path):
    a, b = two_runs(tmp_path, [1] * 8, [0] * 8, **BARE)
    line = headline(compare_runs(a, b))
    assert line.index("DFlash (A)") < line.index("DynaDFlash (B)")  # the better one first
    assert all(value in line for value in ("2.000", "1.000", "-1.000 to -1.000", "p = 0.00781", "8 prompts"))
    itself = headline(compare_runs(a, a))
    assert "DFlash (A)" in itself and "DFlash (B)" in itself and "DynaDFlash" not in itself
