"""Answer files of Spec-Bench (per step, per turn) and of EAGLE (a count per turn).

    {"question_id": 81, "category": "writing", "model_id": ..., "choices": [{"index": 0, "turns": [...],
     "decoding_steps": [...], "new_tokens": [...], "wall_time": [...], "accept_lengths": [...]}]}

``accept_lengths`` joins the steps of all turns and counts the bonus token; the prefill token is the first step's.
EAGLE's ``idxs`` are the last 0-based index of the loop, so a turn has idx + 1 steps. ``wall_time`` is the whole
generation, prefill too. Both tools append: of a question that was run again the last row counts.

Some methods in Spec-Bench count the last 0-based index as ``decoding_steps`` too, and some one token more where they
saw the stop token: then there is one accept length more than steps in every turn. A file is read so if most of its
rows are so, by its accept lengths. Some write the one turn's text and counts without lists, or no question_id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from analysis.importers.model import (
    Found,
    Imported,
    Response,
    RowError,
    identifier,
    integer,
    integers,
    problem,
    real,
    string,
)
from analysis.importers.reruns import last_runs
from analysis.importers.source import Problem, Row, Source
from analysis.runlog.counting import Counting

NAME = "Spec-Bench / EAGLE answers"
#: Spec-Bench reports the eight categories of MT-Bench as one.
MT_BENCH = frozenset(["writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"])
PLACE = "row "
BY_PLACE = "rows have no question_id: a question is known by its place among its model's rows, and pairs join by it"
CATEGORIES = "category of the questions (--questions FILE gives it)"
FAILED = "ERROR"  # what the tools write for a turn that raised


def recognise(source: Source) -> int:
    """How many of the first rows are answers."""
    return sum(_is_answer(row) for row in source.sample)


def _is_answer(row: Mapping[str, Any]) -> bool:
    choices = row.get("choices")
    if not isinstance(choices, list):
        return False
    return "question_id" in row or bool(choices and isinstance(choices[0], dict) and "new_tokens" in choices[0])


def read(source: Source) -> Found:
    """One run per model of the file."""
    models: dict[str, list[Row]] = {}
    for row in source.rows():
        models.setdefault(str(row.value.get("model_id") or ""), []).append(row)
    problems: list[Problem] = []
    runs = [_run(source, model, rows, problems) for model, rows in models.items()]
    runs = [run for run in runs if run.responses]
    if len(runs) > 1:
        runs = [replace(run, variant=run.label) for run in runs]
    return Found(runs, [*problems, *source.damage])


@dataclass(frozen=True)
class _Rule:
    """``lengths``: whether the file's accept_lengths are there; ``short``: whether its counts of steps are one fewer in
    each turn."""

    lengths: bool
    short: bool = False


def _run(source: Source, model: str, rows: list[Row], problems: list[Problem]) -> Imported:
    rule = _Rule(any(_has_lengths(row) for row in rows))
    found, left_out = _all(rows, rule)
    notes = []
    if left_out and rule.lengths:
        by_lengths, others = _all(rows, replace(rule, short=True))
        if len(by_lengths) > len(found):
            found, left_out = by_lengths, others
            notes.append(
                "decoding_steps are one fewer in each turn than accept_lengths, new_tokens perhaps one more: steps and "
                "tokens are those of accept_lengths"
            )
    problems += left_out
    responses, again = last_runs(found)
    notes += again
    if any(r.prompt_id.startswith(PLACE) for r in responses):
        notes.append(BY_PLACE)
    stated = [r for r in responses if r.emitted is not None]
    if len(stated) < len(responses):
        notes.append(f"{len(responses) - len(stated)} of {len(responses)} turns have a number of steps, but no lengths")
    unknown = ["target", "block size", "drafted tokens per step", "prompt length", "time of prefill alone"]
    if any(r.dataset is None for r in responses):
        unknown.append(CATEGORIES)
    return Imported(
        format=NAME,
        label=model or source.stem,
        counting=Counting(prefill_token="inside", last_step="whole", time="prefill and decode", ids="words"),
        responses=responses,
        mode="plain" if responses and all(r.steps == r.tokens for r in responses) else "draft",
        temperature=_temperature(model),
        unknown=unknown,
        notes=notes,
    )


def _has_lengths(row: Row) -> bool:
    choices = row.value.get("choices")
    return isinstance(choices, list) and any(isinstance(c, dict) and c.get("accept_lengths") for c in choices)


def _all(rows: list[Row], rule: _Rule) -> tuple[list[Response], list[Problem]]:
    responses: list[Response] = []
    problems: list[Problem] = []
    for place, row in enumerate(rows, 1):
        try:
            responses += _responses(row, place, rule)
        except RowError as error:
            problems.append(problem(row.line, error))
    return responses, problems


def _responses(row: Row, place: int, rule: _Rule) -> list[Response]:
    given = row.value.get("question_id")
    question = f"{PLACE}{place}" if given is None else identifier(given, "question_id")
    category = row.value.get("category")
    if category is not None:
        category = string(category, "category")
    choices = row.value.get("choices")
    if not isinstance(choices, list) or not choices:
        raise RowError("choices is empty")
    responses = []
    for number, choice in enumerate(choices):
        if not isinstance(choice, dict):
            raise RowError(f"choices[{number}] is not an object")
        sample = integer(choice.get("index", number), "index", most=2**15 - 1)
        for turn in _turns(choice, rule):
            responses.append(
                Response(
                    prompt_id=question,
                    line=row.line,
                    sample=sample,
                    category=category,
                    dataset="mt_bench" if category in MT_BENCH else category,
                    **turn,
                )
            )
    return responses


def _turns(choice: Mapping[str, Any], rule: _Rule) -> list[dict[str, Any]]:
    """Fields of each turn of a choice. Raises RowError where the file's own counts disagree."""
    new_tokens = integers(_list(choice.get("new_tokens")), "new_tokens", most=2**31 - 1)
    texts = _list(choice.get("turns"))
    if not isinstance(texts, list) or len(texts) != len(new_tokens) or not texts:
        raise RowError(f"turns and new_tokens ({len(new_tokens)}) differ in length, or are empty")
    texts = [string(text, f"turns[{i}]") for i, text in enumerate(texts)]
    if FAILED in (text.strip() for text in texts):
        raise RowError("a turn is the word ERROR: the tool failed there")
    if choice.get("decoding_steps") is not None:
        steps = integers(_list(choice["decoding_steps"]), "decoding_steps", most=2**31 - 2)
    elif choice.get("idxs") is not None:
        steps = [last + 1 for last in integers(_list(choice["idxs"]), "idxs", most=2**31 - 3)]
    else:
        raise RowError("neither decoding_steps nor idxs: the number of verification steps is not known")
    if len(steps) != len(texts):
        raise RowError(f"{len(steps)} counts of steps for {len(texts)} turns")
    if rule.short:
        steps = [count + 1 for count in steps]
    for turn, (tokens, count) in enumerate(zip(new_tokens, steps, strict=True)):
        if tokens < count:
            raise RowError(f"turn {turn} has {tokens} new tokens in {count} steps; each step gives one at least")
    seconds = _list(choice.get("wall_time"))
    if seconds is not None and (not isinstance(seconds, list) or len(seconds) != len(texts)):
        raise RowError("wall_time and turns differ in length")
    lengths = _split(choice.get("accept_lengths"), steps, new_tokens, rule)
    if lengths is not None:
        new_tokens = [sum(turn) for turn in lengths]
    return [
        {
            "turn": turn,
            "emitted": lengths[turn] if lengths is not None else None,
            "steps": steps[turn],
            "tokens": new_tokens[turn],
            "output_tokens": new_tokens[turn],
            "seconds": real(seconds[turn], "wall_time") if seconds is not None else None,
            "text": text,
        }
        for turn, text in enumerate(texts)
    ]


def _list(value: Any) -> Any:
    """The value of a single turn that stands without a list, in one."""
    return value if value is None or isinstance(value, list) else [value]


def _split(joined: Any, steps: list[int], new_tokens: list[int], rule: _Rule) -> list[list[int]] | None:
    """accept_lengths by turn, held against the file's identities."""
    if joined is None and not rule.short:
        return None
    if joined == [] and not rule.lengths:
        return None
    lengths = integers(joined, "accept_lengths", least=1)
    if len(lengths) != sum(steps):
        more = "decoding_steps and one for each turn" if rule.short else "decoding_steps"
        raise RowError(f"{len(lengths)} accept_lengths, but {more} sum to {sum(steps)}")
    if not rule.short and sum(lengths) != sum(new_tokens):
        raise RowError(f"accept_lengths sum to {sum(lengths)}, but new_tokens to {sum(new_tokens)}")
    split, start = [], 0
    for turn, (count, tokens) in enumerate(zip(steps, new_tokens, strict=True)):
        split.append(lengths[start : start + count])
        start += count
        if not 0 <= tokens - sum(split[-1]) <= rule.short:
            raise RowError(f"accept_lengths of turn {turn} sum to {sum(split[-1])}, but its new_tokens are {tokens}")
    return split


def _temperature(label: str) -> float | None:
    found = re.search(r"temp(?:erature)?-(\d+(?:\.\d+)?)", label)
    return float(found.group(1)) if found else None
