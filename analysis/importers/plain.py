"""CSV, JSON lines and Parquet of any tool, with a mapping from our field names to its columns.

* one row per verification step: ``prompt_id`` and ``accepted`` (draft tokens) or ``emitted`` (with the bonus);
* one row per response: ``prompt_id``, ``steps`` and ``tokens`` or ``emitted`` (in steps, with the bonus), ``accepted``
  (draft tokens in all) or ``output_tokens``; or a list ``acceptance_lengths``.

Columns that already have our names need no mapping; ``arm`` says which method made a row. Names say what is counted, so
nothing is guessed; whether ``output_tokens`` holds the prefill token is asked (``--prefill-token``), and said where it
is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from analysis.errors import UsageError
from analysis.importers import responses as lists
from analysis.importers import specbench
from analysis.importers.arms import PREFIX, arms_of, by_arm
from analysis.importers.columns import FIELDS, Table
from analysis.importers.model import (
    Found,
    Imported,
    Response,
    RowError,
    integer,
    last_of_each,
    optional_integer,
    optional_real,
    problem,
    string,
)
from analysis.importers.source import Problem, Row, Source
from analysis.importers.step_table import Key, Steps, StepTable, batches_of, dataset_of, key_of
from analysis.runlog.counting import Counting
from analysis.wording import counted

NAME = "plain table"
#: The field of ``--map`` that says under which keys of a JSON object the rows stand.
ROWS = "rows"
Prefill = Literal["inside", "outside", "unknown"]
#: No block is longer: more draft tokens in one row are totals.
_LONGEST_DRAFT = 64


def parse_mapping(pairs: list[str]) -> dict[str, str]:
    """{our field: column} of ``field=column`` arguments. Raises UsageError for an unknown field."""
    known = dict.fromkeys([*FIELDS, *specbench.OF_ROW, *specbench.OF_CHOICE, ROWS])
    mapping = {}
    for pair in pairs:
        name, found, column = pair.partition("=")
        if not found or name not in known or not column:
            raise UsageError(f"--map {pair}: write FIELD=COLUMN, where FIELD is one of {', '.join(known)}")
        mapping[name] = column
    return mapping


def recognise(source: Source, mapping: Mapping[str, str] | None = None) -> int:
    """1 if the columns allow a reading: an id, and counts of steps or of responses."""
    return int(_kind(Table.open(source, mapping or {}).fields().values()) is not None)


def _kind(names: Iterable[str]) -> str | None:
    names = set(names)
    counts = {"accepted", "emitted"} & names
    if "prompt_id" not in names:
        return None
    if "acceptance_lengths" in names:
        return "list"
    if "steps" in names and (counts or {"tokens", "output_tokens"} & names) and not (counts and "step" in names):
        return "response"
    return "step" if counts else None


def read(source: Source, mapping: Mapping[str, str] | None = None, prefill: Prefill = "unknown") -> Found:
    """One run: the table. Raises RowError for one that has no rows, a column twice, or totals where steps should be."""
    problems: list[Problem] = []
    table = Table.open(source, mapping or {})
    if name := table.repeated():
        raise RowError(f"two columns are called {name}, and nothing says which one counts; rename one")
    left_out: list[Problem] = []
    common = partial(_common, left_out=left_out)
    if table.has_columns and _kind(table.fields().values()) == "step":
        responses = _steps(table.steps(problems), common, problems)
        return _found(source, "step", responses, prefill, problems, left_out, "step" in table.fields().values())
    rows = list(table.rows(problems))
    kinds = [kind for row in rows if (kind := _kind(row.value))]
    if not kinds:
        if not rows and not problems:
            raise RowError("a table with columns, but no row")
        return Found([], [*problems, Problem(None, "no row has prompt_id and counts; --map FIELD=COLUMN names them")])
    kind = max(set(kinds), key=lambda k: (kinds.count(k), k))
    if kind == "list":
        named = [
            Row(row.line, {**_ours(row), "num_output_tokens": row.value.get("output_tokens")}, _others(row))
            for row in rows
        ]
        found = lists.read_rows(source, named, NAME)
        runs = [replace(run, responses=_whole_ids(run.responses)) for run in found.runs]
        return Found(runs, [*problems, *found.problems])
    if kind == "step":
        responses = _steps(batches_of(rows), common, problems)
    else:
        responses = _responses(rows, common, problems, prefill)
    numbered = any(row.value.get("step") is not None for row in rows)
    return _found(source, kind, responses, prefill, problems, left_out, numbered)


def _found(
    source: Source,
    kind: str,
    responses: list[Response],
    prefill: Prefill,
    problems: list[Problem],
    left_out: list[Problem],
    numbered: bool,
) -> Found:
    if not responses and not problems:
        raise RowError("a table with columns, but no row")
    notes = []
    if left_out:
        notes.append(f"{counted(len(left_out), 'value')} left out, the rows kept; the first: {left_out[0]}")
    if kind == "step" and not numbered:
        notes += _require_steps(responses)
    if kind == "response" and prefill == "unknown" and any(r.tokens is None for r in responses):
        notes.append(
            "not known whether output_tokens holds the prefill token; counted as if it did "
            "(--prefill-token inside or outside settles it)"
        )
    inside: Prefill = "outside" if kind == "step" else prefill
    run = Imported(
        format=NAME,
        label=source.stem,
        counting=Counting(prefill_token=inside, last_step="unknown", time="prefill and decode", ids="words"),
        responses=_whole_ids(
            [
                replace(r, tokens=max((r.output_tokens or 0) - int(prefill == "outside"), 0)) if r.tokens is None else r
                for r in responses
            ]
        ),
        unknown=["target", "drafter", "block size"],
        notes=notes,
    )
    return Found(by_arm(run), problems)


def _ours(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.value.items() if not name.startswith(PREFIX)}


def _others(row: Row) -> dict[str, Any]:
    """The columns that may tell arms apart."""
    return {**row.more, **{name: value for name, value in row.value.items() if name.startswith(PREFIX)}}


def _identity(row: Row) -> tuple[str, int, int] | None:
    try:
        return key_of(row)[:3]
    except RowError:
        return None


def _require_steps(responses: Sequence[Response]) -> list[str]:
    """Notes on rows that have no number of a step and are mostly one per prompt: their counts may be a prompt's.
    Raises RowError where they are more than a block has."""
    alone = [r for r in responses if r.steps == 1]
    if 2 * len(alone) <= len(responses):
        return []
    say = "steps (their number) beside the totals, or step (0, 1, ...) where a row is one step"
    for r in alone:
        if (r.tokens or 0) > _LONGEST_DRAFT + 1 or (r.drafted or 0) > _LONGEST_DRAFT:
            counts = f"{(r.tokens or 0) - 1} accepted" + (f" of {r.drafted} drafted" if r.drafted is not None else "")
            raise RowError(
                f"one row per prompt, and line {r.line} has {counts} tokens: totals of prompts, which are no "
                f"verification steps. Add a column {say}"
            )
    return [f"one row per prompt, each taken as one verification step; if they are totals, add a column {say}"]


def _whole_ids(responses: Sequence[Response]) -> list[Response]:
    """Ids without ".0" where all have it: pandas writes a column of integers so if one was missing."""
    if not all(_bare_id(r).removesuffix(".0").isdecimal() and r.prompt_id.endswith(".0") for r in responses):
        return list(responses)
    return [replace(r, prompt_id=r.prompt_id.removesuffix(".0")) for r in responses]


def _bare_id(response: Response) -> str:
    return response.prompt_id.removeprefix("" if response.dataset is None else f"{response.dataset}/")


def _steps(batches: Iterable[Steps], common: Callable[[Row, Key], Response], problems: list[Problem]) -> list[Response]:
    table = StepTable(common, problems)
    for batch in batches:
        table.add(batch)
    return table.responses()


def _responses(
    rows: list[Row], common: Callable[[Row, Key], Response], problems: list[Problem], prefill: Prefill
) -> list[Response]:
    responses = []
    for row, arm in zip(rows, arms_of(rows, _identity, _others), strict=True):
        try:
            if _kind(row.value) != "response":
                raise RowError("no steps, or none of tokens, output_tokens, accepted and emitted")
            steps = integer(row.value.get("steps"), "steps")
            output = optional_integer(row.value, "output_tokens")
            tokens = _tokens(row.value, steps)
            if (total := output if tokens is None else tokens) is None:
                raise RowError("none of tokens, output_tokens, accepted and emitted")
            if total < steps:
                raise RowError(f"{total} tokens in {steps} steps; each step gives one at least")
            if tokens is not None and output is not None:
                _require_sum(tokens, output, prefill)
            response = common(row, key_of(row))
            responses.append(replace(response, arm=arm, steps=steps, tokens=tokens, output_tokens=output))
        except RowError as error:
            problems.append(problem(row.line, error))
    return last_of_each(responses, problems)


def _require_sum(tokens: int, output: int, prefill: Prefill) -> None:
    """Raises RowError unless the tokens in steps are the output: all of it, or all but the prefill token; and at most
    a block more, where the last step is listed whole."""
    least = output if prefill == "inside" else max(output - 1, 0)
    if not least <= tokens <= output + _LONGEST_DRAFT:
        raise RowError(
            f"accepted + steps, the tokens in steps, is {tokens}, but output_tokens is {output}: they must be "
            "equal, or differ by the token of prefill"
        )


def _tokens(value: Mapping[str, Any], steps: int) -> int | None:
    """Tokens in steps, as stated or as accepted and bonus tokens. Raises RowError where the counts disagree."""
    stated = optional_integer(value, "tokens" if value.get("tokens") is not None else "emitted")
    accepted, drafted = (optional_integer(value, name) for name in ("accepted", "drafted"))
    if accepted is None:
        if drafted is not None and stated is not None and stated - steps > drafted:
            raise RowError(f"{stated} tokens in {steps} steps: {stated - steps} accepted of {drafted} drafted")
        return stated
    if drafted is not None and accepted > drafted:
        raise RowError(f"{accepted} accepted of {drafted} drafted")
    if stated is not None and not accepted + steps - _LONGEST_DRAFT <= stated <= accepted + steps:
        raise RowError(f"{stated} tokens in {steps} steps with {accepted} accepted; together {accepted + steps}")
    return accepted + steps if stated is None else stated


def _common(row: Row, key: Key, *, left_out: list[Problem]) -> Response:
    """The fields that say nothing of steps. What is no number among those that may be missing is left out."""
    value = row.value

    def optional(read: Callable[[Mapping[str, Any], str], Any], name: str) -> Any:
        try:
            return read(value, name)
        except RowError as error:
            left_out.append(problem(row.line, error))
            return None

    text, question = value.get("text"), value.get("question")
    if isinstance(text, int | float):
        text = str(text)  # an answer that is a number
    return Response(
        prompt_id=key[0],
        line=row.line,
        turn=key[1],
        sample=key[2],
        dataset=dataset_of(value),
        category=None if value.get("category") is None else str(value["category"]),
        question=question if isinstance(question, str) and question.strip() else None,
        prompt_tokens=optional(optional_integer, "prompt_tokens"),
        seconds=optional(optional_real, "seconds"),
        prefill=optional(optional_real, "prefill_s"),
        text=string(text, "text") if text is not None else None,
    )
