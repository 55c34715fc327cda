"""Imported runs: complete runs in the run format, with the counting that their log had."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Any

import pytest

from analysis.commands.importers import main
from analysis.errors import run_command
from analysis.importers.direct import open_references
from analysis.measures.lossless import outputs
from analysis.runlog.counting import Counting, counting_of
from analysis.runlog.load import load
from analysis.runlog.outputs import hash_of_tokens, repetition, words
from analysis.runlog.pairing import pair
from analysis.runlog.reading import Run
from tests.analysis.importers import logs


def imported(folder: Path, name: str, *more: str) -> Run:
    logs.write(folder, name)
    assert run_command(main, [str(folder / name), "--out", str(folder / "out"), *more]) == 0
    return Run.open(folder / "out")


def rows(run: Run, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in run.read(table, columns).to_pylist()]


def test_steps_prompts_and_timings_of_answers(tmp_path: Path) -> None:
    run = imported(tmp_path, "answers.jsonl")
    assert run.manifest.created_by == "analysis.importers" and run.label == "toy-eagle-temperature-0.0"
    assert rows(run, "acceptance", "prompt_id", "turn", "step", "emitted", "accepted", "drafted", "eligible")[:3] == [
        ("81", 0, 0, 4, 3, None, None),
        ("81", 0, 1, 3, 2, None, None),
        ("81", 1, 0, 5, 4, None, None),
    ]
    assert rows(run, "prompts", "prompt_id", "turn", "dataset", "category", "cluster_id", "output_tokens", "steps") == [
        ("81", 0, "mt_bench", "writing", "81", 7, 2),
        ("81", 1, "mt_bench", "writing", "81", 7, 2),
        ("200", 0, "qa", "qa", "200", 3, 1),
        ("201", 0, "rag", "rag", "201", 13, 4),
    ]
    assert rows(run, "timings", "mode", "decode_s", "output_tokens")[0] == ("draft", 0.5, 7)
    assert counting_of(run.manifest, "generate").prefill_token == "inside"


def test_no_text_is_written(tmp_path: Path) -> None:
    run = imported(tmp_path, "answers.jsonl")
    for path in (tmp_path / "out").rglob("*"):
        assert path.is_dir() or b"answer 81" not in path.read_bytes()
    assert run.read("prompts", ["output_hash"])["output_hash"].null_count == 0


def test_questions_give_categories_and_clusters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = [
        {"question_id": 1, "category": "coding", "turns": ["Write  a loop.", "Again."]},
        {"question_id": 2, "category": "qa", "turns": ["write a LOOP.", "again."]},
    ]
    file = logs.write(tmp_path, "q.jsonl", logs.lines(questions))
    run = imported(tmp_path, "eagle.jsonl", "--questions", str(file))
    told = capsys.readouterr().out
    assert "data sets: mt_bench 1, qa 1" in told and "questions of all prompts" in told and "--questions" not in told
    found = rows(run, "prompts", "dataset", "category", "cluster_id")
    assert [row[:2] for row in found] == [("mt_bench", "coding"), ("qa", "qa")]
    assert found[0][2] == found[1][2] != "1"  # one question but for case and spaces: one cluster


@pytest.mark.parametrize(
    ("name", "told"),
    [("eagle.jsonl", "ids there: 81; in the log: 1, 2"), ("vllm.json", "the log has totals only")],
)
def test_questions_of_no_prompt_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, told: str
) -> None:
    file = logs.write(tmp_path, "q.jsonl", logs.lines([{"question_id": 81, "turns": ["Write."]}]))
    arguments = [str(logs.write(tmp_path, name)), "--out", str(tmp_path / "out"), "--questions", str(file)]
    assert run_command(main, arguments) == 65 and not (tmp_path / "out").exists()
    assert told in capsys.readouterr().err


def test_each_condition_is_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = logs.write(tmp_path, "trace.jsonl")
    assert run_command(main, [str(path), "--out", str(tmp_path / "cc")]) == 0
    runs = [Run.open(tmp_path / f"cc-{c}") for c in ("C1", "C2")]
    assert [run.label for run in runs] == ["plain", "drafted"] and not runs[0].has("acceptance")
    assert {run.manifest.target.id for run in runs if run.manifest.target} == {"toy-target"}
    assert "4 warm-up rows of the file dropped" in capsys.readouterr().out


def test_totals_become_trials(tmp_path: Path) -> None:
    run = imported(tmp_path, "vllm.json")
    assert run.tables() == ["throughput"]
    assert rows(run, "throughput", "engine", "drafts", "accepted", "accepted_at", "tokens_per_s") == [
        ("vllm", 20, 20, [12, 6, 2], 10.0)
    ]


def test_what_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = logs.write(tmp_path, "a.jsonl", logs.ALL["answers.jsonl"][0] + b'{"question_id": 9, "cho')
    assert run_command(main, [str(path), "--out", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    for line in (
        "format: Spec-Bench / EAGLE answers",
        "arm: toy-eagle-temperature-0.0 (temperature 0)",
        "found: 4 responses to 3 prompts, 9 verification steps",
        "data sets: mt_bench 1, qa 1, rag 1",
        "tau (tokens per step): pooled 3.3333; mean over responses 3.3125; mean over prompts 3.2500",
        str(Counting(prefill_token="inside", last_step="whole")),
        "not known: target",
        "a.jsonl, line 4: not JSON",
    ):
        assert line in out


def test_parts_of_one_run_are_read_as_one(tmp_path: Path) -> None:
    paths = [logs.write(tmp_path, f"{i}.jsonl", logs.lines([row])) for i, row in enumerate(logs.ANSWERS)]
    assert run_command(main, [*map(str, paths), "--out", str(tmp_path / "out")]) == 0
    assert len(Run.open(tmp_path / "out").read("prompts")) == 4


@pytest.mark.parametrize("arguments", [["{eagle}", "{vllm}"], ["{answers}", "{other}"]])
def test_files_of_different_arms_are_no_run(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    other = [{**row, "model_id": "another"} for row in logs.ANSWERS]
    files = {
        "eagle": logs.write(tmp_path, "eagle.jsonl"),
        "vllm": logs.write(tmp_path, "vllm.json"),
        "answers": logs.write(tmp_path, "answers.jsonl"),
        "other": logs.write(tmp_path, "other.jsonl", logs.lines(other)),
    }
    named = [argument.format(**files) for argument in arguments]
    assert run_command(main, [*named, "--out", str(tmp_path / "out")]) == 64
    assert "import each" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_run_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported(tmp_path, "answers.jsonl")
    assert run_command(main, [str(tmp_path / "answers.jsonl"), "--out", str(tmp_path / "out")]) == 64
    assert "holds a run" in capsys.readouterr().err


def test_a_file_whose_rows_differ_has_no_table_of_steps(tmp_path: Path) -> None:
    rows_ = [logs.answer(1, [[2, 3]]), logs.answer(2, [[2, 3]], scalar=True)]
    logs.write(tmp_path, "mixed.jsonl", logs.lines(rows_))
    assert run_command(main, [str(tmp_path / "mixed.jsonl"), "--out", str(tmp_path / "out")]) == 0
    run = Run.open(tmp_path / "out")
    assert not run.has("acceptance") and rows(run, "prompts", "steps", "output_tokens") == [(2, 5), (2, 5)]


def test_repetition_is_the_share_of_repeated_fourgrams() -> None:
    assert repetition([1, 2, 3]) == 0 and repetition([1, 2, 3, 4, 5]) == 0
    assert repetition([7] * 13) == pytest.approx(0.9)  # 10 grams, one of them distinct


def test_words_joined_are_the_text() -> None:
    for text in ("", " a  b\n", "x", "\n\n", "naïve café  "):
        assert "".join(words(text)) == text


def test_tokens_of_a_log_hash_as_the_decoder_hashes_them(tmp_path: Path) -> None:
    """sha256 of little-endian int32: of 1, 2, 3 by hand with struct."""
    expected = hashlib.sha256(struct.pack("<3i", 1, 2, 3)).hexdigest()[:16]
    assert hash_of_tokens([1, 2, 3]) == expected
    row = {"id": 0, "acceptance_lengths": [2], "num_output_tokens": 3, "output_ids": [1, 2, 3]}
    logs.write(tmp_path, "ids.jsonl", logs.lines([row, {**row, "id": 1, "output_ids": None, "response": "a b"}]))
    assert run_command(main, [str(tmp_path / "ids.jsonl"), "--out", str(tmp_path / "out")]) == 0
    # one unit a run: the text of a row without ids has no hash
    assert rows(Run.open(tmp_path / "out"), "prompts", "output_hash") == [(expected,), (None,)]


def test_hashes_of_tokens_and_of_texts_are_never_compared(tmp_path: Path) -> None:
    base = {"acceptance_lengths": [2, 3], "num_output_tokens": 6}
    runs = {}
    for name, more in (("ids", {"output_ids": [1, 2, 3, 4, 5, 6]}), ("text", {"response": "a b c"})):
        path = logs.write(tmp_path, f"{name}.jsonl", logs.lines([{"id": q, **base, **more} for q in range(8)]))
        runs[name] = str(path)
    for other, compared in (("ids", 8), ("text", 0)):
        a, b = open_references([runs["ids"], runs[other]], tmp_path / other)
        found = outputs(load(a, "generate"), load(b, "generate"), pair(load(a, "generate"), load(b, "generate")))
        assert (found.compared, found.same) == (compared, compared)
