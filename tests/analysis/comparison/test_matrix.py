"""More than two arms, each against the first, as one family."""

from __future__ import annotations

import json

import pytest

from analysis.comparison.matrix import compare_many
from analysis.errors import Exit, UsageError, run_command
from analysis.report.sections.study import matrix_headline
from analysis.stats.families import holm
from tests.analysis.runs import simulated, write_run

BARE = {"gates": False, "history": False}
DATASETS = {"sums": (80, 80), "words": (60, 20)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("arms")
    first, better = simulated(DATASETS, effect=0.9, seed=1)
    _, same = simulated(DATASETS, effect=0.0, seed=1)
    return [
        write_run(root / "first", first, **BARE),
        write_run(root / "better", better, fusion="gated", **BARE),
        write_run(root / "same", same, fusion="gated", change=lambda m: setattr(m, "label", "Same|again"), **BARE),
    ]


@pytest.fixture(scope="module")
def matrix(runs):
    return compare_many(runs)


def test_one_family_over_arms_and_one_over_arms_and_data_sets(matrix):
    assert [c.b.name for c in matrix.comparisons] == ["better", "same"]
    assert [e.p_adjusted for e in matrix.overall] == holm([c.overall.p for c in matrix.comparisons])
    cells = [e for each in matrix.by_dataset for e in each.values()]
    assert {e.family_size for e in cells} == {4}
    alone = [e.p for c in matrix.comparisons for e in c.by_dataset.values()]
    assert [e.p_adjusted for e in cells] == holm(alone)
    assert [e.subset for e in cells] == ["sums", "words", "sums", "words"]
    # each comparison keeps its own family
    assert {e.family_size for c in matrix.comparisons for e in c.by_dataset.values()} == {2}


def test_all_arms_against_each_other(matrix):
    ranking = matrix.ranking
    assert set(ranking.arms) == {"DFlash", "DynaDFlash", "Same|again"}
    assert ranking.arms[0] == "DynaDFlash" and ranking.letters[0] == "a"
    assert len(ranking.pairs) == 3
    assert {p.estimate.family_size for p in ranking.pairs} == {3}
    # over the same prompts a pair with the first arm is the comparison with it, but for its family
    alone = {c.b.label: c.overall for c in matrix.comparisons}
    for p in ranking.pairs:
        names = ranking.arms[p.first], ranking.arms[p.second]
        if names[1] == "DFlash":
            assert p.estimate.estimate == pytest.approx(alone[names[0]].estimate)
            assert p.estimate.p == pytest.approx(alone[names[0]].p)


def test_a_frame_and_markdown(matrix):
    frame = matrix.to_frame()
    assert len(frame) == 2 * 3
    assert frame["verdict"].tolist()[0] == "B better"
    text = matrix.to_markdown()
    assert "better: DynaDFlash" in matrix_headline(matrix)
    assert "Same\\|again" in text
    assert "| arm | mean | letters | place 1 | place 2 | place 3 |" in text
    with pytest.raises(UsageError, match="two runs"):
        compare_many(["one"])
    with pytest.raises(UsageError, match="two runs"):
        compare_many("one")


def test_through_the_command(runs, tmp_path, monkeypatch, capsys):
    from analysis.commands.compare import main

    monkeypatch.chdir(tmp_path)
    assert run_command(main, [*map(str, runs), "--margin", "0.3"]) == Exit.OK
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "report: reports/first-vs-better-and-same/report.md"
    folder = tmp_path / "reports" / "first-vs-better-and-same"
    names = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert {"report.md", "result.json", "figures/arms.png", "figures/arms.svg", "figures/arms.csv"} <= names
    assert {"first-vs-better/report.md", "first-vs-same/result.json"} <= names
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert "(first-vs-better/report.md)" in report
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert [p["first"] for p in result["ranking"]["pairs"]] == [0, 0, 1]
    assert (result["kind"], [arm["name"] for arm in result["arms"]]) == ("matrix", ["better", "same"])
    assert run_command(main, [*map(str, runs), "--fail-if", "delta<0"]) == Exit.USAGE
    assert run_command(main, [str(runs[0])]) == Exit.USAGE
