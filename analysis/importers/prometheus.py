"""Counters of vLLM and llama.cpp in the Prometheus text format, before and after what is measured.

    vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 255.0

Series of one counter are summed over their labels (engines, models) but ``position``; ``*_created`` are times, not
counts. A file may hold two snapshots, one after the other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from analysis.counting import Counting
from analysis.importers.model import MOST, Found, Imported, RowError
from analysis.importers.source import Problem, Source
from analysis.importers.totals import counted

NAME = "Prometheus counters"
_LINE = re.compile(
    r"^(?P<engine>vllm|llamacpp):spec_decode_num_(?P<name>drafts|draft_tokens|accepted_tokens|accepted_tokens_per_pos)"
    r"_total(?:\{(?P<labels>[^}]*)\})?\s+(?P<value>\S+)"
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Series = tuple[str, tuple[tuple[str, str], ...]]
Snapshot = dict[Series, float]


def recognise(source: Source) -> int:
    """How many lines are counters of speculative decoding."""
    return sum(bool(_LINE.match(line)) for _, line in _lines(source))


def read(source: Source, before: Source | None = None) -> Found:
    """One run: the counters of the file less those of ``before``."""
    snapshots, engine, problems = _snapshots(source)
    notes = []
    if before is not None:
        earlier, _, _ = _snapshots(before)
        if not earlier:
            raise RowError(f"{before.path}: no counter of speculative decoding")
        first = earlier[-1]
    elif len(snapshots) > 1:
        first = snapshots[0]
        notes.append(f"{len(snapshots)} snapshots in the file: the last less the first")
    else:
        first = {}
        notes.append("one snapshot only: counts since the server started (--before FILE gives an earlier one)")
    if not snapshots:
        return Found([], problems)
    try:
        totals, positions = _summed(snapshots[-1], first)
        missing = [name for name in ("drafts", "accepted_tokens") if name not in totals]
        if missing:
            raise RowError(f"no counter {', '.join(missing)}")
        accepted_at = [positions.get(i, 0) for i in range(max(positions) + 1)] if positions else None
        aggregate, told = counted(
            "all requests", totals["drafts"], totals["accepted_tokens"], totals.get("draft_tokens"), accepted_at
        )
    except RowError as error:
        return Found([], [*problems, Problem(None, str(error))])
    models = {value for _, labels in snapshots[-1] for name, value in labels if name == "model_name"}
    run = Imported(
        format=NAME,
        label=source.stem,
        counting=Counting(prefill_token="outside", last_step="whole"),
        aggregates=[aggregate],
        engine=engine,
        target=models.pop() if len(models) == 1 else None,
        unknown=["rows per prompt", "prompts", "drafter", "time"],
        notes=[*notes, *told],
    )
    return Found([run], problems)


def _lines(source: Source) -> Iterable[tuple[int, str]]:
    return ((n, line) for n, line in enumerate(source.head.splitlines(), 1)) if not source.is_parquet else ()


def _snapshots(source: Source) -> tuple[list[Snapshot], str, list[Problem]]:
    snapshots: list[Snapshot] = []
    problems = []
    engine = "vllm"
    for number, line in source.lines():
        found = _LINE.match(line)
        if not found:
            if line.startswith(("vllm:spec_decode", "llamacpp:spec_decode")) and "_created" not in line:
                problems.append(Problem(number, "not a counter that is known, or half a line"))
            continue
        try:
            value = float(found["value"])
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or not 0 <= value <= MOST or not value.is_integer():
            problems.append(Problem(number, f"the count is {found['value'][:40]!r}"))
            continue
        engine = {"vllm": "vllm", "llamacpp": "llama.cpp"}[found["engine"]]
        series = (found["name"], tuple(sorted(_LABEL.findall(found["labels"] or ""))))
        if not snapshots or series in snapshots[-1]:
            snapshots.append({})
        snapshots[-1][series] = value
    return snapshots, engine, problems


def _summed(after: Snapshot, before: Snapshot) -> tuple[dict[str, int], dict[int, int]]:
    """Counts by name, and accepted tokens by position. Raises RowError for a count that fell."""
    totals: dict[str, int] = {}
    positions: dict[int, int] = {}
    for series in after:
        name, labels = series
        count = int(after[series] - before.get(series, 0.0))
        if count < 0:
            raise RowError(f"{name} fell from {before[series]:g} to {after[series]:g}: the server was started anew")
        if name != "accepted_tokens_per_pos":
            totals[name] = totals.get(name, 0) + count
            continue
        position = dict(labels).get("position", "")
        if not re.fullmatch(r"[0-9]{1,4}", position):
            raise RowError(f"accepted tokens at position {position[:20]!r}")
        positions[int(position)] = positions.get(int(position), 0) + count
    return totals, positions
