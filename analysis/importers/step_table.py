"""Tables of verification steps, column by column: what holds of a value is asked once per distinct value.

A table of 10^7 steps has few distinct counts and at most a row's worth of ids in fifty. So columns come as codes into
their distinct values; a value is judged by the same rules as a row's, and rows only by comparing integers. A row that
is not good is then judged by itself, for its reason.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from analysis.importers.arms import PREFIX, Arm, arm_of
from analysis.importers.model import MOST, Response, RowError, identifier, integer, optional_integer, problem
from analysis.importers.source import Problem, Row
from analysis.wording import counted

Key = tuple[str, int, int, Arm]
_SMALL, _INT32 = 2**15 - 1, 2**31 - 1
_NONE = -1
_TWICE = "if a column tells the rows apart, --map arm=COLUMN or sample=COLUMN names it"
#: Fields that decide whether a row can be used, and whose it is.
JUDGED = ("prompt_id", "turn", "sample", "dataset", "step", "accepted", "emitted", "drafted")


def _is_judged(name: str) -> bool:
    return name in JUDGED or name.startswith(PREFIX)


@dataclass(frozen=True, eq=False)
class Column:
    """(n,) ``codes`` into ``values``, Python's or Arrow's; a negative code is null."""

    codes: NDArray[Any]
    values: Sequence[Any]

    def at(self, row: int) -> Any:
        code = int(self.codes[row])
        value = None if code < 0 else self.values[code]
        return _python(value) if isinstance(value, pa.Scalar) else value


@dataclass(frozen=True, eq=False)
class Steps:
    """Some rows of the table: ``lines`` (n,) and columns of n rows by field."""

    lines: NDArray[np.int64]
    columns: Mapping[str, Column]

    def row(self, number: int) -> Row:
        return Row(int(self.lines[number]), {name: column.at(number) for name, column in self.columns.items()})


def of_rows(rows: Sequence[Row]) -> Steps:
    """The rows as columns; a field that a row lacks is null."""
    names = dict.fromkeys(name for row in rows for name in row.value)
    columns = {name: _encoded([row.value.get(name) for row in rows], _is_judged(name)) for name in names}
    return Steps(np.array([row.line for row in rows], np.int64), columns)


def _encoded(values: list[Any], few: bool) -> Column:
    """The values as a column; where ``few`` of them are distinct, each once."""
    if few:
        places: dict[Any, int] = {}
        try:  # with their class, since True, 1 and 1.0 are equal
            codes = [places.setdefault((value.__class__, value), len(places)) for value in values]
        except TypeError:  # lists and objects, which are nowhere right
            pass
        else:
            return Column(np.array(codes), [value for _, value in places])
    return Column(np.arange(len(values)), values)


def key_of(row: Row) -> Key:
    """(prompt, turn, sample, arm) of a row. Raises RowError."""
    value = row.value
    dataset = dataset_of(value)
    prompt_id = identifier(value.get("prompt_id"), "prompt_id")
    turn = integer(value.get("turn") or 0, "turn", most=_SMALL)
    sample = integer(value.get("sample") or 0, "sample", most=MOST)  # perhaps a seed
    # ids of benchmark files start anew in each data set
    arm = arm_of(value, [name for name in value if name.startswith(PREFIX)])
    return (prompt_id if dataset is None else f"{dataset}/{prompt_id}"), turn, sample, arm


def dataset_of(value: Mapping[str, Any]) -> str | None:
    """The data set of a row, which may be called by a number; None if it has none. Raises RowError."""
    dataset = value.get("dataset")
    return None if dataset is None or dataset == "" else identifier(dataset, "dataset")


def require_sound(value: Mapping[str, Any]) -> None:
    """Raises RowError with the reason why the counts of a row cannot be a step's."""
    emitted = None
    if value.get("emitted") is not None:
        emitted = integer(value["emitted"], "emitted", least=1, most=_SMALL)
    accepted = optional_integer(value, "accepted", most=_SMALL - 1)
    if emitted is None and accepted is None:
        raise RowError("neither accepted nor emitted")
    if emitted is not None and accepted is not None and emitted > accepted + 1:
        raise RowError(f"{emitted} tokens emitted with {accepted} accepted; one more is the most")
    drafted = optional_integer(value, "drafted", most=_SMALL)
    accepted = (emitted or 1) - 1 if accepted is None else accepted
    if drafted is not None and accepted > drafted:
        raise RowError(f"{accepted} accepted of {drafted} drafted")
    if value.get("step") is not None:
        integer(value["step"], "step")


def of_table(table: pa.Table, first_line: int) -> Steps:
    """The rows of an Arrow table as columns. Columns that are not judged (:data:`JUDGED`) stay as they are."""
    columns = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        codes, values = np.arange(len(column)), column
        if _is_judged(name):
            try:
                encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
                codes, values = encoded.indices.fill_null(-1).to_numpy(), values_of(encoded.dictionary)
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # no number or string: judged one by one
                values = values_of(column)
        columns[name] = Column(codes, values)
    return Steps(first_line + np.arange(len(table)), columns)


def values_of(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Python's values of a column. Text that is not UTF-8 comes as bytes, which no field takes."""
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [_python(scalar) for scalar in column]


def _python(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return scalar.cast(pa.large_binary()).as_py() if scalar.type in (pa.string(), pa.large_string()) else b""


class StepTable:
    """Takes the rows of a file, and gives the responses that they are steps of."""

    def __init__(self, first_row: Callable[[Row, Key], Response], problems: list[Problem]):
        """``first_row`` makes a response, but for its steps, of its first row; it may raise RowError."""
        self._first_row, self._problems = first_row, problems
        self._numbers: dict[Key, int] = {}
        self._rows: list[Row] = []  # the first good row of each key
        self._bad: dict[Key, int] = {}
        self._parts: list[tuple[NDArray[Any], ...]] = []

    def add(self, steps: Steps) -> None:
        """All rows that can be used; the others become problems."""
        counts, good = _counts(steps)
        keys, numbers, known = _keys(steps)
        good &= known
        for row in map(int, np.flatnonzero(~good)):
            self._refuse(steps.row(row))
        rows = np.flatnonzero(good)
        if not rows.size:
            return
        present, first = np.unique(numbers[rows], return_index=True)
        number_of = np.full(len(keys), -1)
        for place in np.argsort(first):
            key = keys[present[place]]
            if key not in self._numbers:
                self._numbers[key] = len(self._rows)
                self._rows.append(steps.row(int(rows[first[place]])))
            number_of[present[place]] = self._numbers[key]
        step, *small = (column[rows] for column in counts)  # all in range, so that these types hold them
        numbered = number_of[numbers[rows]].astype(np.int32), steps.lines[rows], step.astype(np.int32)
        self._parts.append((*numbered, *(column.astype(np.int16) for column in small)))

    def _refuse(self, row: Row) -> None:
        try:
            key = key_of(row)
        except RowError as error:
            self._problems.append(problem(row.line, error))
            return
        try:
            require_sound(row.value)
        except RowError as error:
            self._problems.append(Problem(row.line, str(error), "detail"))  # its prompt is left out, and counts
        self._bad.setdefault(key, row.line)

    def responses(self) -> list[Response]:
        """One per key, with its steps in order. All steps of a response go if one of them is bad, for their sum would
        be wrong."""
        unread = [place for place, p in enumerate(self._problems) if p.kind == "invalid"]
        if not self._parts:
            return []
        number, line, step, emitted, accepted, drafted = (np.concatenate(c) for c in zip(*self._parts, strict=True))
        self._parts.clear()
        numbered = step != _NONE
        step = np.where(numbered, step, line)
        partly = (np.bincount(number, numbered) > 0) & (np.bincount(number, ~numbered) > 0)
        order = np.lexsort((step, number))
        number, step, emitted, accepted, drafted = (c[order] for c in (number, step, emitted, accepted, drafted))
        ends = np.cumsum(np.bincount(number, minlength=len(self._rows)))
        starts = np.concatenate([[0], ends[:-1]])
        again = (number[1:] == number[:-1]) & (step[1:] == step[:-1])
        twice = np.zeros(len(self._rows), bool)
        twice[number[1:][again]] = True
        judged = (np.bincount(number, numbered[order]) > 0) & ~partly & ~twice
        judged[[self._numbers[key] for key in self._bad if key in self._numbers]] = False
        lost = _missing(step[starts], step[ends - 1], ends - starts, judged)
        self._count_once(unread, int(lost.sum()))
        tokens = np.add.reduceat(emitted.astype(np.int64), starts)
        least, most = np.minimum.reduceat(drafted, starts), np.maximum.reduceat(drafted, starts)
        found = []
        for key, i in self._numbers.items():
            row = self._rows[i]
            if key in self._bad:
                reason = f"prompt {key[0]} left out whole: its row on line {self._bad[key]} is bad"
                self._problems.append(Problem(row.line, reason))
                continue
            if partly[i] or twice[i]:
                what = "some of its steps have no number" if partly[i] else f"a step of it occurs twice ({_TWICE})"
                self._problems.append(Problem(row.line, f"prompt {key[0]} left out: {what}"))
                continue
            if lost[i]:
                reason = f"prompt {key[0]} left out: by their numbers it lacks {counted(int(lost[i]), 'step')}"
                self._problems.append(Problem(row.line, reason))
                continue
            try:
                response = self._first_row(row, key)
            except RowError as error:
                self._problems.append(Problem(row.line, f"{error}; prompt {key[0]} left out whole"))
                continue
            where = slice(starts[i], ends[i])
            found.append(
                replace(
                    response,
                    arm=key[3],
                    emitted=array("h", emitted[where].tobytes()),
                    accepted=array("h", accepted[where].tobytes()),
                    drafted=int(least[i]) if least[i] == most[i] != _NONE else None,
                    steps=int(ends[i] - starts[i]),
                    tokens=int(tokens[i]),
                    output_tokens=None,
                )
            )
        return found

    def _count_once(self, unread: Sequence[int], missing: int) -> None:
        """Rows that could not be read, of which ``missing`` are the steps that responses lack: these count already, as
        the responses that are left out. ``unread``: places of the rows' problems."""
        for place in unread[:missing]:
            self._problems[place] = replace(self._problems[place], kind="detail")


def _missing(
    first: NDArray[np.int64], last: NDArray[np.int64], count: NDArray[np.int64], judged: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """(n,) steps that are missing from each of the ``judged`` responses, by its numbers ``first`` to ``last``, which
    begin at 0 or 1. None are missing where most responses have gaps: their numbers are positions and not counts."""
    begin = int(np.bincount(np.minimum(first[judged], 2), minlength=3).argmax())
    gaps = np.where(judged, np.maximum(last - begin + 1 - count, 0), 0)
    counts = begin < 2 and 2 * int((gaps[judged] == 0).sum()) > int(judged.sum())
    return gaps if counts else np.zeros(len(first), np.int64)


def _integers(
    steps: Steps, name: str, judge: Callable[[Any], int], null: int = _NONE
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """((n,) values of a column, (n,) whether each is one); null, which is one, is ``null``."""
    n = steps.lines.size
    if name not in steps.columns:
        return np.full(n, null), np.ones(n, bool)
    column = steps.columns[name]
    values, good = np.full(len(column.values) + 1, null), np.ones(len(column.values) + 1, bool)  # the last is for null
    for place, value in enumerate(column.values):
        if value is None:
            continue
        try:
            values[place] = judge(value)
        except RowError:
            good[place] = False
    return values[column.codes], good[column.codes]


def _counts(steps: Steps) -> tuple[tuple[NDArray[np.int64], ...], NDArray[np.bool_]]:
    """((n,) step, emitted, accepted, drafted; _NONE for a step or draft that is not stated), and which rows are sound,
    as :func:`require_sound` has it."""
    step, good = _integers(steps, "step", lambda v: integer(v, "step"))
    emitted, sound = _integers(steps, "emitted", lambda v: integer(v, "emitted", least=1, most=_SMALL))
    good &= sound
    accepted, sound = _integers(steps, "accepted", lambda v: integer(v, "accepted", most=_SMALL - 1))
    good &= sound
    drafted, sound = _integers(steps, "drafted", lambda v: integer(v, "drafted", most=_SMALL))
    good &= sound & ((emitted != _NONE) | (accepted != _NONE))
    emitted = np.where(emitted == _NONE, accepted + 1, emitted)
    accepted = np.where(accepted == _NONE, emitted - 1, accepted)
    good &= (emitted <= accepted + 1) & ((drafted == _NONE) | (accepted <= drafted))
    return (step, emitted, accepted, drafted), good


def _keys(steps: Steps) -> tuple[list[Key], NDArray[np.int64], NDArray[np.bool_]]:
    """(distinct keys, (n,) number of each row's, (n,) whether it has one)."""
    n = steps.lines.size
    code, radix = np.zeros(n, np.int64), 1
    for name in ("prompt_id", "dataset", "turn", "sample", *(n for n in steps.columns if n.startswith(PREFIX))):
        if name in steps.columns:
            column = steps.columns[name]
            if radix * (len(column.values) + 1) >= 2**62:
                code, radix = np.unique(code, return_inverse=True)[1], n
            code = code * (len(column.values) + 1) + column.codes + 1
            radix *= len(column.values) + 1
    _, first, numbers = np.unique(code, return_index=True, return_inverse=True)
    found: dict[Key, int] = {}
    number_of, good = np.zeros(first.size, np.int64), np.ones(first.size, bool)
    for place, row in enumerate(first):
        try:
            key = key_of(steps.row(int(row)))
        except RowError:
            good[place] = False
            continue
        number_of[place] = found.setdefault(key, len(found))
    return list(found), number_of[numbers], good[numbers]


def batches_of(rows: Iterable[Row]) -> Iterable[Steps]:
    """Rows as columns, some at a time."""
    waiting: list[Row] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) == 10_000:
            yield of_rows(waiting)
            waiting = []
    if waiting:
        yield of_rows(waiting)
