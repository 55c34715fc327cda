"""Plain tables: what their cells mean, records over several lines, totals that are no steps, and what is left out."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.errors import DataError
from analysis.importers import columns
from analysis.importers.collect import collect
from analysis.importers.model import Found, Response
from analysis.importers.registry import Options, read_file
from analysis.importers.summary import lengths
from analysis.importers.write import write_run
from analysis.runlog.load import load
from analysis.runlog.pairing import pair
from analysis.runlog.reading import Run
from tests.analysis.importers import logs


def read(folder: Path, name: str, data: bytes | str, **options: Any) -> Found:
    return read_file(logs.write(folder, name, data), Options(**options))[1]


def responses(found: Found) -> list[Response]:
    (run,) = found.runs
    return list(run.responses)


def csv_of(rows: list[str]) -> str:
    return "\n".join(rows) + "\n"


def test_totals_of_prompts_are_no_steps(tmp_path: Path) -> None:
    """Two numbers per request, as servers state them."""
    rows = ["prompt_id,accepted,drafted", *(f"{i},{30 + i},{120}" for i in range(9))]
    with pytest.raises(DataError, match=r"one row per prompt, and line 2 has 30 accepted of 120 drafted .* steps"):
        read(tmp_path, "t.csv", csv_of(rows))
    with pytest.raises(DataError, match="line 1 has 255 accepted tokens: totals of prompts"):
        read(tmp_path, "t.jsonl", logs.lines([{"prompt_id": i, "emitted": 256} for i in range(3)]))


def test_one_row_per_prompt_that_could_be_a_step_is_said(tmp_path: Path) -> None:
    said = "one row per prompt, each taken as one verification step"
    found = read(tmp_path, "t.csv", csv_of(["prompt_id,accepted", "a,3", "b,5"]))
    assert lengths(found.runs[0]).pooled == 5 and any(note.startswith(said) for note in found.runs[0].notes)
    for rows in (["prompt_id,accepted,step", "a,3,0", "b,70,0"], ["prompt_id,accepted", "a,3", "a,70", "b,5", "b,5"]):
        found = read(tmp_path, "t.csv", csv_of(rows))
        assert not any("one row per prompt" in note for note in found.runs[0].notes) and not found.problems


@pytest.mark.parametrize("more", [{}, {"tokens": 30}, {"emitted": 30}, {"drafted": 150}])
def test_steps_beside_accepted_tokens_are_totals_of_a_response(tmp_path: Path, more: dict[str, int]) -> None:
    found = read(tmp_path, "t.jsonl", logs.lines([{"prompt_id": 0, "accepted": 20, "steps": 10, **more}]))
    (response,) = responses(found)
    assert (response.steps, response.tokens) == (10, 30) and lengths(found.runs[0]).pooled == 3.0


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"tokens": 31}, "31 tokens in 10 steps with 20 accepted; together 30"),
        ({"drafted": 19}, "20 accepted of 19 drafted"),
    ],
)
def test_totals_that_cannot_be_are_named(tmp_path: Path, more: dict[str, int], reason: str) -> None:
    rows = [{"prompt_id": 0, "accepted": 20, "steps": 10, **more}, {"prompt_id": 1, "accepted": 20, "steps": 10}]
    found = read(tmp_path, "t.jsonl", logs.lines(rows))
    assert [str(p) for p in found.problems] == [f"line 1: {reason}"]


def test_a_step_of_a_row_that_repeats_its_responses_totals_is_a_step(tmp_path: Path) -> None:
    rows = ["prompt_id,step,accepted,steps,tokens", "a,0,3,2,6", "a,1,1,2,6"]
    (response,) = responses(read(tmp_path, "t.csv", csv_of(rows)))
    assert list(response.emitted or ()) == [4, 2]


IDS = ["1_1", "11", "007", "7", "12e4", "5e1234", "1" * 23, "nan", "True", "0x10", "٣"]


@pytest.mark.parametrize("steps", [True, False])
def test_ids_are_text_and_pair_with_those_of_json(tmp_path: Path, steps: bool) -> None:
    counts = {"accepted": 2, "step": 0} if steps else {"steps": 10, "tokens": 30}
    table = [",".join(["prompt_id", *counts]), *(",".join([i, *map(str, counts.values())]) for i in IDS)]
    in_json = [{"prompt_id": 7 if i == "7" else i, **counts} for i in IDS]
    found = [read(tmp_path, "t.csv", csv_of(table)), read(tmp_path, "t.jsonl", logs.lines(in_json))]
    assert [[r.prompt_id for r in responses(f)] for f in found] == [IDS, IDS]


def test_whole_floats_are_integer_ids_where_all_are(tmp_path: Path) -> None:
    def ids(found: Found) -> list[str]:
        return [r.prompt_id for r in responses(found)]

    assert ids(read(tmp_path, "t.csv", csv_of(["prompt_id,steps,tokens", "0.0,1,2", "1.0,1,2"]))) == ["0", "1"]
    assert ids(read(tmp_path, "t.csv", csv_of(["prompt_id,steps,tokens", "0.0,1,2", "x,1,2"]))) == ["0.0", "x"]
    named = ["prompt_id,dataset,step,accepted", "0.0,s,0,2", "1.0,7,0,2"]
    assert ids(read(tmp_path, "t.csv", csv_of(named))) == ["s/0", "7/1"]
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"prompt_id": [0.0, 1.0], "steps": [1, 1], "tokens": [2.0, 2.0]}), path)
    assert ids(read_file(path)[1]) == ["0", "1"]


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ("1_0", "steps is '1_0'"),
        ("１０", "steps is '１０'"),
        ("1.000", "steps is '1.000'"),
        ('"1,000"', "steps is '1,000'"),
        ("0x1e", "steps is '0x1e'"),
        ("nan", "steps is nan"),
    ],
)
def test_what_is_no_number_or_two_is_none(tmp_path: Path, steps: str, reason: str) -> None:
    found = read(tmp_path, "t.csv", csv_of(["prompt_id,steps,tokens", f"a,{steps},2000", "b,10.0,3e1"]))
    assert [(r.steps, r.tokens) for r in responses(found)] == [(10, 30)]
    assert [p.line for p in found.problems] == [2] and reason in found.problems[0].reason


def test_a_comma_is_a_decimal_one_where_it_parts_no_cells(tmp_path: Path) -> None:
    found = read(tmp_path, "t.csv", csv_of(["prompt_id;steps;tokens;seconds", "a;10;30;1,5", "b;10;30,0;2,125"]))
    assert [(r.tokens, r.seconds) for r in responses(found)] == [(30, 1.5), (30, 2.125)] and not found.problems


ANSWERS = [" one\n\ntwo, 3\n", 'say "hi",\nq7,0,9,7\n', "plain", "", 'ends in "quotes"']


def quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


@pytest.mark.parametrize("block", [1, 1 << 20])
@pytest.mark.parametrize("steps", [True, False])
def test_quoted_cells_go_on_over_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, *, steps: bool
) -> None:
    """A line within an answer is no row, though it may look like one; lines are those on which rows begin."""
    monkeypatch.setattr(columns, "_BLOCK", block)
    monkeypatch.setattr(columns, "_SMALL_BLOCK", block)
    counts = "step,accepted,drafted" if steps else "turn,steps,tokens"
    rows = [f"q{i},0,{i + 1},7,{quoted(text)}" for i, text in enumerate(ANSWERS)]
    found = read(tmp_path, "t.csv", csv_of([f"prompt_id,{counts},text", *rows]))
    read_back = responses(found)
    assert not found.problems and [r.prompt_id for r in read_back] == [f"q{i}" for i in range(5)]
    assert [r.text for r in read_back] == [text or None for text in ANSWERS]
    assert [r.line for r in read_back] == [2, 6, 9, 10, 11]
    assert [r.steps for r in read_back] == ([1] * 5 if steps else [1, 2, 3, 4, 5])


def test_a_quote_that_is_not_closed_takes_its_own_row_alone(tmp_path: Path) -> None:
    rows = [f"q{i},10,30,{quoted(f'answer{chr(10)}{i}') if i != 3 else chr(34) + 'cut'}" for i in range(60)]
    found = read(tmp_path, "t.csv", csv_of(["prompt_id,steps,tokens,text", *rows]))
    assert [r.prompt_id for r in responses(found)] == [f"q{i}" for i in range(60) if i != 3]
    assert [str(p) for p in found.problems] == ["line 8: a quoted cell is not closed: half a line, or damaged"]


def test_a_file_cut_within_a_quoted_cell(tmp_path: Path) -> None:
    text = csv_of(["prompt_id,steps,tokens,text", 'a,10,30,"x"', 'b,10,30,"one\ntwo\nthree"'])
    found = read(tmp_path, "t.csv", text[: text.index("three")])
    assert [r.prompt_id for r in responses(found)] == ["a"]
    assert [p.line for p in found.problems] == [3, 4] and "not closed" in found.problems[0].reason


def test_lists_in_cells(tmp_path: Path) -> None:
    rows = ["prompt_id,acceptance_lengths,output_tokens", 'a,"[6, 8]",15', 'b,"[6 8]",15', "c,[3],4"]
    found = read(tmp_path, "t.csv", csv_of(rows))
    assert [list(r.emitted or ()) for r in responses(found)] == [[6, 8], [3]]
    assert [p.line for p in found.problems] == [3] and "not a list" in found.problems[0].reason


@pytest.mark.parametrize("first", ["sep=;", "# made by a tool", "# one\n#two; three"])
def test_lines_above_the_names(tmp_path: Path, first: str) -> None:
    found = read(tmp_path, "t.csv", csv_of([first, "prompt_id;step;accepted", "a;0;3", "a;1;1"]))
    assert [list(r.emitted or ()) for r in responses(found)] == [[4, 2]] and not found.problems


def test_names_within_a_comment(tmp_path: Path) -> None:
    found = read(tmp_path, "t.csv", csv_of(["# prompt_id,step,accepted", "a,0,3", "a,1,1"]))
    assert [list(r.emitted or ()) for r in responses(found)] == [[4, 2]]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("counts", [["steps", "tokens", "tokens"], ["step", "accepted", "accepted"]])
def test_a_column_that_is_there_twice_is_refused(tmp_path: Path, kind: str, counts: list[str]) -> None:
    names = ["prompt_id", *counts]
    path = tmp_path / "t"
    if kind == "csv":
        path.write_text(csv_of([",".join(names), "1,1,2,3"]))
    else:
        pq.write_table(pa.Table.from_arrays([pa.array([1])] * 4, names=names), path)
    with pytest.raises(DataError, match=f"two columns are called {counts[-1]}"):
        read_file(path)


def test_other_columns_may_be_there_twice(tmp_path: Path) -> None:
    found = read(tmp_path, "t.csv", csv_of([",prompt_id,,step,accepted", "0,a,x,0,3", "1,a,y,1,1"]))
    assert [list(r.emitted or ()) for r in responses(found)] == [[4, 2]]


@pytest.mark.parametrize("name", ["prompt_id", "text"])
@pytest.mark.parametrize("steps", [True, False])
def test_text_in_parquet_that_is_not_utf_8_is_a_problem_of_its_row(tmp_path: Path, name: str, *, steps: bool) -> None:
    bad = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\3\0\0\0\4\0\0\0"), pa.py_buffer(b"ab\xffc")]
    )
    counts = {"step": [0, 0], "accepted": [2, 4]} if steps else {"steps": [1, 2], "tokens": [3, 4]}
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"prompt_id": ["a", "b"], "text": ["one", "two"], **counts, name: bad}), path)
    found = read_file(path)[1]
    assert [p.line for p in found.problems] == [1] and f"{name} is b'ab\\xff'" in found.problems[0].reason
    assert [r.line for r in responses(found)] == [2]


def test_bytes_in_parquet_are_text(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"prompt_id": [b"a", "é".encode(), b"\xff"], "step": [0] * 3, "accepted": [1] * 3}), path)
    found = read_file(path)[1]
    assert [r.prompt_id for r in responses(found)] == ["a", "é"] and [p.line for p in found.problems] == [3]


def test_decimals_in_parquet_are_numbers_and_ids(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    ids = pa.array([Decimal(10**20), Decimal(2)], pa.decimal128(38, 0))
    columns = {"prompt_id": ids, "step": [0, 0], "accepted": pa.array([Decimal("3.00"), Decimal("1.00")])}
    pq.write_table(pa.table(columns), path)
    assert {r.prompt_id: list(r.emitted or ()) for r in responses(read_file(path)[1])} == {
        "1" + "0" * 20: [4],
        "2": [2],
    }


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1, "soon", True])
def test_a_time_that_is_none_is_left_out_and_its_row_kept(tmp_path: Path, seconds: Any) -> None:
    rows = [{"prompt_id": 0, "steps": 10, "tokens": 30, "seconds": seconds},
            {"prompt_id": 1, "steps": 10, "tokens": 30, "seconds": 2}]  # fmt: skip
    found = read(tmp_path, "t.jsonl", logs.lines(rows))
    assert [r.seconds for r in responses(found)] == [None, 2] and not found.problems
    assert any(note.startswith("1 value left out, the rows kept; the first: line 1: seconds is") for note in
               found.runs[0].notes)  # fmt: skip


def test_numbers_are_texts_and_names_of_data_sets(tmp_path: Path) -> None:
    row = {"prompt_id": 0, "steps": 10, "tokens": 30, "text": 42, "dataset": 5}
    in_csv = csv_of([",".join(row), ",".join(map(str, row.values()))])
    for found in (read(tmp_path, "t.jsonl", json.dumps(row)), read(tmp_path, "t.csv", in_csv)):
        (response,) = responses(found)
        assert (response.text, response.dataset, response.prompt_id) == ("42", "5", "5/0")


@pytest.mark.parametrize("kind", ["steps", "lists", "totals"])
def test_samples_may_be_called_by_large_seeds(tmp_path: Path, kind: str) -> None:
    """They stay the seeds, so that two logs pair sample by sample, and not by the order of their seeds."""
    counts = {
        "steps": {"accepted": 3, "step": 0},
        "lists": {"acceptance_lengths": [4], "output_tokens": 5},
        "totals": {"steps": 1, "tokens": 4},
    }
    seeds = [[2**40, 7], [20_240_901]]
    paths = [
        logs.write(tmp_path, f"{i}.jsonl", logs.lines([{"prompt_id": "a", "sample": s, **counts[kind]} for s in some]))
        for i, some in enumerate(seeds)
    ]
    found = collect(paths)
    (run,) = found.runs
    assert not found.problems and [r.sample for r in run.responses] == [2**40, 7, 20_240_901]
    write_run(tmp_path / "run", run, name="run")
    other = [{"prompt_id": "a", "sample": s, **counts[kind]} for s in (8, 2**40)]
    path = logs.write(tmp_path, "other.jsonl", logs.lines(other))
    (again,) = collect([path]).runs
    write_run(tmp_path / "again", again, name="again")
    pairs = pair(*(load(Run.open(tmp_path / name), "generate") for name in ("run", "again")), min_coverage=0)
    assert pairs.frame["sample"].tolist() == [2**40]
    huge = logs.write(tmp_path, "huge.jsonl", logs.lines([{"prompt_id": "a", "sample": 2**64, **counts[kind]}]))
    with pytest.raises(DataError, match="sample"):
        collect([huge], strict=True)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
@pytest.mark.parametrize("counts", [["step", "accepted"], ["steps", "tokens"]])
def test_columns_without_a_row(tmp_path: Path, name: str, counts: list[str]) -> None:
    path = tmp_path / name
    if name == "t.csv":
        path.write_text(",".join(["prompt_id", *counts]) + "\n")
    else:
        pq.write_table(pa.table({column: pa.array([], pa.int64()) for column in ["prompt_id", *counts]}), path)
    with pytest.raises(DataError, match="a table with columns, but no row"):
        read_file(path)
