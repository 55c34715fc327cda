"""Loading and pairing: no pair is lost without a reason, and none is made that is not one."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.errors import DataError
from analysis.runlog.load import NO_VALUE, Evaluated, load, protocols
from analysis.runlog.pairing import pair
from analysis.runlog.reading import Run
from tests.analysis.runs import prompt, prompts_of, write_run


def arm(folder, prompts, protocol="prefix", **more):
    return load(Run.open(write_run(folder, prompts, protocol=protocol, gates=False, history=False, **more)), protocol)


def reasons(pairs):
    return dict(zip(pairs.lost["prompt_id"], pairs.lost["reason"], strict=True))


def test_prefix_counts_the_first_token(tmp_path):
    prompts = arm(tmp_path / "a", prompts_of([0, 7, 3])).prompts
    assert prompts["tokens"].tolist() == [1, 8, 4]
    assert prompts["steps"].tolist() == [1, 1, 1]


def test_generate_sums_over_steps(tmp_path):
    evaluated = arm(tmp_path / "a", prompts_of([[2, 0, 7], [1], []]), "generate")
    assert evaluated.prompts["tokens"].tolist()[:2] == [3 + 1 + 8, 2]
    assert evaluated.prompts["steps"].tolist() == [3, 1, 0]
    assert evaluated.prompts["problem"].tolist() == [None, None, "no verification step"]
    assert protocols(evaluated.run) == {"generate"}


def test_a_missing_protocol_names_those_there(tmp_path):
    run = Run.open(write_run(tmp_path / "a", prompts_of([1, 2])))
    with pytest.raises(DataError, match=r"'generate' .*prefix"):
        load(run, "generate")


def test_every_lost_prompt_has_a_reason(tmp_path):
    shared = [(f"s{i}", i % 8) for i in range(40)]
    a = arm(tmp_path / "a", [prompt(i, x) for i, x in [*shared, ("only-a", 1), ("null-a", None), ("null-both", None)]])
    b = arm(tmp_path / "b", [prompt(i, x) for i, x in [("only-b", 2), ("null-a", 3), ("null-both", None), *shared]])
    pairs = pair(a, b, min_coverage=0.9)
    assert reasons(pairs) == {
        "only-a": "only in A",
        "only-b": "only in B",
        "null-a": "no value (null or NaN) in A",
        "null-both": "no value (null or NaN) in A",
    }
    assert len(pairs.frame) == 40
    assert pairs.coverage == pytest.approx(40 / 43)
    assert (pairs.frame["tokens_a"] == pairs.frame["tokens_b"]).all()
    with pytest.raises(DataError, match=r"93\.0% .* 95%.*--min-coverage"):
        pair(a, b)
    with pytest.raises(DataError, match=r"4 prompts .*--strict"):
        pair(a, b, min_coverage=0.9, strict=True)


def test_zero_steps_lose_the_pair(tmp_path):
    a = arm(tmp_path / "a", prompts_of([[1]] * 30), "generate")
    b = arm(tmp_path / "b", prompts_of([[1]] * 29 + [[]]), "generate")
    assert reasons(pair(a, b)) == {"p029": "no verification step in B"}


def test_order_of_rows_does_not_matter(tmp_path):
    rng = np.random.default_rng(0)
    rows_a, rows_b = prompts_of(rng.integers(0, 8, 50).tolist()), prompts_of(rng.integers(0, 8, 50).tolist())
    straight = pair(arm(tmp_path / "a", rows_a), arm(tmp_path / "b", rows_b))
    shuffled = pair(
        arm(tmp_path / "c", [rows_a[i] for i in rng.permutation(50)]),
        arm(tmp_path / "d", [rows_b[i] for i in rng.permutation(50)]),
    )
    rows = ["row_a", "row_b"]  # where a prompt stands in its arm's counts
    assert straight.frame.drop(columns=rows).equals(shuffled.frame.drop(columns=rows))


keys = st.tuples(st.sampled_from(["a", "b", "ab", "Z"]), st.integers(0, 2), st.integers(0, 1))


@settings(max_examples=60, deadline=None)
@given(st.lists(keys, unique=True, min_size=1), st.lists(keys, unique=True, min_size=1), st.integers(0, 2**31))
def test_pairs_are_those_of_a_plain_join(of_a, of_b, seed):
    """Any keys in any order, counts missing here and there: the rows that Python's own join and sort give."""
    rng = np.random.default_rng(seed)
    arms = [evaluated(rows, rng) for rows in (of_a, of_b)]
    by_key = [{(r.prompt_id, r.turn, r.sample): r for r in arm.prompts.itertuples()} for arm in arms]
    expected, lost = [], {}
    for key in sorted(by_key[0].keys() | by_key[1].keys()):
        a, b = (table.get(key) for table in by_key)
        if b is None:
            lost[key] = "only in A"
        elif a is None:
            lost[key] = "only in B"
        elif a.problem is not None or b.problem is not None:
            lost[key] = f"{a.problem} in A" if a.problem is not None else f"{b.problem} in B"
        else:
            expected.append((*key, a.row, a.tokens, a.steps, b.row, b.tokens, b.steps))
    if not expected:
        with pytest.raises(DataError, match="pairs"):
            pair(*arms, min_coverage=0)
        return
    pairs = pair(*arms, min_coverage=0)
    columns = ["prompt_id", "turn", "sample", "row_a", "tokens_a", "steps_a", "row_b", "tokens_b", "steps_b"]
    assert [tuple(row) for row in pairs.frame[columns].itertuples(index=False)] == expected
    found = pairs.lost[["prompt_id", "turn", "sample", "reason"]].itertuples(index=False)
    assert {(r.prompt_id, r.turn, r.sample): r.reason for r in found} == lost
    names = sorted(pairs.frame["cluster_id"].unique())
    assert pairs.frame["cluster"].tolist() == [names.index(name) for name in pairs.frame["cluster_id"]]


def evaluated(keys, rng):
    """An arm with these keys (prompt_id, turn, sample) and random counts, some of them missing."""
    n = len(keys)
    ids, turns, samples = zip(*keys, strict=True)
    missing = rng.random(n) < 0.2
    frame = pd.DataFrame({"protocol": "generate", "prompt_id": ids, "turn": turns, "sample": samples, "dataset": "d"})
    frame = frame.assign(
        cluster_id=[f"c{len(i)}" for i in ids], category=None, study_role=None, seen=None, repetition=np.nan,
        row=rng.permutation(n), steps=rng.integers(1, 9, n), tokens=pd.array(rng.integers(1, 99, n), dtype="Int64"),
    )  # fmt: skip
    frame["problem"] = pd.Series([NO_VALUE if m else None for m in missing], dtype=object)
    frame["tokens"] = frame["tokens"].mask(missing)
    return Evaluated(SimpleNamespace(address="run", manifest=SimpleNamespace(evaluations={})), "generate", frame, None)


def test_turns_and_samples_are_prompts_of_their_own(tmp_path):
    turns = [prompt("x", 1, turn=0), prompt("x", 2, turn=1), prompt("x", 3, turn=1, sample=1)]
    pairs = pair(arm(tmp_path / "a", turns), arm(tmp_path / "b", turns))
    assert pairs.frame["tokens_a"].tolist() == [2, 3, 4]


def test_duplicates_are_refused_by_name(tmp_path):
    with pytest.raises(DataError, match=r"2 prompts .*\(p000, p001; eval_id"):
        arm(
            tmp_path / "a",
            [prompt("p000", [1]), prompt("p001", [2, 3]), prompt("p002", [1]), *prompts_of([1, 2])],
            "generate",
        )
    with pytest.raises(DataError, match=r"1 prompts .*'prefix' \(y\)"):
        arm(tmp_path / "b", [prompt("x", 1), prompt("y", [2, 3])])


@pytest.mark.parametrize("column", ["dataset", "cluster_id"])
def test_a_prompt_that_changes_dataset_or_cluster_is_refused(tmp_path, column):
    a = arm(tmp_path / "a", [prompt("x", 1, dataset="d", cluster_id="c"), prompt("y", 1, dataset="d")])
    b = arm(
        tmp_path / "b",
        [prompt("x", 1, **{"dataset": "d", "cluster_id": "c", column: "other"}), prompt("y", 1, dataset="d")],
    )
    with pytest.raises(DataError, match=rf"1 prompts .*{column} \(x; .*'other'"):
        pair(a, b)


def test_no_common_prompts(tmp_path):
    a, b = arm(tmp_path / "a", [prompt("x", 1)]), arm(tmp_path / "b", [prompt("y", 1)])
    with pytest.raises(DataError, match=r"1 only in A; 1 only in B"):
        pair(a, b, min_coverage=0)


def test_steps_of_an_unknown_prompt_are_refused(tmp_path):
    folder = write_run(tmp_path / "a", prompts_of([1, 2]))
    run = Run.open(folder)
    table = run.read("prompts").slice(0, 1)
    (part,) = run.manifest.tables["prompts"]
    pq.write_table(table, folder / part.file)
    part.rows = 1
    with pytest.raises(DataError, match=r"1 prompts .*prompts.parquet.*\(p001\)"):
        load(run, "prefix")
