"""Shapes of today: rows under a key, answers of servers, lists of lists; and files that are something else."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from analysis.errors import DataError
from analysis.importers.registry import Options, read_file
from analysis.importers.summary import lengths
from tests.analysis.importers import logs
from tests.analysis.importers.test_truths import collected, only


def test_rows_under_a_key_are_found(tmp_path: Path) -> None:
    rows = [{"sample_index": i, "is_warmup": i == 0, "acceptance_lengths": [3, 3 + i], "num_output_tokens": 7 + i}
            for i in range(4)]  # fmt: skip
    for document in ({"config": {"target": "T"}, "per_sample": rows}, {"out": {"results": rows}, "n": [1, 2]}):
        for indent in (None, 1):
            run = only(tmp_path, json.dumps(document, indent=indent))
            assert lengths(run).pooled == (6 * 3 + 1 + 2 + 3) / 6
            assert [r.prompt_id for r in run.responses] == ["1", "2", "3"]


def test_several_lists_of_rows_are_named(tmp_path: Path) -> None:
    a, b = ([{"id": i, "acceptance_lengths": [n, n], "num_output_tokens": 2 * n + 1} for i in range(3)] for n in (2, 4))
    text = json.dumps({"a": {"x": a}, "b": b})
    with pytest.raises(DataError, match=r"lists of records under a\.x, b; --map rows=a\.x\[\] takes one"):
        collected(tmp_path, text)
    assert lengths(only(tmp_path, text, mapping={"rows": "b[]"})).pooled == 4.0
    assert lengths(only(tmp_path, text, mapping={"rows": "a.x"})).pooled == 2.0
    with pytest.raises(DataError, match=r"no list of objects under c; there are a\.x, b"):
        collected(tmp_path, text, mapping={"rows": "c[]"})


def test_rows_under_a_key_with_columns_of_their_own(tmp_path: Path) -> None:
    text = json.dumps({"meta": 1, "runs": [{"q": i, "n_steps": 10, "n_tok": 25} for i in range(3)]})
    mapping = {"rows": "runs[]", "prompt_id": "q", "steps": "n_steps", "tokens": "n_tok"}
    assert lengths(only(tmp_path, text, mapping=mapping)).pooled == 2.5


@pytest.mark.parametrize(
    ("timings", "steps", "tokens"),
    [
        ({"predicted_n": 31, "draft_n": 40, "draft_n_accepted": 18}, 12, 30),  # llama.cpp
        ({"predicted_n": 31, "draft_rounds": 10, "draft_n": 70, "draft_n_accepted": 21}, 10, 30),  # cut by one
        ({"predicted_n": 31, "draft_rounds": 10, "draft_n": 70, "draft_n_accepted": 15}, 15, 30),  # 5 without a draft
    ],
)
@pytest.mark.parametrize("envelope", ["bare", "response"])
def test_timings_of_an_answer(tmp_path: Path, timings: dict[str, Any], steps: int, tokens: int, envelope: str) -> None:
    answer = {
        "content": "words",
        "id_slot": 0,
        "index": 0,
        "timings": {**timings, "predicted_ms": 500.0, "prompt_ms": 80.0},
    }
    rows = [answer if envelope == "bare" else {"response": answer}] * 3
    run = only(tmp_path, logs.lines(rows))
    assert [(r.steps, r.tokens, r.seconds, r.prefill) for r in run.responses] == [(steps, tokens, 0.5, 0.08)] * 3
    assert len({r.prompt_id for r in run.responses}) == 3


def test_an_answer_without_a_draft_among_others_that_have_one(tmp_path: Path) -> None:
    drafted = {"timings": {"predicted_n": 31, "draft_n": 40, "draft_n_accepted": 18}}
    rows = [drafted, {"timings": {"predicted_n": 31}}]
    assert lengths(only(tmp_path, logs.lines(rows))).pooled == 60 / 42
    alone = only(tmp_path, logs.lines([{"content": "x", "timings": {"predicted_n": 31, "predicted_ms": 9.0}}] * 2))
    assert alone.mode is None and lengths(alone).pooled is None


@pytest.mark.parametrize(
    "timings",
    [
        {"predicted_n": 31, "draft_n": 10, "draft_n_accepted": 18},
        {"predicted_n": 31, "draft_n": 40, "draft_n_accepted": 30},
        {"predicted_n": 31, "draft_rounds": 40, "draft_n": 40, "draft_n_accepted": 18},
        {"predicted_n": 31, "draft_n": 40},
    ],
)
def test_timings_that_cannot_be_are_refused(tmp_path: Path, timings: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        collected(tmp_path, logs.lines([{"timings": timings}]))


def vllm_answer(output: int, **changes: Any) -> dict[str, Any]:
    counts = {"num_spec_steps": 10, "num_accepted_draft_tokens": 7, "num_draft_tokens": 30,
              "acceptance_histogram": [6, 2, 1, 1]}  # fmt: skip
    metrics = {"speculative_decoding": counts | changes}
    choices = [{"message": {"content": "a b"}}]
    usage = {"completion_tokens": output}
    return {"object": "chat.completion", "id": "chatcmpl-1", "usage": usage, "choices": choices, "metrics": metrics}


def test_metrics_of_an_answer_of_vllm(tmp_path: Path) -> None:
    """10 steps with 7 accepted; of 31 tokens, 13 steps more had no draft."""
    assert lengths(only(tmp_path, logs.lines([vllm_answer(18)] * 2))).pooled == 1.7
    assert lengths(only(tmp_path, logs.lines([vllm_answer(31)]))).pooled == 30 / 23
    with pytest.raises(DataError, match="acceptance_histogram has 10 steps with 7 accepted, but num_spec_steps is 11"):
        collected(tmp_path, logs.lines([vllm_answer(18, num_spec_steps=11)]))


def test_lists_of_lists(tmp_path: Path) -> None:
    """The turns of a prompt, the prompts of a batch, or parts of one answer."""
    turns = only(tmp_path, logs.lines([{"id": 7, "acceptance_lengths": [[4, 2], [3]], "num_output_tokens": [7, 4]}]))
    assert [(r.key, r.tokens) for r in turns.responses] == [(("7", 0, 0), 6), (("7", 1, 0), 3)]
    batch = only(tmp_path, json.dumps({"block": 8, "acceptance_lengths": [[4, 2], [3], [8, 8]]}))
    assert [(r.prompt_id, r.tokens) for r in batch.responses] == [("row 1.1", 6), ("row 1.2", 3), ("row 1.3", 16)]
    parts = only(tmp_path, logs.lines([{"id": 7, "acceptance_lengths": [[4, 2], [3]], "num_output_tokens": 10}]))
    assert [list(r.emitted or ()) for r in parts.responses] == [[4, 2, 3]]


@pytest.mark.parametrize("form", ["printed", "counted", "objects"])
def test_counters_as_programs_print_them(tmp_path: Path, form: str) -> None:
    text = {
        "printed": "num_drafts: 2,000\nnum_draft_tokens: 6,000\nnum_accepted_tokens: 1,800\n",
        "counted": "Number of draft proposals: 2,000\nNumber of accepted tokens: 1,800\nMean acceptance length: 1.90\n",
        "objects": "Counter(name='vllm:spec_decode_num_drafts', labels={'engine': '0'}, value=2000)\n"
        "Counter(name='vllm:spec_decode_num_accepted_tokens', labels={'engine': '0'}, value=1800)\n"
        "Vector(name='vllm:spec_decode_num_accepted_tokens_per_pos', labels={}, values=[1200, 500, 100])\n",
    }[form]
    (total,) = only(tmp_path, text).aggregates
    assert (total.tau, total.drafts) == (1.9, 2000)
    assert total.accepted_at == ([1200, 500, 100] if form == "objects" else None)


FRAME = {"prompt_id": [0, 1], "steps": [10, 12], "tokens": [20, 30]}


@pytest.mark.parametrize(
    ("orient", "document"),
    [
        ("split", {"columns": list(FRAME), "index": [0, 1], "data": [[0, 10, 20], [1, 12, 30]]}),
        ("index", {"0": {"prompt_id": 0, "steps": 10}, "1": {"prompt_id": 1, "steps": 12}}),
        ("columns", {"prompt_id": {"0": 0, "1": 1}, "steps": {"0": 10, "1": 12}}),
        ("table", {"schema": {"fields": [{"name": "prompt_id"}]}, "data": [{"prompt_id": 0, "steps": 1, "tokens": 2}]}),
    ],
)
def test_orients_of_pandas_are_named(tmp_path: Path, orient: str, document: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=f'a pandas table in the orient "{orient}"; write it with'):
        collected(tmp_path, json.dumps(document))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (json.dumps({"cells": [], "nbformat": 4, "metadata": {}}).encode(), "a Jupyter notebook"),
        (pickle.dumps({"tau": 3}, protocol=4), "a Python pickle"),
        (b"\x93NUMPY\x01\x00v\x00{'descr'", "a NumPy array"),
        (b"SQLite format 3\x00" + b"\x00" * 90, "an SQLite database"),
    ],
)
def test_files_of_other_kinds_are_named(tmp_path: Path, data: bytes, what: str) -> None:
    with pytest.raises(DataError, match=what):
        read_file(logs.write(tmp_path, "x", data), Options())
