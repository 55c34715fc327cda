"""Logs of SGLang: requests with their ``meta_info`` (rows per prompt), and JSON lines of its two benchmarks (totals).

A request's spec_accept_length is, by version, completion_tokens / spec_verify_ct, which has the prefill token in it, or
1 + spec_num_correct_drafts / spec_verify_ct, which has not; the file's own numbers tell which. ``meta_info`` stands in
the row, in its ``response``, or in the first of its ``choices``; its id is new at every request, so it pairs nothing.
Without the fields of speculative decoding it is of a plain server, with its times. The accept_length of
``bench_serving`` is the server's, cumulative since it started; acc_length -1 of ``bench_one_batch_server`` means that
there is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.importers.model import (
    MOST_AT_ONCE,
    Aggregate,
    Found,
    Imported,
    Response,
    RowError,
    integer,
    integers,
    last_of_each,
    optional_integer,
    optional_real,
    optional_total,
    problem,
    real,
)
from analysis.importers.responses import BY_PLACE, DATASETS_UNKNOWN, PLACE, place_of
from analysis.importers.served import load_of, requests_of, settings_of
from analysis.importers.source import Problem, Row, Source
from analysis.importers.totals import rounding
from analysis.runlog.counting import Counting

BY_TOKENS, BY_DRAFTS = "completion_tokens / spec_verify_ct", "1 + spec_num_correct_drafts / spec_verify_ct"
REQUESTS, PLAIN = "SGLang requests", "SGLang requests without speculative decoding"
SERVING, ONE_BATCH = "SGLang bench_serving", "SGLang bench_one_batch_server"
NAME = "SGLang"


def recognise(source: Source) -> int:
    """How many of the first rows are SGLang's."""
    return sum(_kind(row) is not None for row in source.sample)


def _kind(row: Mapping[str, Any]) -> str | None:
    if "spec_verify_ct" in (meta := _answer(row)[0]):
        return REQUESTS
    if meta is not row and {"completion_tokens", "e2e_latency"} <= meta.keys():
        return PLAIN
    if "accept_length" in row and {"completed", "duration"} <= row.keys():
        return SERVING
    return ONE_BATCH if {"acc_length", "batch_size", "output_len"} <= row.keys() else None


def _answer(row: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """(the fields of meta_info, the object that holds them)."""
    choices = row.get("choices")
    for holder in (row, row.get("response"), choices[0] if isinstance(choices, list) and choices else None):
        if isinstance(holder, dict) and isinstance(meta := holder.get("meta_info"), dict):
            return meta, holder
    return row, row


def read(source: Source) -> Found:
    """One run: the requests, or the totals."""
    kinds = [kind for kind in map(_kind, source.sample) if kind] or [REQUESTS]
    expected = max(set(kinds), key=lambda kind: (kinds.count(kind), kind))
    problems: list[Problem] = []
    requests: list[_Request] = []
    aggregates: list[Aggregate] = []
    for row in source.rows():
        try:
            if _kind(row.value) != expected:
                raise RowError(f"not a row of {expected}")
            if expected in (REQUESTS, PLAIN):
                requests.append(_request(row))
            elif expected == SERVING:
                aggregates.append(_serving(row.value))
            else:
                aggregates.append(_one_batch(row.value))
        except RowError as error:
            problems.append(problem(row.line, error))
    counting, notes = _rule(requests)
    responses = last_of_each([r for request in requests for r in _response(request, counting, problems)], problems)
    if expected == SERVING:
        notes.append("accept_length is the server's mean since it started, not of this benchmark alone")
    if expected == PLAIN:
        notes.append("no field of speculative decoding: plain decoding")
    if any(request.response.prompt_id.split("/")[-1].startswith(PLACE) for request in requests):
        notes.append(BY_PLACE)
    unknown = ["target"] if expected == PLAIN else ["target", "block size"]
    if expected != PLAIN:
        unknown.append("lengths of single steps" if responses else "rows per prompt")
    if responses and all(response.dataset is None for response in responses):
        unknown.append(DATASETS_UNKNOWN)
    run = Imported(
        format=expected,
        label=source.stem,
        counting=Counting(
            prefill_token={BY_TOKENS: "inside", BY_DRAFTS: "outside"}.get(counting, "unknown"),  # type: ignore[arg-type]
            last_step="whole" if counting == BY_DRAFTS else "unknown",
            time="prefill and decode",
            ids="tokens" if any(response.ids is not None for response in responses) else "words",
        ),
        responses=responses,
        aggregates=aggregates,
        mode="plain" if expected == PLAIN else "draft",
        engine="sglang",
        unknown=unknown,
        notes=notes,
    )
    return Found([run], [*problems, *source.damage])


@dataclass(frozen=True)
class _Request:
    """A request, its ``response`` still without tokens in steps; ``lengths``: its mean length by each rule that the
    length which it states allows, all for one that states none."""

    response: Response
    lengths: Mapping[str, float]
    states: bool


def _request(row: Row) -> _Request:
    meta, holder = _answer(row.value)
    tokens = integer(meta.get("completion_tokens"), "completion_tokens")
    steps = optional_integer(meta, "spec_verify_ct")
    stated = optional_real(meta, "spec_accept_length")
    correct = _either(meta, "spec_num_correct_drafts", "spec_accept_token_num")
    proposed = _either(meta, "spec_num_proposed_drafts", "spec_draft_token_num")
    if correct is not None and proposed is not None and correct > proposed:
        raise RowError(f"{correct} correct of {proposed} proposed draft tokens")
    lengths = {BY_TOKENS: tokens / steps} if steps else {}
    if steps and correct is not None:
        lengths[BY_DRAFTS] = 1 + correct / steps
    if stated is not None and lengths:
        away = {rule: abs(stated - length) for rule, length in lengths.items()}
        # unrounded numbers tell the rules apart however near they are
        limit = 1e-9 * stated if min(away.values()) <= 1e-9 * stated else rounding(stated, 1e-3)
        if min(away.values()) > limit:
            rule, length = min(lengths.items(), key=lambda item: away[item[0]])
            raise RowError(f"spec_accept_length is {stated:g}, but {rule} is {length:g}")
        lengths = {rule: length for rule, length in lengths.items() if away[rule] <= limit}
    reason = meta.get("finish_reason")
    value = {name: given for name, given in row.value.items() if name != "id" or not _names_the_request(row.value)}
    text = holder.get("text")
    if isinstance(message := holder.get("message"), dict):
        text = message.get("content")
    ids = holder.get("output_ids")
    category = row.value.get("category")
    response = Response(
        **place_of(Row(row.line, value)),
        line=row.line,
        category=category if isinstance(category, str) else None,
        steps=steps,
        output_tokens=tokens,
        prompt_tokens=optional_integer(meta, "prompt_tokens"),
        seconds=optional_real(meta, "e2e_latency"),
        finish_reason=str(reason["type"]) if isinstance(reason, dict) and "type" in reason else None,
        ids=integers(ids, "output_ids", most=2**31 - 1) if ids else None,
        text=text if isinstance(text, str) and not ids else None,
    )
    return _Request(response, lengths, stated is not None)


def _names_the_request(row: Mapping[str, Any]) -> bool:
    """Whether the row's own id is one that the server gave."""
    meta, _ = _answer(row)
    return "object" in row or (meta is not row and row.get("id") == meta.get("id"))


def _rule(requests: Sequence[_Request]) -> tuple[str, list[str]]:
    """The rule of a file, which is its version's, and what to say of it: as the rows say that allow one alone."""
    decided = Counter(next(iter(r.lengths)) for r in requests if r.states and len(r.lengths) == 1)
    if not any(r.lengths for r in requests):
        return BY_TOKENS, []
    if len(decided) > 1:
        return "mixed", [f"rows of two versions of SGLang, which count differently: {_listed(decided)}"]
    drafts = not any(r.states for r in requests) and all(BY_DRAFTS in r.lengths for r in requests if r.lengths)
    rule = next(iter(decided), BY_DRAFTS if drafts else BY_TOKENS)
    return rule, [f"tokens per step: {rule}"]


def _listed(rules: Mapping[str, int]) -> str:
    return ", ".join(f"{rule} in {count}" for rule, count in sorted(rules.items()))


def _response(request: _Request, rule: str, problems: list[Problem]) -> list[Response]:
    """The response with its tokens in steps, if they are at least its steps."""
    response, steps = request.response, request.response.steps
    if steps is None:
        return [response]
    length = request.lengths.get(rule, next(iter(request.lengths.values()), 0.0))
    tokens = round(length * steps)
    if tokens < steps:
        problems.append(Problem(response.line, f"{tokens} tokens in {steps} steps; each step gives one at least"))
        return []
    return [replace(response, tokens=tokens)]


def _either(meta: Mapping[str, Any], name: str, older: str) -> int | None:
    value = optional_integer(meta, name)
    return optional_integer(meta, older) if value is None else value


def _serving(row: Mapping[str, Any]) -> Aggregate:
    return Aggregate(
        subset=load_of(row),
        tau=_length(row["accept_length"], "accept_length"),
        mean_of="all that the server did since it started",
        requests=optional_integer(row, "completed"),
        output_tokens=optional_total(row, "total_output_tokens"),
        concurrency=optional_integer(row, "max_concurrency", most=MOST_AT_ONCE),
        duration_s=optional_real(row, "duration"),
        tokens_per_s=optional_real(row, "output_throughput"),
        served=requests_of(row),
        settings=settings_of(row),
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
