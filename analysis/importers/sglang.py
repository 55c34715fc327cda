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

from analysis.importers.arms import arms_of, by_arm
from analysis.importers.evidence import of_drafting
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
from analysis.importers.responses import BY_PLACE, DATASETS, DATASETS_UNKNOWN, IDS, SAMPLES, place_of
from analysis.importers.served import load_of, requests_of, settings_of
from analysis.importers.source import Kind, Problem, Row, Source
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
    own = "accept_length" in row or str(row.get("backend")).startswith("sglang")
    if own and {"completed", "duration"} <= row.keys():
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
    rows: list[Row] = []
    aggregates: list[Aggregate] = []
    for row in source.rows():
        try:
            if (kind := _kind(row.value)) != expected:
                raise RowError(f"not a row of {expected}", "unrelated" if kind is None else "invalid")
            if expected in (REQUESTS, PLAIN):
                requests.append(_request(row))
                rows.append(row)
            elif expected == SERVING:
                aggregates.append(_serving(row.value))
            else:
                aggregates.append(_one_batch(row.value))
        except RowError as error:
            problems.append(problem(row.line, error))
    counting, notes = _rule(requests)
    drafter = next((found for row in source.sample if (found := of_drafting(row))), None)
    key_of = {row.line: request.response for row, request in zip(rows, requests, strict=True)}
    arms = arms_of(rows, lambda row: None if key_of[row.line].placed else key_of[row.line].key, _others)
    responses = last_of_each(
        [
            replace(response, arm=arm)
            for request, arm in zip(requests, arms, strict=True)
            for response in _response(request, counting, problems)
        ],
        problems,
    )
    mode: str | None = "draft"
    if expected == SERVING and any(a.tau is not None for a in aggregates):
        notes.append("accept_length is the server's mean since it started, not of this benchmark alone")
    if expected in (SERVING, ONE_BATCH) and all(a.tau is None for a in aggregates):
        mode = None
        notes.append("no acceptance length is stated: tokens per step are not known, only times")
    if expected == PLAIN:
        mode = "plain" if drafter is None else None
        notes.append(
            "no field of speculative decoding: taken for plain decoding"
            if drafter is None
            else f"{drafter} names a drafter, but verification steps are not counted: only times are known"
        )
    if any(request.response.placed for request in requests):
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
        mode=mode,
        engine=_engine(source),
        unknown=unknown,
        notes=notes,
    )
    return Found(by_arm(run), [*problems, *source.damage])


def _engine(source: Source) -> str | None:
    """The server that was measured: bench_serving measures others too, and names them."""
    backends = {str(row["backend"]).split("-")[0] for row in source.sample if isinstance(row.get("backend"), str)}
    return "sglang" if not backends else backends.pop() if len(backends) == 1 else None


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


def _others(row: Row) -> Mapping[str, Any]:
    """The fields that may tell arms apart."""
    known = {*IDS, *DATASETS, *SAMPLES, "turn", "category"}
    return {name: value for name, value in row.value.items() if name not in known}


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
        kind: Kind = "invalid" if steps else "no steps"
        reason = f"{tokens} tokens in {steps} steps; each step gives one at least"
        problems.append(Problem(response.line, reason, kind))
        return []
    return [replace(response, tokens=tokens)]


def _either(meta: Mapping[str, Any], name: str, older: str) -> int | None:
    value = optional_integer(meta, name)
    return optional_integer(meta, older) if value is None else value


def _serving(row: Mapping[str, Any]) -> Aggregate:
    return Aggregate(
        subset=load_of(row),
        tau=_length(row.get("accept_length"), "accept_length"),
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
