"""Answer files of Spec-Bench (per step, per turn) and of EAGLE (a count per turn).

    {"question_id": 81, "category": "writing", "model_id": ..., "choices": [{"index": 0, "turns": [...],
     "decoding_steps": [...], "new_tokens": [...], "wall_time": [...], "accept_lengths": [...]}]}

``accept_lengths`` joins the steps of all turns and counts the bonus token; the prefill token is the first step's.
EAGLE's ``idxs`` are the last 0-based index of the loop, so a turn has idx + 1 steps. ``wall_time`` is the whole
generation, prefill too. Both tools append: of a question that was run again the last row counts.

Some methods in Spec-Bench count the last 0-based index as ``decoding_steps`` too, and some one token more where they
saw the stop token: then there is one accept length more than steps in every turn. A file is read so if most of its
rows are so, by its accept lengths. Some write the one turn's text and counts without lists, or no question_id. A count
that is the same filler in every row (``idxs`` all 0) was not measured: such a file has times, and no steps.
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
#: Fields that ``--map`` may name, of a row and of its choices.
OF_ROW = ("question_id", "category")
OF_CHOICE = ("turns", "new_tokens", "decoding_steps", "idxs", "wall_time", "accept_lengths")
#: No block gives more tokens in a step.
_LONGEST_STEP = 65
FAILED = "ERROR"  # what the tools write for a turn that raised


def recognise(source: Source) -> int:
    """How many of the first rows are answers."""
    return sum(_is_answer(row) for row in source.sample)


def _is_answer(row: Mapping[str, Any]) -> bool:
    choices = row.get("choices")
    if not isinstance(choices, list):
        return False
    return "question_id" in row or bool(choices and isinstance(choices[0], dict) and "new_tokens" in choices[0])


def read(source: Source, mapping: Mapping[str, str] | None = None) -> Found:
    """One run per model of the file. ``mapping``: the file's names of our fields, where they are others."""
    models: dict[str, list[Row]] = {}
    for row in source.rows():
        row = _renamed(row, mapping) if mapping else row
        models.setdefault(str(row.value.get("model_id") or ""), []).append(row)
    problems: list[Problem] = []
    runs = [_run(source, model, rows, problems) for model, rows in models.items()]
    runs = [run for run in runs if run.responses]
    if len(runs) > 1:
        runs = [replace(run, variant=run.label) for run in runs]
    return Found(runs, [*problems, *source.damage])


def _renamed(row: Row, mapping: Mapping[str, str]) -> Row:
    """The row with our names of its fields, and of its choices'."""
    value = {**row.value, **{ours: row.value[name] for ours, name in mapping.items() if name in row.value}}
    if isinstance(choices := value.get("choices"), list):
        value["choices"] = [
            {**choice, **{ours: choice[name] for ours, name in mapping.items() if name in choice}}
            if isinstance(choice, dict)
            else choice
            for choice in choices
        ]
    return replace(row, value=value)


@dataclass(frozen=True)
class _Rule:
    """``lengths``: whether the file's accept_lengths are there; ``short``: whether its counts of steps are one fewer in
    each turn; ``measured``: whether its counts of steps are no filler."""

    lengths: bool
    short: bool = False
    measured: bool = True


def _run(source: Source, model: str, rows: list[Row], problems: list[Problem]) -> Imported:
    rule = _Rule(any(_has_lengths(row) for row in rows), measured=_is_measured(rows))
    found, left_out = _all(rows, rule)
    notes = []
    if not rule.measured:
        notes.append("every count of steps is the same filler: verification steps were not measured, only times were")
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
    if len(stated) < len(responses) and rule.measured:
        notes.append(f"{len(responses) - len(stated)} of {len(responses)} turns have a number of steps, but no lengths")
    unknown = ["target", "block size", "drafted tokens per step", "prompt length", "time of prefill alone"]
    if any(r.dataset is None for r in responses):
        unknown.append(CATEGORIES)
    # one token a step throughout, of all that was recorded
    plain = rule.measured and bool(responses) and all(r.steps == r.tokens for r in responses)
    plain = plain and not any(p.kind == "invalid" for p in left_out)
    return Imported(
        format=NAME,
        label=model or source.stem,
        counting=Counting(prefill_token="inside", last_step="whole", time="prefill and decode", ids="words"),
        responses=responses,
        mode=("plain" if plain else "draft") if rule.measured else None,
        temperature=_temperature(model),
        unknown=unknown,
        notes=notes,
    )


def _is_measured(rows: list[Row]) -> bool:
    """Whether counts of steps are more than a filler: one value in all rows that no loop would leave, 0 for a last
    index, 0 for a number of steps, or 1 where so many tokens came that no block holds them."""
    counts: set[Any] = set()
    most: float = 0
    by_index = False
    for row in rows:
        choices = row.value.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                continue
            if choice.get("accept_lengths"):
                return True
            steps = choice.get("decoding_steps")
            by_index = by_index or steps is None
            found = _list(choice.get("idxs") if steps is None else steps) or []
            tokens = _list(choice.get("new_tokens")) or []
            counts.update(n for n in found if isinstance(n, int | float))
            most = max([most, *(n for n in tokens if isinstance(n, int | float))])
    if by_index:
        return not counts or not counts <= {0, -1}
    return not counts or not (counts <= {0, -1} or (counts == {1} and most > _LONGEST_STEP))


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
        raise RowError("choices is empty", "unrelated" if choices is None and given is None else "invalid")
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
                    placed=given is None,
                    sample=sample,
                    category=category,
                    dataset="mt_bench" if category in MT_BENCH else category,
                    **turn,
                )
            )
    return responses


def _turns(choice: Mapping[str, Any], rule: _Rule) -> list[dict[str, Any]]:
    """Fields of each turn of a choice. Raises RowError where the file's own counts disagree."""
    for name in ("new_tokens", "turns"):
        if choice.get(name) is None:
            raise RowError(
                f"choices have no {name} (they have {', '.join(sorted(choice)[:12])}); --map {name}=FIELD says which "
                "field holds it"
            )
    new_tokens = integers(_list(choice["new_tokens"]), "new_tokens", most=2**31 - 1)
    texts = _list(choice["turns"])
    if not isinstance(texts, list) or len(texts) != len(new_tokens) or not texts:
        raise RowError(f"turns and new_tokens ({len(new_tokens)}) differ in length, or are empty")
    texts = [string(text, f"turns[{i}]") for i, text in enumerate(texts)]
    if FAILED in (text.strip() for text in texts):
        raise RowError("a turn is the word ERROR: the tool failed there", "failed")
    steps: list[int]
    if not rule.measured:
        steps = [0] * len(texts)
    elif choice.get("decoding_steps") is not None:
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
    lengths = _split(choice.get("accept_lengths"), steps, new_tokens, rule) if rule.measured else None
    if lengths is not None:
        new_tokens = [sum(turn) for turn in lengths]
    return [
        {
            "turn": turn,
            "emitted": lengths[turn] if lengths is not None else None,
            "steps": steps[turn] if rule.measured else None,
            "tokens": new_tokens[turn] if rule.measured else None,
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
