"""Rows of one response each with its list of acceptance lengths, as people dump the statistics of DFlash's own
``dflash_generate(return_stats=True)``.

    {"question_id": 3, "dataset": "gsm8k", "acceptance_lengths": [4, 7, 2], "num_output_tokens": 14,
     "time_per_output_token": 0.004}

That function counts the bonus token, no prefill token, and may cut the last step, or the output alone; its time per
token is the decoding time over *all* output tokens. How a file counts is found from its own sums; a rule that fewer
than half of its rows keep is none.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, cast

from analysis.importers.arms import arms_of, by_arm
from analysis.importers.conventions import CONVENTIONS, WHOLE, fit
from analysis.importers.model import (
    MOST,
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
from analysis.wording import counted

NAME = "acceptance lengths per response"
LENGTHS = ("acceptance_lengths", "accept_lengths", "accept_length_list", "acceptance_length_list")
TOTALS = ("num_output_tokens", "output_tokens", "completion_tokens", "new_tokens")
IDS = ("prompt_id", "question_id", "sample_id", "id", "task_id", "index", "idx", "sample_index")
DATASETS = ("dataset", "benchmark", "subset", "task")
SAMPLES = ("sample", "repetition", "seed")
TEXTS = ("output_text", "response", "output", "text")
PLACE = "row "
#: Where the lists of a batch stand in their row.
PART = "part of the row"
DATASETS_UNKNOWN = "data sets"
BY_PLACE = "rows have no id: a prompt is known by its place in the file, and pairs join by it"
IDS_OUT = ("output_ids", "output_token_ids", "token_ids")


def recognise(source: Source) -> int:
    """How many of the first rows have a list of lengths of their own."""
    return sum(isinstance(first(row, LENGTHS), list) and "choices" not in row for row in source.sample)


def first(row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """The first of these fields that is there and not null."""
    return next((row[name] for name in names if row.get(name) is not None), None)


def read(source: Source) -> Found:
    """One run for each arm of the file."""
    return read_rows(source, source.rows(), NAME)


def read_rows(source: Source, rows: Iterable[Row], name: str) -> Found:
    """One run per arm of rows that hold lists of lengths, wherever they were read."""
    problems: list[Problem] = []
    raw: list[tuple[Row, list[int], int | None]] = []
    warm_ups = 0
    for row in itertools.chain.from_iterable(map(_parts, rows)):
        if row.value.get("is_warmup") is True:
            warm_ups += 1
            continue
        try:
            raw.append((row, _lengths(row.value), _total(row.value)))
        except RowError as error:
            problems.append(problem(row.line, error))
    arms = arms_of([row for row, _, _ in raw], _identity, _others)
    arm_of_row = {id(row): arm for (row, _, _), arm in zip(raw, arms, strict=True)}
    with_total = [(lengths, total) for _, lengths, total in raw if total is not None]
    convention, kept = fit(with_total) if with_total else (CONVENTIONS[0], 0)
    notes = [f"{counted(warm_ups, 'warm-up row')} of the file dropped"] if warm_ups else []
    if not with_total:
        notes.append(f"no row states its output tokens, so the counting could not be checked; taken as: {convention}")
    elif convention == WHOLE:
        past = sum(convention.beyond(lengths, total) > 0 for lengths, total in with_total)
        notes.append(
            f"the file's sums show that it counts {convention}: in {past} of {len(with_total)} rows the last step goes "
            "past the end of the output, and counts as it was accepted"
        )
    elif convention != CONVENTIONS[0]:
        notes.append(f"the file's sums show that it counts {convention}; steps are given with the bonus token")
    responses = []
    for row, lengths, total in raw:
        try:
            if total is not None and (2 * kept < len(with_total) or not convention.holds(lengths, total)):
                raise RowError(
                    f"{len(lengths)} lengths sum to {sum(lengths)} with {total} output tokens; {kept} of "
                    f"{len(with_total)} rows count {convention}"
                )
            emitted = lengths if convention.bonus else [length + 1 for length in lengths]
            if 0 in emitted:
                raise RowError(f"step {emitted.index(0)} adds no token, though lengths count the bonus token")
            responses.append(replace(_response(row, emitted, total), arm=arm_of_row[id(row)]))
        except RowError as error:
            problems.append(problem(row.line, error))
    responses = last_of_each(responses, problems)
    unknown = ["target", "block size"]
    if any(r.placed for r in responses):
        notes.append(BY_PLACE)
    if responses and all(r.dataset is None for r in responses):
        unknown.append(DATASETS_UNKNOWN)
    run = Imported(
        format=name,
        label=source.stem,
        counting=Counting(
            prefill_token=cast(Literal["outside", "inside"], convention.prefill) if with_total else "outside",
            last_step="whole" if convention.whole else "unknown",
            time="prefill and decode",
            ids="tokens" if any(r.ids is not None for r in responses) else "words",
        ),
        responses=responses,
        unknown=unknown,
        notes=notes,
    )
    return Found(by_arm(run), [*problems, *source.damage])


def _total(row: Mapping[str, Any]) -> int | None:
    total = first(row, TOTALS)
    return None if total is None else integer(total, "output tokens")


def _parts(row: Row) -> Iterator[Row]:
    """The row, or of one with a list of lists a row for each: turns of a prompt that has an id, prompts of their own
    in a batch that has none. Totals that are a list of as many stand beside them; one total belongs to all."""
    nested = first(row.value, LENGTHS)
    if not isinstance(nested, list) or not nested or not all(isinstance(part, list) for part in nested):
        yield row
        return
    totals = first(row.value, TOTALS)
    lengths = next(name for name in LENGTHS if row.value.get(name) is not None)
    if totals is not None and not (isinstance(totals, list) and len(totals) == len(nested)):
        yield replace(row, value={**row.value, lengths: [n for part in nested for n in part]})
        return
    named = first(row.value, IDS) is not None
    bare = {name: value for name, value in row.value.items() if name not in (*TOTALS, "turn")}
    for number, part in enumerate(nested):
        own = {lengths: part, **({} if totals is None else {TOTALS[0]: totals[number]})}
        place = {"turn": number} if named else {PART: number + 1}
        yield replace(row, value={**bare, **own, **place})


def _lengths(row: Mapping[str, Any]) -> list[int]:
    """The list of a row, whole, or of one list for each of its parts."""
    found = first(row, LENGTHS)
    if found is None:
        raise RowError("no list of acceptance lengths", "unrelated" if first(row, TOTALS) is None else "invalid")
    if not found:
        raise RowError("no verification step", "no steps")
    return integers(found, "acceptance_lengths")


def _identity(row: Row) -> tuple[str, int, int] | None:
    if first(row.value, IDS) is None:
        return None  # rows without an id are never one prompt
    try:
        place = place_of(row)
    except RowError:
        return None
    return place["prompt_id"], place["turn"], place["sample"]


def _others(row: Row) -> Mapping[str, Any]:
    known = {*LENGTHS, *TOTALS, *IDS, *DATASETS, *SAMPLES, *TEXTS, *IDS_OUT, "turn", "category"}
    return {name: value for name, value in row.others.items() if name not in known}


def place_of(row: Row) -> dict[str, Any]:
    """The fields of a response that say which it is: prompt_id, turn, sample, dataset. A row without an id is known by
    its place in the file."""
    value = row.value
    dataset = first(value, DATASETS)
    dataset = None if dataset is None else string(dataset, "dataset")
    given = first(value, IDS)
    place = f"{PLACE}{row.line}" if PART not in value else f"{PLACE}{row.line}.{value[PART]}"
    prompt_id = place if given is None else identifier(given, "id")
    return {
        # ids of benchmark files start anew in each data set
        "prompt_id": prompt_id if dataset is None else f"{dataset}/{prompt_id}",
        "turn": integer(value.get("turn") or 0, "turn", most=2**15 - 1),
        "sample": integer(first(value, SAMPLES) or 0, "sample", most=MOST),
        "dataset": dataset,
        "placed": given is None,
    }


def _response(row: Row, emitted: list[int], total: int | None) -> Response:
    value = row.value
    seconds = optional_real(value, "time_per_output_token")
    ids, text = first(value, IDS_OUT), first(value, TEXTS)
    return Response(
        **place_of(row),
        line=row.line,
        emitted=emitted,
        steps=len(emitted),
        tokens=sum(emitted),
        output_tokens=total,
        prompt_tokens=optional_integer(value, "num_input_tokens"),
        seconds=seconds * total if seconds is not None and total is not None else None,
        prefill=optional_real(value, "time_to_first_token"),
        ids=integers(ids, "output ids", most=2**31 - 1) if ids is not None else None,
        text=text if isinstance(text, str) and ids is None else None,
    )
