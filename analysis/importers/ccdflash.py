"""Traces of CC-DFlash: four conditions in one file, each a run; warm-ups are dropped.

C1 plain decoding, C2 DFlash, C3 and C4 the same on compressed prompts. A row is of plain decoding where it says so
(``runtime_condition``, or its condition's id) and states nothing of a draft. ``acceptance_lengths`` count the bonus
token and are cut at the stop token, the prefill token is in none: they sum to generated_token_count - 1.
``accepted_tokens`` counts what the last step accepted before the cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.importers.model import (
    Found,
    Imported,
    Response,
    RowError,
    identifier,
    integer,
    integers,
    last_of_each,
    optional_integer,
    optional_real,
    problem,
    string,
)
from analysis.importers.source import Problem, Row, Source
from analysis.runlog.counting import Counting

NAME = "CC-DFlash trace"
#: What only a drafter's row states, and what one without a drafter calls itself.
_OF_DRAFTS = ("draft_calls", "drafted_tokens", "verification_calls", "accepted_tokens", "draft_time_ms", "tau")
_PLAIN = ("baseline", "plain", "ar", "autoregressive", "Baseline-AR")


def recognise(source: Source) -> int:
    """How many of the first rows are of a four-condition trace."""
    return sum("condition_id" in row and "generated_token_count" in row for row in source.sample)


def read(source: Source) -> Found:
    """One run per condition, in order of their ids."""
    found: dict[str, list[Response]] = {}
    titles: dict[str, str] = {}
    targets: dict[str, str] = {}
    problems: list[Problem] = []
    warm_ups = 0
    for row in source.rows():
        try:
            condition = identifier(row.value.get("condition_id"), "condition_id")
            if row.value.get("is_warmup") is True or row.value.get("phase") == "warmup":
                warm_ups += 1
                continue
            response = _response(row)
            found.setdefault(condition, []).append(response)
            titles.setdefault(condition, string(row.value.get("condition") or condition, "condition"))
            model = row.value.get("model")
            # plain decoding names its only model, speculative decoding the target apart
            for name in ("target_model_id", "model_id"):
                if isinstance(model, dict) and isinstance(model.get(name), str):
                    targets.setdefault(condition, model[name])
        except RowError as error:
            problems.append(problem(row.line, error))
    runs = []
    for condition in sorted(found):
        responses = last_of_each(found[condition], problems)
        runs.append(
            Imported(
                format=NAME,
                label=titles[condition],
                variant=condition,
                counting=Counting(),
                responses=responses,
                mode="plain" if all(r.emitted is None for r in responses) else "draft",
                target=targets.get(condition),
                unknown=["block size of the last step", "training of the drafter"],
                notes=[f"{warm_ups} warm-up rows of the file dropped"] if warm_ups else [],
            )
        )
    return Found(runs, [*problems, *source.damage])


def _response(row: Row) -> Response:
    value = row.value
    if value.get("status") not in (None, "success"):
        raise RowError(f"status is {str(value.get('status'))[:40]!r}, not success", "failed")
    generated = integer(value.get("generated_token_count"), "generated_token_count")
    ids = value.get("generated_token_ids")
    if ids is not None:
        ids = integers(ids, "generated_token_ids", most=2**31 - 1)
        if len(ids) != generated:
            raise RowError(f"{len(ids)} generated_token_ids, but generated_token_count is {generated}")
    milliseconds = {
        name: optional_real(value, f"{name}_time_ms") for name in ("decode", "draft", "verify", "target_prefill")
    }
    seconds = {name: None if ms is None else ms / 1000 for name, ms in milliseconds.items()}
    question = value.get("original_prompt_text")
    kind = "compressed" if value.get("prompt_kind") == "compressed" else "original"
    return Response(
        prompt_id=identifier(value.get("sample_id"), "sample_id"),
        line=row.line,
        sample=integer(value.get("repetition") or 0, "repetition", most=2**15 - 1),
        dataset=string(value.get("dataset") or str(value.get("sample_id")).split("-")[0], "dataset"),
        question=question if isinstance(question, str) and question.strip() else None,
        output_tokens=generated,
        prompt_tokens=optional_integer(value, f"target_full_{kind}_tokens"),
        seconds=seconds["decode"],
        prefill=seconds["target_prefill"],
        draft=seconds["draft"],
        verify=seconds["verify"],
        finish_reason=str(value["stop_reason"]) if value.get("stop_reason") else None,
        ids=ids,
        **_steps(value, generated),
    )


def _is_plain(value: Mapping[str, Any]) -> bool:
    """Whether a row says that nothing was drafted."""
    stated = value.get("runtime_condition")
    if isinstance(stated, str):
        return stated in _PLAIN
    return value.get("condition_id") in ("C1", "C3") or value.get("condition") in _PLAIN


def _steps(value: Mapping[str, Any], generated: int) -> dict[str, Any]:
    """Steps of a row, none for plain decoding. Raises RowError where the row's own counts disagree."""
    if value.get("acceptance_lengths") is None:
        if (named := next((name for name in _OF_DRAFTS if value.get(name)), None)) or not _is_plain(value):
            raise RowError(f"no acceptance_lengths, though {named or 'the condition'} speaks of a drafter")
        return {"steps": max(generated - 1, 0), "tokens": max(generated - 1, 0)}
    emitted = integers(value["acceptance_lengths"], "acceptance_lengths", least=1)
    if sum(emitted) + 1 != generated:
        raise RowError(f"acceptance_lengths sum to {sum(emitted)}, not to generated_token_count - 1 = {generated - 1}")
    calls = optional_integer(value, "verification_calls")
    if calls is not None and calls != len(emitted):
        raise RowError(f"{len(emitted)} acceptance_lengths, but verification_calls is {calls}")
    if not emitted:
        raise RowError("no verification step", "no steps")
    drafted_tokens = optional_integer(value, "drafted_tokens")
    drafted = None
    if drafted_tokens is not None and emitted and drafted_tokens % len(emitted) == 0:
        drafted = drafted_tokens // len(emitted)
    accepted = [length - 1 for length in emitted]
    total = optional_integer(value, "accepted_tokens")
    if total is not None and accepted:
        accepted[-1] += total - sum(accepted)  # accepted, then cut off at the stop token
        if accepted[-1] < emitted[-1] - 1 or (drafted is not None and accepted[-1] > drafted):
            raise RowError(f"accepted_tokens is {total}, but acceptance_lengths allow {sum(emitted) - len(emitted)}")
    return {"emitted": emitted, "accepted": accepted, "drafted": drafted, "steps": len(emitted), "tokens": sum(emitted)}
