"""Results of vLLM's ``bench serve --save-result``: totals of one benchmark per JSON object.

spec_decode_acceptance_rate is in percent, spec_decode_acceptance_length is 1 + accepted/drafts, and
spec_decode_per_position_acceptance_rates[i] is the share of drafts of which position i was accepted, which takes all
positions before it: so they sum to accepted/drafts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.importers.evidence import of_drafting
from analysis.importers.model import (
    MOST_AT_ONCE,
    PER_DRAFT,
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
from analysis.importers.totals import counted, require_close, rounding, without_draft
from analysis.importers.windows import require_rates
from analysis.runlog.counting import Counting

NAME = "vLLM bench serve"
_SPEC = "spec_decode_"


def recognise(source: Source) -> int:
    """How many of the first rows are results."""
    return sum(_is_result(row) for row in source.sample)


def _is_result(row: Mapping[str, Any]) -> bool:
    if str(row.get("backend")).startswith("sglang"):
        return False
    timed = {"completed", "total_output_tokens", "output_throughput"} <= row.keys() and "accept_length" not in row
    return f"{_SPEC}num_drafts" in row or timed


def read(source: Source) -> Found:
    """One run per target; a line each for results that were appended."""
    problems: list[Problem] = []
    targets: dict[str | None, list[_Result]] = {}
    for row in source.rows():
        try:
            result = _result(row.value, load_of(row.value))
        except RowError as error:
            problems.append(problem(row.line, error))
            continue
        target = row.value.get("model_id")
        targets.setdefault(target if isinstance(target, str) else None, []).append(result)
    runs = [_run(source, target, results, several=len(targets) > 1) for target, results in targets.items()]
    return Found(runs, [*problems, *source.damage])


@dataclass(frozen=True)
class _Result:
    """One benchmark; ``drafting``: whether the server drafted, None if that is not known."""

    aggregate: Aggregate
    notes: Sequence[str]
    drafting: bool | None


def _run(source: Source, target: str | None, results: Sequence[_Result], *, several: bool) -> Imported:
    drafting = {result.drafting for result in results}
    return Imported(
        format=NAME,
        label=(target or source.stem) if several else source.stem,
        variant=(target or "no model_id") if several else None,
        counting=Counting(prefill_token="outside", last_step="whole", time="prefill and decode"),
        aggregates=[result.aggregate for result in results],
        mode={True: "draft", False: "plain", None: None}[drafting.pop()] if len(drafting) == 1 else None,
        engine="vllm",
        target=target,
        unknown=["rows per prompt", "drafter", *([] if target else ["target"])],
        notes=list(dict.fromkeys(note for result in results for note in result.notes)),
    )


def _result(row: Mapping[str, Any], subset: str) -> _Result:
    if not _is_result(row):
        raise RowError("not a result of bench serve", "unrelated")
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
    drafts, accepted, draft_tokens = (_counter(row, name) for name in ("drafts", "accepted_tokens", "draft_tokens"))
    if drafts is None or accepted is None:
        return _without_counts(row, Aggregate(subset=subset, **served))
    rates = row.get(f"{_SPEC}per_position_acceptance_rates")
    if rates is not None and not isinstance(rates, list):
        raise RowError("per-position rates are not a list")
    shares = [real(rate, f"rate of position {i}") for i, rate in enumerate(rates or [])]
    if drafts:
        if shares:
            require_rates(shares, accepted, draft_tokens or drafts * len(shares))
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
    skipped = without_draft(drafts, accepted, served["output_tokens"], served["requests"])
    mean_of = PER_DRAFT if skipped else None
    aggregate, notes = counted(subset, drafts, accepted, draft_tokens, at, mean_of=mean_of, **served)
    return _Result(aggregate, [*([skipped] if skipped else []), *notes], True)


def _counter(row: Mapping[str, Any], name: str) -> int | None:
    """A counter under either of its names. Raises RowError where both are there and differ."""
    found = {n for n in (optional_total(row, f"{_SPEC}{stem}{name}") for stem in ("num_", "")) if n is not None}
    if len(found) > 1:
        raise RowError(f"{_SPEC}{name} and {_SPEC}num_{name} differ: {' and '.join(map(str, sorted(found)))}")
    return found.pop() if found else None


def _without_counts(row: Mapping[str, Any], aggregate: Aggregate) -> _Result:
    """A result without drafts and accepted tokens: plain decoding only where nothing in it speaks of a drafter. Raises
    RowError for one that has some of the counters."""
    if some := [name for name in row if name.startswith(_SPEC) and row[name] is not None]:
        missing = [name for name in (f"{_SPEC}num_drafts", f"{_SPEC}accepted_tokens") if row.get(name) is None]
        raise RowError(f"{', '.join(some[:4])} without {' and '.join(missing)}: tokens per step are not known")
    if (named := of_drafting(row)) is not None:
        note = f"{named} names a drafter, but no drafts are counted: tokens per step are not known, only times"
        return _Result(aggregate, [note], None)
    return _Result(aggregate, ["no field of speculative decoding: taken for plain decoding"], False)


def _check_served(row: Mapping[str, Any], served: Mapping[str, Any]) -> None:
    tokens, seconds, rate = served["output_tokens"], served["duration_s"], served["tokens_per_s"]
    if tokens is not None and seconds and rate is not None:
        require_close(rate, tokens / seconds, "output throughput", 0.01 * max(rate, 1e-9))
    lengths = row.get("output_lens")
    if tokens is not None and isinstance(lengths, list) and all(isinstance(n, int) for n in lengths):
        require_close(float(sum(lengths)), float(tokens), "the sum of output_lens", 0.5)
