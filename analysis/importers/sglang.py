"""Logs of SGLang: requests with their ``meta_info`` (rows per prompt), and JSON lines of its two benchmarks (totals).

A request's spec_accept_length is, by version, completion_tokens / spec_verify_ct or
1 + spec_num_correct_drafts / spec_verify_ct; its own numbers tell which. The accept_length of ``bench_serving`` is the
server's, cumulative since it started; acc_length -1 of ``bench_one_batch_server`` means that there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.counting import Counting
from analysis.importers.model import (
    MOST_AT_ONCE,
    Aggregate,
    Found,
    Imported,
    Response,
    RowError,
    identifier,
    integer,
    last_of_each,
    optional_integer,
    optional_real,
    optional_total,
    real,
)
from analysis.importers.served import requests_of
from analysis.importers.source import Problem, Row, Source

REQUESTS, SERVING, ONE_BATCH = "SGLang requests", "SGLang bench_serving", "SGLang bench_one_batch_server"
NAME = "SGLang"


def recognise(source: Source) -> int:
    """How many of the first rows are SGLang's."""
    return sum(_kind(row) is not None for row in source.sample)


def _kind(row: Mapping[str, Any]) -> str | None:
    if "spec_verify_ct" in _meta(row):
        return REQUESTS
    if "accept_length" in row and {"completed", "duration"} <= row.keys():
        return SERVING
    return ONE_BATCH if {"acc_length", "batch_size", "output_len"} <= row.keys() else None


def _meta(row: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = row.get("meta_info")
    return meta if isinstance(meta, dict) else row


def read(source: Source) -> Found:
    """One run: the requests, or the totals."""
    kinds = [kind for kind in map(_kind, source.sample) if kind]
    expected = max(set(kinds), key=lambda kind: (kinds.count(kind), kind))
    problems: list[Problem] = []
    responses: list[Response] = []
    aggregates: list[Aggregate] = []
    rules = set()
    for row in source.rows():
        try:
            if _kind(row.value) != expected:
                raise RowError(f"not a row of {expected}")
            if expected == REQUESTS:
                response, rule = _request(row)
                responses.append(response)
                rules.add(rule)
            elif expected == SERVING:
                aggregates.append(_serving(row.value, len(aggregates) + 1))
            else:
                aggregates.append(_one_batch(row.value))
        except RowError as error:
            problems.append(Problem(row.line, str(error)))
    responses = last_of_each(responses, problems)
    notes = [f"tokens per step: {rule}" for rule in sorted(rules)]
    if len(rules) > 1:
        notes.append("rows of two versions of SGLang, which count differently")
    if expected == SERVING:
        notes.append("accept_length is the server's mean since it started, not of this benchmark alone")
    if any(response.prompt_id.startswith("row ") for response in responses):
        notes.append("rows without an id: such a prompt is known by its place in the file, and pairs join by it")
    run = Imported(
        format=expected,
        label=source.stem,
        counting=Counting(prefill_token="inside", last_step="unknown", time="prefill and decode"),
        responses=responses,
        aggregates=aggregates,
        engine="sglang",
        unknown=["target", "block size", "lengths of single steps" if responses else "rows per prompt"],
        notes=notes,
    )
    return Found([run], [*problems, *source.damage])


def _request(row: Row) -> tuple[Response, str]:
    meta = _meta(row.value)
    tokens = integer(meta.get("completion_tokens"), "completion_tokens")
    steps = integer(meta["spec_verify_ct"], "spec_verify_ct")
    stated = optional_real(meta, "spec_accept_length")
    correct = _either(meta, "spec_num_correct_drafts", "spec_accept_token_num")
    proposed = _either(meta, "spec_num_proposed_drafts", "spec_draft_token_num")
    if correct is not None and proposed is not None and correct > proposed:
        raise RowError(f"{correct} correct of {proposed} proposed draft tokens")
    in_steps, rule = tokens, "completion_tokens / spec_verify_ct"
    if correct is not None:
        by_drafts = steps + correct
        if stated is None or (steps and abs(stated - by_drafts / steps) <= 1e-3 < abs(stated - tokens / steps)):
            in_steps, rule = by_drafts, "1 + spec_num_correct_drafts / spec_verify_ct"
    if stated is not None and steps and abs(stated - in_steps / steps) > 1e-3:
        raise RowError(f"spec_accept_length is {stated:g}, but {rule} is {in_steps / steps:g}")
    if steps and in_steps < steps:
        raise RowError(f"{in_steps} tokens in {steps} steps; each step gives one at least")
    given = next(
        (r[name] for r in (row.value, meta) for name in ("id", "rid", "index") if r.get(name) is not None), None
    )
    reason = meta.get("finish_reason")
    text = row.value.get("text")
    response = Response(
        prompt_id=f"row {row.line}" if given is None else identifier(given, "id"),
        line=row.line,
        steps=steps,
        tokens=in_steps if steps else 0,
        output_tokens=tokens,
        prompt_tokens=optional_integer(meta, "prompt_tokens"),
        seconds=optional_real(meta, "e2e_latency"),
        finish_reason=str(reason["type"]) if isinstance(reason, dict) and "type" in reason else None,
        text=text if isinstance(text, str) else None,
    )
    return response, rule


def _either(meta: Mapping[str, Any], name: str, older: str) -> int | None:
    value = optional_integer(meta, name)
    return optional_integer(meta, older) if value is None else value


def _serving(row: Mapping[str, Any], number: int) -> Aggregate:
    return Aggregate(
        subset=f"benchmark {number}",
        tau=_length(row["accept_length"], "accept_length"),
        mean_of="all that the server did since it started",
        requests=optional_integer(row, "completed"),
        output_tokens=optional_total(row, "total_output_tokens"),
        concurrency=optional_integer(row, "max_concurrency", most=MOST_AT_ONCE),
        duration_s=optional_real(row, "duration"),
        tokens_per_s=optional_real(row, "output_throughput"),
        served=requests_of(row),
    )


def _one_batch(row: Mapping[str, Any]) -> Aggregate:
    settings = ", ".join(f"{name} {row[name]}" for name in ("batch_size", "input_len", "output_len") if name in row)
    return Aggregate(
        subset=f"{row['run_name']}, {settings}" if isinstance(row.get("run_name"), str) else settings,
        tau=_length(row["acc_length"], "acc_length"),
        concurrency=optional_integer(row, "batch_size", most=MOST_AT_ONCE),
        duration_s=optional_real(row, "latency"),
        tokens_per_s=optional_real(row, "output_throughput"),
    )


def _length(value: Any, what: str) -> float | None:
    """A stated length; None for null and for -1, which the tool writes without speculative decoding."""
    if value is None or (value == -1 and not isinstance(value, bool)):
        return None
    return real(value, what, least=1.0)
