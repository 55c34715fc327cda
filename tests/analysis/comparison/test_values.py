"""One number per prompt: from tables and DataFrames, by the methods of their data, under the user's own name."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis import compare_runs
from analysis.commands.compare import main
from analysis.errors import DataError, Exit, UsageError, run_command
from analysis.importers.values import lone_value
from analysis.stats import flips
from tests.analysis.runs import prompts_of, two_runs, write_run

BARE = {"gates": False, "history": False}


def frames(a, b, column="accepted_length", **more):
    ids = [f"p{i:03d}" for i in range(len(a))]
    return [pd.DataFrame({"prompt_id": ids, column: values, **more}) for values in (a, b)]


def csvs(folder, a, b, column="accepted_length", **more):
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, frame in zip(("oak", "elm"), frames(a, b, column, **more), strict=True):
        frame.to_csv(folder / f"{name}.csv", index=False)
        paths.append(str(folder / f"{name}.csv"))
    return paths


@pytest.fixture
def lengths():
    rng = np.random.default_rng(0)
    a = rng.integers(1, 9, 60)
    return a.tolist(), np.clip(a + rng.integers(-1, 3, 60), 1, 8).tolist()


def test_integers_are_those_of_the_prefix_protocol(tmp_path, lengths):
    """The same counts as a run of first blocks, where accepted length is 1 + accepted: equal to the last digit."""
    a, b = lengths
    of_runs = compare_runs(*two_runs(tmp_path, [x - 1 for x in a], [x - 1 for x in b], **BARE)).overall
    found = compare_runs(*frames(a, b), value="accepted_length").overall
    for name in ("estimate", "lo", "hi", "p", "mean_a", "mean_b", "verdict", "method", "mde"):
        assert getattr(found, name) == getattr(of_runs, name), name
    assert found.method == "exact"


def test_floats_go_through_the_t(lengths):
    a, b = (np.log(np.asarray(x, dtype=float)) for x in lengths)
    found = compare_runs(*frames(a, b, "latency"), value="latency", unit="s")
    test = stats.ttest_rel(b, a)
    assert (found.overall.method, found.overall.p) == ("cluster t", pytest.approx(test.pvalue))
    assert (found.overall.lo, found.overall.hi) == pytest.approx(tuple(test.confidence_interval()))
    # more latency is worse, so the arm with less is better
    assert found.overall.estimate > 0 and found.overall.verdict == "A better"
    assert found.estimand.name == "latency" and "latency" in repr(found) and "1.465 s," in repr(found)


def test_a_log_of_one_step_per_prompt_is_integers(tmp_path, lengths):
    a, b = ([[x - 1] for x in values] for values in lengths)
    runs = [
        write_run(tmp_path / name, prompts_of(accepted), protocol="generate", **BARE)
        for name, accepted in (("a", a), ("b", b))
    ]
    found = compare_runs(*runs).overall
    d = np.subtract(lengths[1], lengths[0])
    assert found.method == "exact"
    assert found.p == flips.sign_flip_p(d)


def test_the_direction_must_be_known():
    arms = frames([1.5, 2.5, 3.0], [2.5, 3.5, 1.0], "zeta")
    with pytest.raises(UsageError, match="zeta"):
        compare_runs(*arms, value="zeta")
    assert compare_runs(*arms, value="zeta", higher_is="better").higher_is == "better"


def test_the_command_finds_the_only_column(tmp_path, capsys, lengths):
    paths = csvs(tmp_path, *lengths, dataset=["x", "y"] * 30)
    out = tmp_path / "out"
    assert run_command(main, [*paths, "--out", str(out)]) == Exit.OK
    told = capsys.readouterr().out
    result = json.loads((out / "result.json").read_text())
    assert (result["kind"], result["estimand"]["key"], result["overall"]["method"]) == (
        "values", "accepted_length", "exact"
    )  # fmt: skip
    assert set(result["by_dataset"]) == {"x", "y"} and "oak" in told
    for name in ("paired-differences", "forest"):
        assert (out / "figures" / f"{name}.png").exists()
    python = compare_runs(*paths, value="accepted_length")
    assert result["overall"]["p"] == pytest.approx(python.overall.p)


def test_a_wide_table_and_json_lines_give_the_same(tmp_path, lengths):
    a, b = lengths
    wide = tmp_path / "wide.csv"
    pd.DataFrame({"prompt_id": range(60), "oak": a, "elm": b}).to_csv(wide, index=False)
    arguments = [str(wide), "--value", "oak", "--value", "elm", "--higher-is", "better"]
    assert run_command(main, [*arguments, "--out", str(tmp_path / "w")]) == Exit.OK
    lines = []
    for name, values in (("oak", a), ("elm", b)):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"id": i, "n": v}) + "\n" for i, v in enumerate(values)))
        lines.append(str(path))
    assert run_command(main, [*lines, "--value", "n", "--higher-is", "better", "--out", str(tmp_path / "l")]) == Exit.OK
    found = [json.loads((tmp_path / d / "result.json").read_text()) for d in ("w", "l")]
    assert found[0]["overall"]["p"] == found[1]["overall"]["p"]
    assert [r["label_b"] for r in found] == ["elm", "elm"]


def test_a_rule_judges_a_value(tmp_path, lengths):
    paths = csvs(tmp_path, *lengths)
    out = ["--out", str(tmp_path / "out")]
    assert run_command(main, [*paths, *out, "--fail-if", "delta<0"]) == Exit.OK
    assert run_command(main, [*paths, *out, "--fail-if", "delta>0"]) == Exit.RULE_FAILED
    assert run_command(main, [*paths, *out, "--fail-if", "delta<5"]) == Exit.RULE_FAILED


def test_rows_without_ids_pair_by_their_order_and_it_is_said():
    a, b = [pd.DataFrame({"tau": x}) for x in ([1.5, 2.0, 2.5], [2.5, 2.5, 3.5])]
    found = compare_runs(a, b, value="tau")
    assert "values-by-order" in [c.code for c in found.cautions]
    assert found.overall.estimate == pytest.approx(2.5 / 3)
    with pytest.raises(UsageError, match="3 against 2 rows"):
        compare_runs(a, b.iloc[:2], value="tau")


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([{"prompt_id": "x", "tau": 1.0}, {"prompt_id": "x", "tau": 2.0}], "'x' has 2 values"),
        ([{"prompt_id": "x", "tau": "fast"}], "'fast', not a number"),
        ([{"prompt_id": "x", "tau": float("inf")}], "not a number"),
        ([{"prompt_id": 0.5, "tau": 1.0}], "prompt_id"),
    ],
)
def test_bad_tables_are_refused(rows, told):
    with pytest.raises(DataError, match=told):
        compare_runs(pd.DataFrame(rows), pd.DataFrame(rows), value="tau")


def test_missing_values_lose_their_pair_and_are_set_beside_the_others():
    a = list(map(float, range(40)))
    b = [None if i > 36 else x + 1 for i, x in enumerate(a)]
    with pytest.raises(DataError, match="larger run"):
        compare_runs(*frames(a, b, "tau"), value="tau")
    found = compare_runs(*frames(a, b, "tau"), value="tau", min_coverage=0.9)
    (m,) = found.missing
    assert (m.lost, m.mean_lost) == (3, 38.0) and m.differs
    assert found.full_set.lo < found.overall.estimate < found.full_set.hi or found.full_set.lo < 1


def test_ids_stay_what_they_are(tmp_path):
    """007 is another prompt than 7; 7.0 of a float column is 7."""
    (tmp_path / "a.csv").write_text("prompt_id,tau\n007,1\n7,2\n8,3\n")
    (tmp_path / "b.csv").write_text("prompt_id,tau\n7,3\n007,1\n8,4\n")
    found = compare_runs(tmp_path / "a.csv", tmp_path / "b.csv", value="tau")
    assert found.pairs.frame["tokens_b"].tolist() == [1, 3, 4]


def test_log_files_in_python(tmp_path):
    from tests.analysis.importers import logs

    path = logs.write(tmp_path, "answers.jsonl")
    found = compare_runs(path, path)
    assert str(found.overall.verdict) == "identical" and found.to_markdown()


@pytest.mark.parametrize(
    ("name", "text", "column"),
    [
        ("t.csv", "prompt_id,tau\nx,1\n", "tau"),
        ("t.tsv", "id\tdataset\tlatency\nx\ta\t1.5\n", "latency"),
        ("t.jsonl", '{"id": 1, "n": 2}\n{"id": 2, "n": 3}\n', "n"),
        ("t.json", '[{"id": 1, "n": 2}, {"id": 2, "n": 3}]', "n"),
        ("two.csv", "prompt_id,tau,speed\nx,1,2\n", None),
        ("none.csv", "tau\n1\n", None),
        ("words.csv", "prompt_id,text\nx,hello\n", None),
        ("log.txt", "draft acceptance = 0.5 (1 accepted / 2 generated)\n", None),
        ("empty.csv", "", None),
    ],
)
def test_the_only_column_of_numbers_is_found(tmp_path, name, text, column):
    (tmp_path / name).write_text(text)
    assert lone_value(tmp_path / name) == column


@pytest.mark.parametrize("ids", ["prompt", None])
def test_the_arms_of_a_wide_table_share_its_rows_so_their_order_is_no_guess(tmp_path, lengths, monkeypatch, ids):
    a, b = lengths
    table = pd.DataFrame({"A": a, "B": b})
    if ids:
        table.insert(0, ids, [f"question {i}" for i in range(len(a))])
    table.to_csv(tmp_path / "wide.csv", index=False)
    monkeypatch.chdir(tmp_path)
    assert run_command(main, ["wide.csv", "--value", "A", "--value", "B", "--higher-is", "better"]) == Exit.OK
    result = json.loads((tmp_path / "reports" / "A-vs-B" / "result.json").read_text())
    assert "values-by-order" not in {c["code"] for c in result["cautions"]}
    assert result["overall"]["n_pairs"] == len(a)
