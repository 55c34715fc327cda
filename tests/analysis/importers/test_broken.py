"""Damaged files: what is sound is imported, what is not is listed with its line, and --strict refuses."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from analysis.commands.importers import main
from analysis.errors import DataError, DraftlabError, UsageError, run_command
from analysis.importers.collect import collect
from analysis.importers.model import Found
from analysis.importers.registry import read_file
from analysis.importers.summary import lengths
from analysis.importers.write import write_run
from analysis.runlog.reading import Run
from tests.analysis.importers import logs

ANSWERS = logs.ALL["answers.jsonl"][0]


def read(tmp_path: Path, data: bytes) -> Found:
    return read_file(logs.write(tmp_path, "log.jsonl", data))[1]


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    "encode",
    [
        pytest.param(lambda d: b"\xef\xbb\xbf" + d, id="BOM"),
        pytest.param(lambda d: d.replace(b"\n", b"\r\n"), id="CRLF"),
        pytest.param(lambda d: b"\xef\xbb\xbf" + d.replace(b"\n", b"\r\n"), id="BOM and CRLF"),
        pytest.param(lambda d: d.decode().encode("utf-16"), id="UTF-16"),
        pytest.param(gzip.compress, id="gz"),
        pytest.param(zstd, id="zst"),
        pytest.param(lambda d: gzip.compress(b"\xef\xbb\xbf" + d), id="gz of BOM"),
        pytest.param(lambda d: d.replace(b"\n", b"\n\n"), id="empty lines"),
        pytest.param(lambda d: d.rstrip(b"\n"), id="no last line end"),
        pytest.param(lambda d: json.dumps([json.loads(line) for line in d.splitlines()]).encode(), id="one array"),
        pytest.param(
            lambda d: json.dumps([json.loads(line) for line in d.splitlines()], indent=2).encode(), id="indented array"
        ),
    ],
)
@pytest.mark.parametrize("name", ["answers.jsonl", "trace.jsonl", "responses.jsonl", "meta.jsonl"])
def test_encodings_change_nothing(tmp_path: Path, name: str, encode: Callable[[bytes], bytes]) -> None:
    plain = read_file(logs.write(tmp_path, "plain", logs.ALL[name][0]))[1]
    found = read_file(logs.write(tmp_path, "encoded", encode(logs.ALL[name][0])))[1]
    assert not found.problems
    assert [lengths(run) for run in found.runs] == [lengths(run) for run in plain.runs]


@pytest.mark.parametrize(
    ("tail", "line", "reason"),
    [
        (b"\x00" * 512, 4, "NUL bytes"),
        (ANSWERS[:40], 4, "not JSON"),
        (b"\n" + ANSWERS[:40], 5, "not JSON"),
        (b"null\n", 4, "not an object but null"),
        (b"[1]\n", 4, "not an object but an array"),
        (b'{"some": "other schema"}\n', 4, "choices is empty"),
        (b'{"question_id": 1, "question_id": 2, "choices": []}\n', 4, "key 'question_id' is given twice"),
        (b'{"question_id": 1.5, "choices": [{}]}\n', 4, "question_id is 1.5, not an id"),
        (b'{"question_id": 1, "choices": []}\n', 4, "choices is empty"),
        (b"[" * 200_000 + b"\n", 4, "nested too deeply"),
        (logs.lines([logs.answer(9, [[2**15]])]), 4, "outside 1 to 32767"),
        (logs.lines([logs.answer(9, [[3]])]).replace(b"[3]", b"[" + b"9" * 5000 + b"]"), 4, "not JSON"),
        (logs.lines([logs.answer(9, [[3]], texts=["ERROR"])]), 4, "the word ERROR"),
        (b"\xff\xfe\xfd\n", 4, "not JSON"),
    ],
)
def test_what_is_damaged_is_listed_and_the_rest_counts(tmp_path: Path, tail: bytes, line: int, reason: str) -> None:
    found = read(tmp_path, ANSWERS + tail)
    assert [p.line for p in found.problems] == [line] and reason in found.problems[0].reason
    assert lengths(found.runs[0]) == lengths(read(tmp_path, ANSWERS).runs[0])


def test_a_row_beside_nul_bytes_counts_and_is_said(tmp_path: Path) -> None:
    found = read(tmp_path, ANSWERS.rstrip(b"\n") + b"\x00" * 64)
    assert len(found.runs[0].responses) == 4 and "row kept" in str(found.problems[0])


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_a_compressed_file_that_was_cut_off(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    n = 2_000  # several blocks of zstd
    many = logs.lines([logs.answer(i, [[1 + (i * 7 + j) % 9 for j in range(1 + i % 30)]]) for i in range(n)])
    packed = pack(many)
    found = read(tmp_path, packed[: len(packed) * 3 // 4])
    responses = found.runs[0].responses
    assert 0 < len(responses) < n and found.problems
    assert {r.prompt_id: r.tokens for r in responses}.items() <= {
        str(i): sum(1 + (i * 7 + j) % 9 for j in range(1 + i % 30)) for i in range(n)
    }.items()


def test_ids_as_integers_and_as_strings_are_one_prompt(tmp_path: Path) -> None:
    as_text = [{**row, "question_id": str(row["question_id"])} for row in logs.ANSWERS]
    assert {r.key for r in read(tmp_path, logs.lines(as_text)).runs[0].responses} == {
        r.key for r in read(tmp_path, ANSWERS).runs[0].responses
    }


def test_strict_refuses_any_row_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = logs.write(tmp_path, "log.jsonl", ANSWERS + ANSWERS[:40])
    out = tmp_path / "out"
    assert run_command(main, [str(path), "--out", str(out), "--strict"]) == 65
    assert "--strict allows none; the first: line 4" in capsys.readouterr().err and not out.exists()
    assert run_command(main, [str(path), "--out", str(out)]) == 0


@pytest.mark.parametrize(
    "data", [b"\x00" * 100, b"\n\n", b"hello\n", b"{", b"[]", b"{}", b"3", b"PAR1", b"\x1f\x8b\x08"]
)
def test_what_is_no_log_is_refused_in_one_line(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path, data)
    assert "\n" not in str(error.value) and "log.jsonl" in str(error.value)


def test_no_file_an_empty_one_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        collect([tmp_path / "absent"])
    with pytest.raises(UsageError):
        collect([tmp_path])
    with pytest.raises(DataError, match="empty"):
        read(tmp_path, b"")


#: What a changed number may become, and what a changed value may be.
_ODD: Any = st.sampled_from(
    [
        *[None, -1, 0, 1, 2**15, 2**31, 2**63, 10**30, 1.5, float("nan"), float("inf"), True],
        *["", "x", [], {}, [None], {"a": 1}, "ERROR", "\ud800"],
    ]
)


@st.composite
def mutations(draw: st.DrawFn) -> tuple[str, bytes]:
    """A log in which bytes were changed, or a value of one of its JSON rows."""
    name = draw(st.sampled_from(sorted(logs.ALL)))
    data = logs.ALL[name][0]
    if draw(st.booleans()) and name.endswith(("jsonl", "json")) and b"\n " not in data:
        rows = [json.loads(line) for line in data.splitlines()]
        value: Any = rows
        while isinstance(value, list | dict) and value:
            place: Any = draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
            parent, value = value, value[place]
            if draw(st.integers(0, 3)) == 0:
                break
        if draw(st.booleans()):
            parent[place] = draw(_ODD)
        else:
            del parent[place]
        return name, logs.lines(rows)
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(changed) - 1, 0)))
        kind = draw(st.sampled_from(["flip", "cut", "drop", "nul", "double"]))
        if kind == "flip" and changed:
            changed[at] = draw(st.integers(0, 255))
        elif kind == "cut":
            del changed[at:]
        elif kind == "drop":
            del changed[at : at + draw(st.integers(1, 30))]
        elif kind == "nul":
            changed[at:at] = b"\x00" * draw(st.integers(1, 9))
        else:
            changed[at:at] = changed[at : at + draw(st.integers(1, 200))]
    return name, bytes(changed)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutations())
@example(
    (
        "cast.json",
        b'{"toy": {"target": "\\ud800", "seeds": 3, "domains": {"chat": {"dflash_ms": [9.0], "cast_ms": [5.0]}}}}',
    )
)
@example(("acceptance.csv", logs.ALL["acceptance.csv"][0].replace(b",acceptance_length", b"\racceptance_length", 1)))
def test_never_a_traceback(tmp_path: Path, mutation: tuple[str, bytes]) -> None:
    """A damaged log is imported or refused in one line; what is imported obeys the arithmetic of steps."""
    name, data = mutation
    try:
        found = collect([logs.write(tmp_path, name, data)])
    except DraftlabError as error:
        assert "\n" not in str(error).strip()
        return
    for i, run in enumerate(found.runs):
        assert run.responses or run.aggregates
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        write_run(tmp_path / "run", run, name=f"run{i}")
        opened = Run.open(tmp_path / "run")
        assert all(len(opened.read(table)) for table in opened.tables())
        for r in run.responses:
            if r.emitted is not None:
                assert sum(r.emitted) == r.tokens and len(r.emitted) == r.steps and min(r.emitted, default=1) >= 1
            if r.steps:
                assert r.tokens is not None and r.tokens >= r.steps
        for a in run.aggregates:
            assert a.tau is None or 1 <= a.tau < float("inf")
            if a.drafts and a.accepted is not None:
                assert a.tau == 1 + a.accepted / a.drafts


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2), st.sampled_from(["new_tokens", "decoding_steps", "accept_lengths"]), st.data())
def test_a_wrong_count_is_never_silent(tmp_path: Path, which: int, field: str, data: st.DataObject) -> None:
    """One number of one answer changed: the file's sums no longer agree, so the row goes and the others stay."""
    rows = json.loads(json.dumps(logs.ANSWERS))
    values = rows[which]["choices"][0][field]
    place = data.draw(st.integers(0, len(values) - 1))
    values[place] = data.draw(st.integers(0, 40).filter(lambda n: n != values[place]))
    found = read(tmp_path, logs.lines(rows))
    assert [p.line for p in found.problems] == [which + 1]
    assert {r.prompt_id for r in found.runs[0].responses} == {str(r["question_id"]) for r in rows} - {
        str(rows[which]["question_id"])
    }
