"""Answer files of Spec-Bench (per step, per turn) and of EAGLE (a count per turn).

    {"question_id": 81, "category": "writing", "model_id": ..., "choices": [{"index": 0, "turns": [...],
     "decoding_steps": [...], "new_tokens": [...], "wall_time": [...], "accept_lengths": [...]}]}

``accept_lengths`` joins the steps of all turns and counts the bonus token; the prefill token is the first step's.
EAGLE's ``idxs`` are the last 0-based index of the loop, so a turn has idx + 1 steps. ``wall_time`` is the whole
generation, prefill too. Both tools append: of a question that was run again the last row counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from analysis.counting import Counting
from analysis.importers.model import (
    Found,
    Imported,
    Response,
    RowError,
    identifier,
    integer,
    integers,
    last_of_each,
    real,
    string,
)
from analysis.importers.source import Problem, Row, Source

NAME = "Spec-Bench / EAGLE answers"
#: Spec-Bench reports the eight categories of MT-Bench as one.
MT_BENCH = frozenset(["writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"])
FAILED = "ERROR"  # what the tools write for a turn that raised


def recognise(source: Source) -> int:
    """How many of the first rows are answers."""
    return sum("question_id" in row and isinstance(row.get("choices"), list) for row in source.sample)


def read(source: Source) -> Found:
    """One run per model of the file."""
    models: dict[str, list[Response]] = {}
    problems: list[Problem] = []
    for row in source.rows():
        try:
            responses = _responses(row)
            models.setdefault(str(row.value.get("model_id") or ""), []).extend(responses)
        except RowError as error:
            problems.append(Problem(row.line, str(error)))
    runs = [
        _run(source, model, last_of_each(responses, problems), several=len(models) > 1)
        for model, responses in models.items()
    ]
    return Found(runs, [*problems, *source.damage])


def _run(source: Source, model: str, responses: list[Response], *, several: bool) -> Imported:
    notes = []
    stated = [r for r in responses if r.emitted is not None]
    if len(stated) < len(responses):
        notes.append(f"{len(responses) - len(stated)} of {len(responses)} turns have a number of steps, but no lengths")
    unknown = ["target", "block size", "drafted tokens per step", "prompt length", "time of prefill alone"]
    if any(r.dataset is None for r in responses):
        unknown.append("category of the questions (--questions FILE gives it)")
    return Imported(
        format=NAME,
        label=model or source.stem,
        variant=(model or "without model_id") if several else None,
        counting=Counting(prefill_token="inside", last_step="whole", time="prefill and decode", ids="words"),
        responses=responses,
        mode="plain" if responses and all(r.steps == r.tokens for r in responses) else "draft",
        temperature=_temperature(model),
        unknown=unknown,
        notes=notes,
    )


def _responses(row: Row) -> list[Response]:
    question = identifier(row.value.get("question_id"), "question_id")
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
        for turn in _turns(choice):
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


def _turns(choice: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Fields of each turn of a choice. Raises RowError where the file's own counts disagree."""
    new_tokens = integers(choice.get("new_tokens"), "new_tokens", most=2**31 - 1)
    texts = choice.get("turns")
    if not isinstance(texts, list) or len(texts) != len(new_tokens) or not texts:
        raise RowError(f"turns and new_tokens ({len(new_tokens)}) differ in length, or are empty")
    texts = [string(text, f"turns[{i}]") for i, text in enumerate(texts)]
    if FAILED in (text.strip() for text in texts):
        raise RowError("a turn is the word ERROR: the tool failed there")
    if choice.get("decoding_steps") is not None:
        steps = integers(choice["decoding_steps"], "decoding_steps", most=2**31 - 1)
    elif choice.get("idxs") is not None:
        steps = [last + 1 for last in integers(choice["idxs"], "idxs", most=2**31 - 2)]
    else:
        raise RowError("neither decoding_steps nor idxs: the number of verification steps is not known")
    if len(steps) != len(texts):
        raise RowError(f"{len(steps)} counts of steps for {len(texts)} turns")
    for turn, (tokens, count) in enumerate(zip(new_tokens, steps, strict=True)):
        if tokens < count:
            raise RowError(f"turn {turn} has {tokens} new tokens in {count} steps; each step gives one at least")
    seconds = choice.get("wall_time")
    if seconds is not None and (not isinstance(seconds, list) or len(seconds) != len(texts)):
        raise RowError("wall_time and turns differ in length")
    lengths = _split(choice.get("accept_lengths"), steps, new_tokens)
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


def _split(joined: Any, steps: list[int], new_tokens: list[int]) -> list[list[int]] | None:
    """accept_lengths by turn, held against the file's identities."""
    if joined is None:
        return None
    lengths = integers(joined, "accept_lengths", least=1)
    if len(lengths) != sum(steps):
        raise RowError(f"{len(lengths)} accept_lengths, but decoding_steps sum to {sum(steps)}")
    if sum(lengths) != sum(new_tokens):
        raise RowError(f"accept_lengths sum to {sum(lengths)}, but new_tokens to {sum(new_tokens)}")
    split, start = [], 0
    for turn, (count, tokens) in enumerate(zip(steps, new_tokens, strict=True)):
        split.append(lengths[start : start + count])
        start += count
        if sum(split[-1]) != tokens:
            raise RowError(f"accept_lengths of turn {turn} sum to {sum(split[-1])}, but its new_tokens are {tokens}")
    return split


def _temperature(label: str) -> float | None:
    found = re.search(r"temp(?:erature)?-(\d+(?:\.\d+)?)", label)
    return float(found.group(1)) if found else None
