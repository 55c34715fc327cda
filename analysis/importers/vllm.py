"""Results of vLLM's ``bench serve --save-result``: totals of one benchmark per JSON object.

spec_decode_acceptance_rate is in percent, spec_decode_acceptance_length is 1 + accepted/drafts, and
spec_decode_per_position_acceptance_rates[i] is the share of drafts of which position i was accepted, which takes all
positions before it: so they sum to accepted/drafts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.importers.model import (
    MOST_AT_ONCE,
    Aggregate,
    Found,
    Imported,
    RowError,
    optional_integer,
    optional_real,
    optional_total,
    problem,
    real,
)
from analysis.importers.served import load_of, requests_of, settings_of
from analysis.importers.source import Problem, Source
from analysis.importers.totals import counted, require_close, rounding
from analysis.runlog.counting import Counting

NAME = "vLLM bench serve"
_SPEC = "spec_decode_"


def recognise(source: Source) -> int:
    """How many of the first rows are results."""
    return sum(_is_result(row) for row in source.sample)


def _is_result(row: Mapping[str, Any]) -> bool:
    timed = {"completed", "total_output_tokens", "output_throughput"} <= row.keys() and "accept_length" not in row
    return f"{_SPEC}num_drafts" in row or timed


def read(source: Source) -> Found:
    """One run: the file; a line each for results that were appended."""
    aggregates: list[Aggregate] = []
    problems: list[Problem] = []
    notes: list[str] = []
    models = set()
    for row in source.rows():
        try:
            aggregate, told = _aggregate(row.value, load_of(row.value))
        except RowError as error:
            problems.append(problem(row.line, error))
            continue
        aggregates.append(aggregate)
        notes += told
        models.add(row.value.get("model_id"))
    target = models.pop() if len(models) == 1 else None
    run = Imported(
        format=NAME,
        label=source.stem,
        counting=Counting(prefill_token="outside", last_step="whole", time="prefill and decode"),
        aggregates=aggregates,
        mode="draft" if any(a.drafts is not None for a in aggregates) else "plain",
        engine="vllm",
        target=target if isinstance(target, str) else None,
        unknown=["rows per prompt", "drafter"],
        notes=list(dict.fromkeys(notes)),
    )
    return Found([run], [*problems, *source.damage])


def _aggregate(row: Mapping[str, Any], subset: str) -> tuple[Aggregate, list[str]]:
    if not _is_result(row):
        raise RowError("not a result of bench serve")
    served: dict[str, Any] = {
        "requests": optional_integer(row, "completed"),
        "output_tokens": optional_total(row, "total_output_tokens"),
        "concurrency": optional_integer(row, "max_concurrency", most=MOST_AT_ONCE),
        "duration_s": optional_real(row, "duration"),
        "tokens_per_s": optional_real(row, "output_throughput"),
        "served": requests_of(row),
        "settings": settings_of(row),
    }
    _check_served(row, served)
    drafts, accepted, draft_tokens = (
        optional_total(row, f"{_SPEC}{name}") for name in ("num_drafts", "accepted_tokens", "draft_tokens")
    )
    if drafts is None or accepted is None:
        return Aggregate(subset=subset, **served), ["no speculative decoding in this result"]
    rates = row.get(f"{_SPEC}per_position_acceptance_rates")
    if rates is not None and not isinstance(rates, list):
        raise RowError("per-position rates are not a list")
    shares = [real(rate, f"rate of position {i}") for i, rate in enumerate(rates or [])]
    if drafts:
        if shares:
            limit = max(5e-3, sum(rounding(share, 0.0) for share in shares))
            require_close(sum(shares), accepted / drafts, "the sum of the per-position rates", limit)
        require_close(
            optional_real(row, f"{_SPEC}acceptance_length"), 1 + accepted / drafts, "acceptance length", 0.005 + 1e-9
        )
    if draft_tokens:
        rate = optional_real(row, f"{_SPEC}acceptance_rate")
        require_close(rate, 100 * accepted / draft_tokens, "acceptance rate, in percent,", 0.05)
    at = [round(share * drafts) for share in shares] or None
    if at and (sum(at) != accepted or any(abs(s * drafts - n) > 1e-3 for s, n in zip(shares, at, strict=True))):
        at = None  # rates that were rounded do not give the counts back
    return counted(subset, drafts, accepted, draft_tokens, at, **served)


def _check_served(row: Mapping[str, Any], served: Mapping[str, Any]) -> None:
    tokens, seconds, rate = served["output_tokens"], served["duration_s"], served["tokens_per_s"]
    if tokens is not None and seconds and rate is not None:
        require_close(rate, tokens / seconds, "output throughput", 0.01 * max(rate, 1e-9))
    lengths = row.get("output_lens")
    if tokens is not None and isinstance(lengths, list) and all(isinstance(n, int) for n in lengths):
        require_close(float(sum(lengths)), float(tokens), "the sum of output_lens", 0.5)
