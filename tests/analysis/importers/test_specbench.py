"""Answer files as the methods in Spec-Bench and its descendants write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.commands.importers import main
from analysis.errors import DataError, run_command
from analysis.importers.collect import collect
from analysis.importers.registry import read_file
from analysis.importers.summary import lengths
from tests.analysis.importers import logs
from tests.analysis.importers.test_formats import runs


def changed(rows: list[dict[str, Any]], **fields: Any) -> list[dict[str, Any]]:
    """The answers with fields of their choice made by functions of the choice; None drops one."""
    rows = json.loads(json.dumps(rows))
    for row in rows:
        choice = row["choices"][0]
        choice.update({name: make(choice) if make else None for name, make in fields.items()})
    return rows


def test_answers_of_two_models_are_two_runs(tmp_path: Path) -> None:
    other = [logs.answer(n, [[1, 1]]) | {"model_id": "toy-sps"} for n in (81, 200)]
    eagle, sps = runs(logs.write(tmp_path, "cat.jsonl", logs.lines([*logs.ANSWERS, *other])))
    assert (eagle.variant, sps.variant) == ("toy-eagle-temperature-0.0", "toy-sps")
    assert lengths(eagle).pooled == pytest.approx(30 / 9) and lengths(sps).pooled == 1.0


def test_a_resumed_file_is_what_the_format_defines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = logs.write(tmp_path, "again.jsonl", logs.lines([*logs.ANSWERS, logs.answer(200, [[3]])]))
    assert run_command(main, [str(path), "--out", str(tmp_path / "out"), "--strict"]) == 0
    told = capsys.readouterr().out
    assert "1 question run again, the last run counts (the first: 200 on line 2, again on line 4)" in told
    assert "WARNING" not in told


def test_runs_of_a_question_that_differ_much_are_warned_of(tmp_path: Path) -> None:
    parts = [
        logs.write(tmp_path, "answers.jsonl"),
        logs.write(tmp_path, "2.jsonl", logs.lines([logs.answer(200, [[5, 5]])])),
    ]
    (run,) = runs(logs.write(tmp_path, "b", b"".join(p.read_bytes() for p in parts)))
    (response,) = (r for r in run.responses if r.prompt_id == "200")
    assert response.tokens == 10
    assert any("tokens per step 3.0000 before, 5.0000 now: WARNING" in note for note in run.notes)
    with pytest.raises(DataError, match=r"prompt 200 .* is in another of the files too"):
        collect(parts)


def test_steps_that_lack_the_last_of_each_turn(tmp_path: Path) -> None:
    """Token Recycling's: steps one fewer a turn, and new_tokens one more where the stop token was seen."""
    rows = changed(
        logs.ANSWERS,
        decoding_steps=lambda c: [n - 1 for n in c["decoding_steps"]],
        new_tokens=lambda c: [n + i for i, n in enumerate(c["new_tokens"])],
    )
    _, found = read_file(logs.write(tmp_path, "log.jsonl", logs.lines(rows)))
    (run,) = found.runs
    assert not found.problems and [list(r.emitted or ()) for r in run.responses] == [[4, 3], [5, 2], [3], [1, 6, 2, 4]]
    assert any("one fewer in each turn than accept_lengths" in note for note in run.notes)
    # one such row among others is a wrong one
    _, found = read_file(logs.write(tmp_path, "one.jsonl", logs.lines([*logs.ANSWERS[:2], rows[2]])))
    assert [p.line for p in found.problems] == [3]


def test_a_baseline_that_counts_a_step_too_few(tmp_path: Path) -> None:
    rows = changed(
        logs.ANSWERS,
        decoding_steps=lambda c: [n - 1 for n in c["new_tokens"]],
        accept_lengths=lambda c: [1] * sum(c["new_tokens"]),
    )
    (run,) = runs(logs.write(tmp_path, "log.jsonl", logs.lines(rows)))
    assert run.mode == "plain" and lengths(run).pooled == 1.0


def test_lists_that_are_empty_in_every_row_are_no_lists(tmp_path: Path) -> None:
    rows = changed(logs.ANSWERS, accept_lengths=lambda c: [])
    (run,) = runs(logs.write(tmp_path, "log.jsonl", logs.lines(rows)))
    assert lengths(run).pooled == pytest.approx(30 / 9) and all(r.emitted is None for r in run.responses)
    _, found = read_file(logs.write(tmp_path, "one.jsonl", logs.lines([*logs.ANSWERS[:2], rows[2]])))
    assert [str(p) for p in found.problems] == ["line 3: 0 accept_lengths, but decoding_steps sum to 4"]


def test_one_turn_without_lists_and_no_question_id(tmp_path: Path) -> None:
    first = {name: (lambda c, name=name: c[name][0]) for name in ("turns", "new_tokens", "decoding_steps", "wall_time")}
    rows = changed(logs.ANSWERS[1:], **first)
    for row in rows:
        del row["question_id"]
    (run,) = runs(logs.write(tmp_path, "log.jsonl", logs.lines(rows)))
    assert [(r.prompt_id, list(r.emitted or ())) for r in run.responses] == [("row 1", [3]), ("row 2", [1, 6, 2, 4])]
    assert any("pairs join by it" in note for note in run.notes)
