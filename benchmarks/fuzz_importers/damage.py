"""Mutations of a log of one record after another."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.fuzz_importers.declared import (
    RECORDS,
    REDUCED,
    REFUSED,
    SAME,
    UNKNOWN,
    Case,
    Cases,
    Counts,
    Measure,
    Mutated,
    tokens_and_steps,
)

Record = Any
Path = tuple[Any, ...]


def json_lines(records: Sequence[Record]) -> list[str]:
    """A record to a line."""
    return [json.dumps(record) for record in records]


def csv_lines(records: Sequence[Record]) -> list[str]:
    """A header, and a record to a line."""
    names = list(dict.fromkeys(name for record in records for name in record))
    return [",".join(names), *(",".join(str(record.get(name, "")) for name in names) for record in records)]


@dataclass(frozen=True)
class Format:
    """``make``: a record and its counts; ``render``: the lines of a log of records, with a header if ``csv``.

    ``essential``, ``optional``: paths of fields without which a record cannot be used, or can; ``lists``: of lists that
    cannot be all zeros; ``filler``: of the list that says nothing where it is all zeros in every record. ``whole``: the
    log is one JSON document, so that a cut refuses it. ``also``: outcomes that are right too where an essential field
    is called otherwise everywhere; ``only_once``: fields of which this is no damage. ``rows_of``: how many lines a
    record has. ``binary``: the log's bytes of records, for a file that has no lines. ``part_at``: what a line adds,
    where a record has several and one can be lost alone."""

    name: str
    key: str
    make: Callable[[Random, int], tuple[Record, Counts]]
    essential: Sequence[Path]
    optional: Sequence[Path]
    lists: Sequence[Path] = ()
    filler: Path | None = None
    csv: bool = False
    whole: bool = False
    render: Callable[[Sequence[Record]], list[str]] = json_lines
    measure: Measure = tokens_and_steps
    also: tuple[str, ...] = ()
    only_once: Sequence[Path] = ()
    rows_of: Callable[[Record], int] = lambda record: 1
    binary: Callable[[Sequence[Record]], bytes] | None = None
    suffix: str = ""
    part_at: Callable[[Sequence[Record], int], Counts] | None = None

    def log(self, records: Sequence[Record]) -> bytes:
        """The log of these records."""
        return bytes_of(self.render(records)) if self.binary is None else self.binary(records)

    def record_at(self, records: Sequence[Record], line: int) -> int:
        """The record that a line after the header belongs to."""
        for place, record in enumerate(records):
            line -= self.rows_of(record)
            if line < 0:
                return place
        raise IndexError(line)


def bytes_of(lines: Sequence[str]) -> bytes:
    """Lines as a file."""
    return ("\n".join(lines) + "\n").encode()


def _at(record: Record, path: Path) -> tuple[Any, Any]:
    """(what holds the field, its name)."""
    for name in path[:-1]:
        record = record[name]
    return record, path[-1]


def _untouched(form: Format, rng: Random, records: list[Record]) -> Mutated:
    return Mutated(form.log(records), (SAME,))


def _drop(form: Format, rng: Random, records: list[Record], rename: bool = False) -> Mutated:
    """A field of one record goes, or is called otherwise."""
    place = rng.randrange(len(records))
    path = rng.choice([*form.essential, *form.optional])
    holder, name = _at(records[place], path)
    value = holder.pop(name)
    if rename and not form.csv:
        holder[f"{name}_x"] = value
    lost = path in form.essential
    return Mutated(form.log(records), (REDUCED,) if lost else (SAME,), place if lost else None)


def _rename(form: Format, rng: Random, records: list[Record]) -> Mutated:
    return _drop(form, rng, records, rename=True)


def _rename_all(form: Format, rng: Random, records: list[Record]) -> Mutated:
    """A field is called otherwise in every record."""
    paths = [*form.essential, *form.optional]
    path = rng.choice([p for p in paths if p not in form.only_once])
    for record in records:
        for one in record if isinstance(record, list) else [record]:
            holder, name = _at(one, path[1:] if isinstance(record, list) else path)
            items = [(f"{k}_x" if k == name else k, v) for k, v in holder.items()]
            holder.clear()
            holder.update(items)
    return Mutated(form.log(records), (REFUSED, *form.also) if path in form.essential else (SAME,))


def _repeat(form: Format, rng: Random, records: list[Record]) -> Mutated:
    """A column of a table, or a key of one object, is there twice."""
    lines = form.render(records)
    if form.csv:
        column = rng.randrange(lines[0].count(",") + 1)
        return Mutated(bytes_of([f"{line},{line.split(',')[column]}" for line in lines]), (REFUSED,))
    if form.whole:
        name = rng.choice(list(json.loads(lines[0]))) if lines[0].startswith("{") else None
        if name is None:
            return Mutated(bytes_of([*lines[:-1], lines[-1][:-1] + ', {"a": 1, "a": 2}]']), (REFUSED, REDUCED, SAME))
        return Mutated(bytes_of([lines[0][:-1] + f", {json.dumps(name)}: {json.dumps(None)}}}"]), (REFUSED,))
    place = rng.randrange(len(lines) - 1)  # a last line that cannot be read is one where the writer stopped
    value = json.loads(lines[place])
    name = rng.choice(list(value))
    lines[place] = lines[place][:-1] + f', "{name}": {json.dumps(value[name])}}}'
    return _of_line(form, records, lines, place)


def _of_line(form: Format, records: list[Record], lines: list[str], place: int) -> Mutated:
    """A log of which one line, after the header, cannot be read."""
    part = None if form.part_at is None else form.part_at(records, place)
    return Mutated(bytes_of(lines), (REDUCED,), form.record_at(records, place), part)


def _cut(form: Format, rng: Random, records: list[Record]) -> Mutated:
    """One line breaks off; the end of a document or of a binary file is missing."""
    if form.binary is not None or form.whole:
        data = form.log(records).rstrip()
        return Mutated(data[: rng.randrange(len(data) // 2, len(data) - 1)], (REFUSED,))
    lines = form.render(records)
    first = 1 if form.csv else 0
    place = rng.randrange(first, len(lines))
    line = lines[place]
    lines[place] = line[: rng.randrange(1, line.rfind(",") if form.csv else len(line))]
    return _of_line(form, records, lines, place - first)


def _swap(form: Format, rng: Random, records: list[Record]) -> Mutated:
    """Records stand in another order, and their fields too."""
    rng.shuffle(records)
    rows = [record if isinstance(record, list) else [record] for record in records]
    names = list(rows[0][0])
    rng.shuffle(names)
    swapped = [[{n: row[n] for n in names if n in row} for row in of_record] for of_record in rows]
    return Mutated(form.log([new if isinstance(r, list) else new[0] for r, new in zip(records, swapped, strict=True)]),
                   (SAME,))  # fmt: skip


def _zero(form: Format, rng: Random, records: list[Record]) -> Mutated:
    """The list of one record is all zeros."""
    place = rng.randrange(len(records))
    holder, name = _at(records[place], rng.choice(list(form.lists)))
    holder[name] = [0] * len(holder[name])
    return Mutated(form.log(records), (REDUCED,), place)


def _fill(form: Format, rng: Random, records: list[Record]) -> Mutated:
    """A count is the same filler in every record."""
    assert form.filler is not None
    for record in records:
        holder, name = _at(record, form.filler)
        holder[name] = [0] * len(holder[name])
    return Mutated(form.log(records), (UNKNOWN,))


def _encode(form: Format, rng: Random, records: list[Record]) -> Mutated:
    """A letter of one record is in Latin-1."""
    lines = [line.encode() for line in form.render(records)]
    place = rng.randrange(1 if form.csv else 0, len(lines))
    at = rng.choice([i for i, byte in enumerate(lines[place]) if chr(byte).isalnum()])
    lines[place] = lines[place][:at] + b"\xe9" + lines[place][at + 1 :]
    return Mutated(b"\n".join(lines) + b"\n", (REFUSED,))


MUTATIONS = {
    "untouched": _untouched,
    "drop a field": _drop,
    "rename a field": _rename,
    "rename it everywhere": _rename_all,
    "repeat a column": _repeat,
    "cut a line": _cut,
    "swap the order": _swap,
    "zero a list": _zero,
    "filler everywhere": _fill,
    "a byte of Latin-1": _encode,
}


def cases_of(form: Format, rng: Random) -> Cases:
    """Every mutation that the format can have, once."""
    for name, mutate in MUTATIONS.items():
        if (mutate is _zero and not form.lists) or (mutate is _fill and form.filler is None):
            continue
        if form.binary is not None and mutate in (_repeat, _encode):
            continue
        made = [form.make(rng, number) for number in range(RECORDS)]
        records = json.loads(json.dumps([record for record, _ in made]))
        mutated = mutate(form, rng, records)
        yield Case(form.name, form.key, name, mutated, [count for _, count in made], form.measure, form.suffix)
