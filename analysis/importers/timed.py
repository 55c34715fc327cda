"""Answers of servers, one request each, with what the server says of its drafts.

* llama.cpp: ``{"content": ..., "timings": {"predicted_n": 200, "predicted_ms": ..., "draft_n": 347,
  "draft_n_accepted": 65}}``, and the like of mlx-vlm and mlxcel, with ``draft_rounds`` beside. ``predicted_n`` holds
  the token of prefill. llama.cpp tells no steps; each gives one token beside the accepted ones, so they are
  predicted_n - 1 - draft_n_accepted. mlx-vlm counts accepted tokens behind the end of the output too, and its steps.
* vLLM with ``--per-request-spec-decode-metrics``: ``{"metrics": {"speculative_decoding": {"num_spec_steps": 43,
  "num_accepted_draft_tokens": 10, "num_draft_tokens": 129, "acceptance_histogram": [...]}}, "usage": {...}}``.

Steps without a draft are steps: where the output takes more of them than had a draft, the output gives their number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from analysis.importers.arms import arms_of, by_arm
from analysis.importers.model import (
    Found,
    Imported,
    Response,
    RowError,
    integer,
    integers,
    last_of_each,
    optional_integer,
    optional_real,
    problem,
)
from analysis.importers.responses import BY_PLACE, DATASETS_UNKNOWN, first, place_of
from analysis.importers.source import Problem, Row, Source
from analysis.runlog.counting import Counting

NAME = "answers of a server with counts of drafts"
_NAMES = ("prompt_id", "question_id", "sample_id", "task_id")


def recognise(source: Source) -> int:
    """How many of the first rows are answers with counts of drafts."""
    return sum(bool(_timings(row) or _metrics(row)) for row in source.sample)


def _holders(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Where an answer may stand: in the row, or in an envelope."""
    inner = [row.get(name) for name in ("response", "data", "body", "answer")]
    return [row, *(value for value in inner if isinstance(value, dict))]


def _timings(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for holder in _holders(row):
        if isinstance(timings := holder.get("timings"), dict) and "predicted_n" in timings:
            return timings
    return None


def _metrics(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for holder in _holders(row):
        metrics = holder.get("metrics")
        if isinstance(metrics, dict) and isinstance(found := metrics.get("speculative_decoding"), dict):
            return found
    return None


def read(source: Source) -> Found:
    """One run per arm of the file."""
    problems: list[Problem] = []
    rows: list[Row] = []
    responses: list[Response] = []
    drafting = any((t := _timings(row)) is not None and t.get("draft_n") for row in source.sample)
    drafting = drafting or any(_metrics(row) for row in source.sample)
    for row in source.rows():
        try:
            responses.append(_response(row, drafting))
            rows.append(row)
        except RowError as error:
            problems.append(problem(row.line, error))
    keys = {row.line: response for row, response in zip(rows, responses, strict=True)}
    arms = arms_of(rows, lambda row: None if keys[row.line].placed else keys[row.line].key, lambda row: row.value)
    responses = [replace(r, arm=arm) for r, arm in zip(responses, arms, strict=True)]
    exact = all((_timings(row.value) or {}).get("draft_rounds") or _metrics(row.value) for row in rows)
    derived = "steps are predicted_n - 1 - draft_n_accepted: each gives one token beside the accepted ones"
    notes = [] if exact or not drafting else [derived]
    if not drafting:
        notes.append("no answer states drafts: whether there was a drafter is not known, only times are")
    if any(r.placed for r in responses):
        notes.append(BY_PLACE)
    run = Imported(
        format=NAME,
        label=source.stem,
        counting=Counting(prefill_token="outside", last_step="unknown"),
        responses=last_of_each(responses, problems),
        mode="draft" if drafting else None,
        engine="vllm" if any(_metrics(row.value) for row in rows) else None,
        unknown=["target", "block size", "lengths of single steps"]
        + ([DATASETS_UNKNOWN] if all(r.dataset is None for r in responses) else []),
        notes=notes,
    )
    return Found(by_arm(run), [*problems, *source.damage])


def _response(row: Row, drafting: bool) -> Response:
    timings, metrics = _timings(row.value), _metrics(row.value)
    if timings is None and metrics is None:
        raise RowError("no timings and no metrics of speculative decoding", "unrelated")
    named = {k: v for k, v in row.value.items() if k not in ("id", "index", "idx")}
    value = row.value if first(row.value, _NAMES) is None and "object" not in row.value and timings is None else named
    common: dict[str, Any] = {**place_of(Row(row.line, value)), "line": row.line, "text": _text(row.value)}
    if metrics is not None:
        usages = [h["usage"] for h in _holders(row.value) if isinstance(h.get("usage"), dict)]
        usage: Mapping[str, Any] = usages[0] if usages else {}
        output = optional_integer(usage, "completion_tokens")
        steps, tokens = _of_metrics(metrics, output)
        prompt = optional_integer(usage, "prompt_tokens")
        return Response(**common, steps=steps, tokens=tokens, output_tokens=output, prompt_tokens=prompt)
    assert timings is not None
    output = integer(timings.get("predicted_n"), "predicted_n")
    if output < 2:
        raise RowError(f"predicted_n is {output}: no verification step", "no steps")
    of_steps: dict[str, Any] = _of_timings(timings, output) if drafting else {}
    decode, prefill = optional_real(timings, "predicted_ms"), optional_real(timings, "prompt_ms")
    return Response(
        **common,
        **of_steps,
        output_tokens=output,
        prompt_tokens=optional_integer(timings, "prompt_n"),
        seconds=None if decode is None else decode / 1000,
        prefill=None if prefill is None else prefill / 1000,
    )


def _of_timings(timings: Mapping[str, Any], output: int) -> dict[str, int]:
    """{steps, tokens} of an answer. Raises RowError for counts that cannot be."""
    drafted, accepted = (optional_integer(timings, name) or 0 for name in ("draft_n", "draft_n_accepted"))
    rounds = optional_integer(timings, "draft_rounds")
    if accepted > drafted:
        raise RowError(f"draft_n_accepted is {accepted} of draft_n {drafted}")
    if drafted and timings.get("draft_n_accepted") is None:
        raise RowError("draft_n without draft_n_accepted")
    tokens = output - 1
    if rounds is None:
        if accepted >= tokens:
            raise RowError(
                f"draft_n_accepted is {accepted}, but predicted_n {output}: steps are predicted_n - 1 - accepted, at "
                "least 1"
            )
        return {"steps": tokens - accepted, "tokens": tokens}
    if rounds > tokens or (not rounds and drafted):
        raise RowError(f"{tokens} tokens after the first in {rounds} draft_rounds; each gives one at least")
    return {"steps": max(rounds, tokens - accepted), "tokens": tokens}


def _of_metrics(metrics: Mapping[str, Any], output: int | None) -> tuple[int, int]:
    """(steps, tokens in them) as vLLM counts them. Raises RowError for counts that cannot be."""
    steps, accepted, drafted = (
        integer(metrics.get(name), name) for name in ("num_spec_steps", "num_accepted_draft_tokens", "num_draft_tokens")
    )
    if accepted > drafted:
        raise RowError(f"{accepted} accepted of {drafted} draft tokens")
    if metrics.get("acceptance_histogram") is not None:
        counts = integers(metrics["acceptance_histogram"], "acceptance_histogram", most=2**31 - 1)
        total = sum(i * n for i, n in enumerate(counts))
        if (sum(counts), total) != (steps, accepted):
            raise RowError(
                f"acceptance_histogram has {sum(counts)} steps with {total} accepted, but num_spec_steps is {steps} "
                f"and num_accepted_draft_tokens {accepted}"
            )
    if output is not None and output - 1 - accepted > steps:
        return output - 1 - accepted, output - 1  # steps without a draft
    if not steps:
        raise RowError("no verification step", "no steps")
    return steps, steps + accepted


def _text(row: Mapping[str, Any]) -> str | None:
    for holder in _holders(row):
        choices = holder.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        message = choice.get("message")
        inner = message.get("content") if isinstance(message, dict) else choice.get("text")
        for text in (holder.get("content"), inner):
            if isinstance(text, str):
                return text
    return None
