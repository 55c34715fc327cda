"""Small tables and objects of totals: speculators' acceptance.csv, ModelOpt's acceptance_rate.json."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from analysis.errors import DataError
from analysis.importers.collect import collect
from analysis.importers.model import Imported
from analysis.importers.registry import Options
from tests.analysis.importers import logs

#: 5 steps, 12 tokens.
MODELOPT: dict[str, Any] = logs.MODELOPT["acceptance_rate"]
GSM8K: list[dict[str, Any]] = logs.SPECFORGE["gsm8k"]  # type: ignore[assignment]
FLAT = {**MODELOPT, "Request_AL": {"0": 3.0, "1": 1.0}, "Category_AL": {"writing": 2.0}}


def run_of(folder: Path, document: Any) -> Imported:
    (run,) = collect([logs.write(folder, "acceptance_rate.json", json.dumps(document, indent=4))]).runs
    return run


@pytest.mark.parametrize("document", [MODELOPT, {"acceptance_rate": MODELOPT}, FLAT])
@pytest.mark.parametrize("times", [1, 2])
def test_modelopt_appends_its_measurements_to_a_list(tmp_path: Path, document: Any, times: int) -> None:
    run = run_of(tmp_path, [document] * times)
    assert [(a.tau, a.drafts) for a in run.aggregates] == [(12 / 5, 5)] * times
    assert [a.subset for a in run.aggregates] == (
        ["all requests"] if times == 1 else ["all requests, #1", "all requests, #2"]
    )


def test_modelopt_flat_means_are_over_requests(tmp_path: Path) -> None:
    run = run_of(tmp_path, FLAT)
    assert run.aggregates[0].requests == 2 and any("mean over 2 requests (Average_AL): 2.0000" in n for n in run.notes)
    with pytest.raises(DataError, match=r"Average_AL is stated as 2\.5, but the counts give 2"):
        run_of(tmp_path, {**FLAT, "Average_AL": 2.5})


def test_modelopt_pieces_without_a_token_are_no_steps(tmp_path: Path) -> None:
    histogram = {"0": 3, **MODELOPT["Acceptance_Length_Histogram"]}
    run = run_of(tmp_path, {**MODELOPT, "Acceptance_Length_Histogram": histogram})
    assert (run.aggregates[0].drafts, run.aggregates[0].tau) == (5, 2.4)
    assert any(note.startswith("3 pieces without a token") for note in run.notes)


def test_modelopt_says_that_the_prefill_token_may_be_a_step(tmp_path: Path) -> None:
    """Without a step of 1 in each of 3 turns: 9 tokens in 3 steps."""
    run = run_of(tmp_path, {**MODELOPT, "Acceptance_Length_Histogram": {"1": 4, "4": 2}})
    assert run.counting.prefill_token == "unknown"
    assert any("not verified on a real file); without them tokens per step are 3.0000" in note for note in run.notes)
    run = run_of(tmp_path, MODELOPT)  # 2 steps of 1 are not one for each of 3 turns
    assert not any("not verified" in note for note in run.notes)


def test_modelopt_a_measurement_that_cannot_be_leaves_the_others(tmp_path: Path) -> None:
    path = logs.write(tmp_path, "a.json", json.dumps([MODELOPT, {**MODELOPT, "Average_AL": 9}, {"other": 1}], indent=1))
    with pytest.raises(DataError, match="1 of 2 records cannot be used"):
        collect([path])
    found = collect([path], Options(most_invalid=0.7))
    assert len(found.runs[0].aggregates) == 1
    assert [p.line for _, p in found.problems] == [2, 3]


def test_speculators_repeated_subsets_are_several(tmp_path: Path) -> None:
    text = logs.SPECULATORS + logs.SPECULATORS.splitlines()[1] + "\n"
    (run,) = collect([logs.write(tmp_path, "acceptance.csv", text)]).runs
    assert [a.subset for a in run.aggregates] == ["math, #1", "chat", "math, #2"]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("num_drafts,", "num_drafts\r,", "line 1: new-line character seen"),
        ("acceptance_length", "num_drafts", "line 1: two columns are called num_drafts"),
    ],
)
def test_speculators_headers_that_are_none(tmp_path: Path, old: str, new: str, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        collect([logs.write(tmp_path, "acceptance.csv", logs.SPECULATORS.replace(old, new, 1))])


def test_speculators_positions_have_their_number_whatever_the_order_of_columns(tmp_path: Path) -> None:
    header, *rows = [line.split(",") for line in logs.SPECULATORS.splitlines()]
    order = [*range(5), 6, 5]  # acceptance_at_pos_1 before acceptance_at_pos_0
    text = "\n".join(",".join(row[i] for i in order) for row in (header, *rows))
    (run,) = collect([logs.write(tmp_path, "acceptance.csv", text)]).runs
    assert [list(a.accepted_at or ()) for a in run.aggregates] == [[6, 3], [2, 0]]


def test_specforge_an_entry_without_metrics_is_counted(tmp_path: Path) -> None:
    document: dict[str, Any] = {
        "model": "toy",
        "gsm8k": [{**entry, "batch_size": i} for i, entry in enumerate(GSM8K * 30)],
    }
    del document["gsm8k"][4]["metrics"]
    found = collect([logs.write(tmp_path, "specforge.jsonl", json.dumps(document))])
    assert len(found.runs[0].aggregates) == 29
    assert [problem.kind for _, problem in found.problems] == ["invalid"]


@pytest.mark.parametrize(
    ("change", "reason"), [(None, "no times of dflash"), ([0.0, 1.0, 2.0], r"dflash_ms\[0\] is 0")]
)
def test_cast_a_domain_that_one_arm_lacks_counts_for_both(tmp_path: Path, change: Any, reason: str) -> None:
    times = {"dflash_ms": [10.0, 6.0, 8.0], "cast_ms": [5.0, 6.0, 4.0]}
    domains: dict[str, Any] = {f"d{i}": dict(times) for i in range(25)}
    domains["d3"]["dflash_ms"] = change
    if change is None:
        del domains["d3"]["dflash_ms"]
    path = logs.write(tmp_path, "cast.json", json.dumps({"toy": {"target": "t", "seeds": 3, "domains": domains}}))
    found = collect([path])
    assert [len(run.responses) for run in found.runs] == [72, 72]
    ((_, problem),) = found.problems
    assert re.search(reason, problem.reason)


def test_a_step_without_an_id_counts_once_with_the_prompt_that_lacks_it(tmp_path: Path) -> None:
    """1 of 21 prompts: under 5%. Counted as a row and as a prompt it would be 2 of 22."""
    rows = [{"prompt_id": f"p{i}", "step": s, "accepted": 2, "drafted": 7} for i in range(21) for s in range(3)]
    rows[4].pop("prompt_id")
    found = collect([logs.write(tmp_path, "steps.jsonl", logs.lines(rows))])
    assert [len(run.responses) for run in found.runs] == [20]
    assert sorted(problem.kind for _, problem in found.problems) == ["detail", "invalid"]
