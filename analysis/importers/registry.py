"""The formats that are known, and which of them a file is."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.errors import DataError, UsageError
from analysis.importers import (
    cast,
    ccdflash,
    declined,
    loglines,
    plain,
    printed,
    prometheus,
    responses,
    sglang,
    specbench,
    specforge,
    tables,
    timed,
    unknown,
    vllm,
)
from analysis.importers.columns import FIELDS
from analysis.importers.encodings import require_decodable
from analysis.importers.model import Found, Imported, RowError
from analysis.importers.nested import lists_of_records, parse_path
from analysis.importers.reasons import by_reason
from analysis.importers.source import Source


@dataclass(frozen=True)
class Format:
    """``recognise`` gives the number of rows (or 1) that speak for the format, 0 if none does; ``by_rows``: its rows
    are each read by themselves, so that any file can be tried."""

    key: str
    recognise: Callable[[Source], int]
    read: Callable[[Source], Found]
    by_rows: bool = True


#: From the most particular to the most general; of equal claims the first has the file.
FORMATS = (
    Format("ccdflash", ccdflash.recognise, ccdflash.read),
    Format("specbench", specbench.recognise, specbench.read),
    Format("sglang", sglang.recognise, sglang.read),
    Format("vllm", vllm.recognise, vllm.read),
    Format("timed", timed.recognise, timed.read),
    Format("specforge", specforge.recognise, specforge.read, by_rows=False),
    Format("cast", cast.recognise, cast.read, by_rows=False),
    Format("modelopt", tables.recognise_modelopt, tables.read_modelopt, by_rows=False),
    Format("speculators", tables.recognise_speculators, tables.read_speculators, by_rows=False),
    Format("prometheus", prometheus.recognise, prometheus.read),
    Format("log", loglines.recognise, loglines.read),
    Format("printed", printed.recognise, printed.read),
    Format("responses", responses.recognise, responses.read),
    Format("plain", plain.recognise, plain.read),
)

#: Found among the lines of a server's or a script's output, in which other lines may be anything.
_OF_LINES = {"log", "printed", "prometheus"}
#: See :class:`Options`.
MOST_INVALID = 0.05


@dataclass(frozen=True)
class Options:
    """What a user may say about a file. ``format``: a key of FORMATS, or ``auto``; ``encoding``: of its text, if it is
    not UTF-8; ``most_invalid``: of its records this share may be unusable, since of more the rest is another sample."""

    format: str = "auto"
    before: Path | None = None
    mapping: Mapping[str, str] | None = None
    prefill_token: plain.Prefill = "unknown"
    encoding: str | None = None
    most_invalid: float = MOST_INVALID

    def as_arguments(self) -> str:
        """What every command that takes a log would have to be given again."""
        words = [f"--map {shlex.quote(f'{name}={column}')}" for name, column in (self.mapping or {}).items()]
        words += [f"--encoding {shlex.quote(self.encoding)}"] if self.encoding else []
        words += [f"--max-bad {self.most_invalid:g}"] if self.most_invalid != MOST_INVALID else []
        return " ".join(words)


def read_file(path: Path | str, options: Options | None = None) -> tuple[str, Found]:
    """(format key, what the file holds).

    Raises UsageError for no such file; DataError, in one line, for a file that is no log that is known, and for one of
    which no row could be used.
    """
    options = options or Options()
    source = Source.open(path, options.encoding)
    if why := declined.foreign(source):
        raise DataError(f"{path}: {why}")
    mapping = dict(options.mapping or {})
    if (rows := mapping.pop(plain.ROWS, None)) is not None:
        source = _inside(source, parse_path(rows))
        options = replace(options, mapping=mapping or None)
    if options.format != "auto":
        key, source = options.format, replace(source, whole=True)
    else:
        key, source = _recognise(source, options)
    if key not in _OF_LINES:
        require_decodable(source)
    try:
        found = _read(key, source, options)
    except RowError as error:
        raise DataError(f"{path}: {error}") from error
    found = replace(found, runs=[_said_inside(run, source) for run in found.runs if run.responses or run.aggregates])
    if not found.runs:
        left_out = [("", problem) for problem in found.problems if problem.kind != "detail"]
        why = f": {by_reason(left_out)}" if left_out else ""
        raise DataError(f"{path}: taken as {key}, but no row could be used ({len(left_out)} left out{why})")
    return key, found


def _recognise(source: Source, options: Options) -> tuple[str, Source]:
    """The format, and the source in which it shows."""
    if options.before is not None:
        return "prometheus", source
    if options.mapping:
        return ("specbench" if _of_answers(options.mapping, source) else "plain"), source
    if why := declined.reason(source):
        raise DataError(f"{source.path}: {why}")
    # the opening tells, but of a log with a long start; a table is told by its opening or not at all
    for looked_at in (source, replace(source, whole=True)):
        scores = {f.key: f.recognise(looked_at) for f in FORMATS}
        if most := max(scores.values()):
            # of formats that know about as many rows the most particular: one damaged row does not change it
            return next(key for key, score in scores.items() if 2 * score >= most), looked_at
    if not source.inside and (nested := _nested(source)) is not None:
        return nested
    if why := declined.reason_of_text(replace(source, whole=True)):
        raise DataError(f"{source.path}: {why}")
    raise DataError(f"{source.path}: {unknown.described(source, [f.key for f in FORMATS])}")


def _inside(source: Source, path: tuple[str, ...]) -> Source:
    """The rows under these keys. Raises DataError if there is no list of objects."""
    there = replace(source, inside=path)
    if not isinstance(there.document, list) or not there.sample:
        known = [".".join(p) for p in lists_of_records(source.document)]
        raise DataError(
            f"{source.path}: no list of objects under {'.'.join(path)}; there are {', '.join(known[:8]) or 'none'}"
        )
    return there


def _nested(source: Source) -> tuple[str, Source] | None:
    """The format of the one list of records within a JSON object, and the source of its rows; None if there is none.
    Raises DataError where there are several."""
    found = []
    for path in lists_of_records(source.document):
        there = replace(source, inside=path)
        scores = {f.key: f.recognise(there) for f in FORMATS if f.by_rows}
        best = max(scores, key=lambda key: scores[key])
        if scores[best]:
            found.append((best, there))
    if len(found) > 1:
        paths = [".".join(there.inside) for _, there in found]
        raise DataError(
            f"{source.path}: lists of records under {', '.join(paths[:8])}; --map rows={paths[0]}[] takes one of them"
        )
    return found[0] if found else None


def _said_inside(run: Imported, source: Source) -> Imported:
    where = f"rows taken from {'.'.join(source.inside)}"
    return replace(run, notes=[where, *run.notes]) if source.inside else run


def _of_answers(mapping: Mapping[str, str], source: Source) -> bool:
    """Whether a mapping is of answer files' fields."""
    if set(mapping) <= {*specbench.OF_ROW, *specbench.OF_CHOICE}:
        return not set(mapping) <= set(FIELDS) or bool(specbench.recognise(source))
    return False


def _read(key: str, source: Source, options: Options) -> Found:
    if key == "specbench":
        return specbench.read(source, options.mapping)
    if key == "plain":
        return plain.read(source, options.mapping, options.prefill_token)
    if key == "prometheus" and options.before is not None:
        return prometheus.read(source, Source.open(options.before))
    for known in FORMATS:
        if known.key == key:
            if not known.by_rows and not known.recognise(source):
                raise DataError(f"{source.path}: not of the format '{key}'")
            return known.read(source)
    raise UsageError(f"no format '{key}'; known: auto, {', '.join(f.key for f in FORMATS)}")
