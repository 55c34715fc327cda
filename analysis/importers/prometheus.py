"""Counters of vLLM and llama.cpp in the Prometheus text format, before and after what is measured.

    vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 255.0

Series of one counter are summed over their labels (engines, models) but ``position``; ``*_created`` are times, not
counts. Each engine's counters must agree with each other, or are left out. A file may hold several snapshots, one after
the other: what is counted is their rise, from 0 again where an engine's counters fell.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from analysis.importers.model import MOST, PER_DRAFT, Aggregate, Found, Imported, RowError, problem
from analysis.importers.source import Problem, Source
from analysis.importers.totals import STEPS_WITHOUT_DRAFT, counted, without_draft
from analysis.runlog.counting import Counting

NAME = "Prometheus counters"
ALL = "all requests"
_LINE = re.compile(
    r"^\s*(?P<engine>vllm|llamacpp):(?:spec_decode_num_)?"
    r"(?P<name>drafts|draft_tokens|accepted_tokens|accepted_tokens_per_pos|generation_tokens|request_success)"
    r'_total(?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?\s+(?P<value>\S+)'
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Series = tuple[str, tuple[tuple[str, str], ...]]
Snapshot = dict[Series, float]


def recognise(source: Source) -> int:
    """How many lines are counters of speculative decoding."""
    return sum(bool(_LINE.match(line)) and "spec_decode" in line for line in source.opening())


def read(source: Source, before: Source | None = None) -> Found:
    """One run: the counters of the file less those of ``before``."""
    snapshots, engine, problems = _snapshots(source)
    notes = []
    if before is not None:
        earlier, _, _ = _snapshots(before)
        if not earlier:
            raise RowError(f"{before.path}: no counter of speculative decoding")
        snapshots = [earlier[-1], *snapshots] if snapshots else []
    elif len(snapshots) > 1:
        notes.append(f"{len(snapshots)} snapshots in the file: their rise from the first to the last")
    else:
        snapshots = [{}, *snapshots] if snapshots else []
        notes.append("one snapshot only: counts since the server started (--before FILE gives an earlier one)")
    if not snapshots:
        return Found([], problems)
    engines: dict[str, list[Series]] = {}
    for series in {series: None for snapshot in snapshots[1:] for series in snapshot}:
        engines.setdefault(dict(series[1]).get("engine", ""), []).append(series)
    good: list[Aggregate] = []
    told: list[str] = []
    for name, its in engines.items():
        which = f"engine {name or 'without a name'}" if len(engines) > 1 else ""
        try:
            # engine by engine, since a sum could hide what contradicts itself
            rise, starts = _rise(its, snapshots)
            if before is not None:
                _require_before(its, snapshots[0], starts)
            aggregate, notes_of_engine = _aggregate(rise)
        except RowError as error:
            problems.append(problem(None, error, f"{which} left out: " if which else ""))
            continue
        if starts:
            notes.append(
                f"{which or 'the server'} was started anew {starts} time{'s'[: starts != 1]}: its counters fell, and "
                "count from 0 after it; what it did between the last snapshot before and the start is lost"
            )
        good.append(aggregate)
        told += [note for note in notes_of_engine if note not in told]
    if not good:
        return Found([], problems)
    models = {value for _, labels in snapshots[-1] for name, value in labels if name == "model_name"}
    run = Imported(
        format=NAME,
        label=source.stem,
        counting=Counting(prefill_token="outside", last_step="whole"),
        aggregates=[_summed(good)],
        engine=engine,
        target=models.pop() if len(models) == 1 else None,
        unknown=["rows per prompt", "prompts", "drafter", "time", STEPS_WITHOUT_DRAFT],
        notes=[*notes, *told],
    )
    return Found([run], problems)


def _snapshots(source: Source) -> tuple[list[Snapshot], str, list[Problem]]:
    snapshots: list[Snapshot] = []
    problems = []
    engine = "vllm"
    for number, line in source.lines():
        found = _LINE.match(line)
        if not found:
            if line.lstrip().startswith(("vllm:spec_decode", "llamacpp:spec_decode")) and "_created" not in line:
                # what is lost with half a line shows in the counters' identities
                problems.append(Problem(number, "not a counter that is known, or half a line", "unrelated"))
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


def _rise(engine: Iterable[Series], snapshots: Sequence[Snapshot]) -> tuple[Counter[Series], int]:
    """What an engine's series rose by from the first snapshot to the last, and how often it was started anew: then
    all of them start at 0, though some may be higher than they were."""
    last = {series: snapshots[0].get(series, 0.0) for series in engine}
    rise: Counter[Series] = Counter()
    starts = 0
    for snapshot in snapshots[1:]:
        anew = any(snapshot.get(series, count) < count for series, count in last.items())
        starts += anew
        for series, count in last.items():
            if series in snapshot:
                rise[series] += int(snapshot[series] - (0.0 if anew else count))
                last[series] = snapshot[series]
    return rise, starts


def _require_before(engine: Iterable[Series], before: Snapshot, starts: int) -> None:
    """Raises RowError if ``before`` is no earlier state of the same engine."""
    if starts:
        raise RowError("counts fell: the server was started anew")
    names = {name for name, _ in before}
    if lacking := [(name, labels) for name, labels in engine if name in names and (name, labels) not in before]:
        name, labels = lacking[0]
        there = next(other for counter, other in before if counter == name)
        raise RowError(f"{name} of {_labels(labels)} is not among the counters before, which are of {_labels(there)}")


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join(f'{name}="{value[:60]}"' for name, value in labels) + "}"


def _aggregate(rise: Mapping[Series, int]) -> tuple[Aggregate, list[str]]:
    """One engine's totals, with notes. Raises RowError for counts that lack or contradict."""
    totals: Counter[str] = Counter()
    positions: Counter[int] = Counter()
    for (name, labels), count in rise.items():
        if name != "accepted_tokens_per_pos":
            totals[name] += count
            continue
        position = dict(labels).get("position", "")
        if not re.fullmatch(r"[0-9]{1,4}", position):
            raise RowError(f"accepted tokens at position {position[:20]!r}")
        positions[int(position)] += count
    if missing := [name for name in ("drafts", "accepted_tokens") if name not in totals]:
        raise RowError(f"no counter {', '.join(missing)}", "no steps")
    accepted_at = [positions[i] for i in range(max(positions) + 1)] if positions else None
    drafts, accepted = totals["drafts"], totals["accepted_tokens"]
    skipped = without_draft(drafts, accepted, totals.get("generation_tokens"), totals.get("request_success"))
    aggregate, notes = counted(
        ALL, drafts, accepted, totals.get("draft_tokens"), accepted_at, mean_of=PER_DRAFT if skipped else None
    )
    return aggregate, [*([skipped] if skipped else []), *notes]


def _summed(engines: list[Aggregate]) -> Aggregate:
    """All engines; what one that drafted does not tell, their sum does not tell either."""
    busy = [engine for engine in engines if engine.drafts] or engines[:1]
    draft_tokens = [engine.draft_tokens for engine in busy]
    at = [engine.accepted_at for engine in busy]
    aggregate, _ = counted(
        ALL,
        sum(engine.drafts or 0 for engine in busy),
        sum(engine.accepted or 0 for engine in busy),
        sum(n for n in draft_tokens if n is not None) if None not in draft_tokens else None,
        [sum(column) for column in zip_longest(*(a for a in at if a), fillvalue=0)] if None not in at else None,
        mean_of=next((engine.mean_of for engine in busy if engine.mean_of), None),
    )
    return aggregate
