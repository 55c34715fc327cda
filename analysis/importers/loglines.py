"""Log lines of vLLM servers and of llama.cpp, pooled over the file: lines weigh by their steps.

What the lines mean stands with each engine (:mod:`vllm_lines`, :mod:`llama_lines`). Where passes of the target without
a draft are possible and not counted, the mean is one over drafts, and is called so.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from analysis import wording
from analysis.importers import llama_lines, vllm_lines
from analysis.importers.model import PER_DRAFT, Aggregate, Found, Imported, RowError, problem
from analysis.importers.source import Problem, Source
from analysis.importers.totals import STEPS_WITHOUT_DRAFT, counted
from analysis.importers.windows import Window, with_lengths
from analysis.runlog.counting import Counting

NAME = "server log lines"


def recognise(source: Source) -> int:
    """How many of the first lines state acceptance."""
    return sum(vllm_lines.is_line(line) or llama_lines.is_line(line) for line in source.opening())


def read(source: Source) -> Found:
    """One run: the lines pooled. Raises RowError where a window that states no drafts would bend the mean."""
    lines = [(number, line) for number, line in source.lines()]
    engines = {
        "vllm": any(vllm_lines.is_line(line) for _, line in lines),
        "llama.cpp": any(llama_lines.is_line(line) for _, line in lines),
    }
    if all(engines.values()):
        raise RowError("lines of vLLM and of llama.cpp in one file; give each server's log by itself")
    return _vllm(source, lines) if engines["vllm"] else _llama(source, lines)


def _vllm(source: Source, lines: Sequence[tuple[int, str]]) -> Found:
    problems: list[Problem] = []
    windows: list[tuple[int, Window | None, tuple[int, int]]] = []
    totals: list[vllm_lines.SinceStart] = []
    for number, line in lines:
        try:
            if vllm_lines.V0 in line:
                totals.append(vllm_lines.since_start(line))
            elif vllm_lines.V1 in line:
                windows.append((number, *vllm_lines.window(line)))
        except RowError as error:
            problems.append(problem(number, error))
    if totals and windows:
        raise RowError("lines of vLLM V0 and of V1 in one file; give each server's log by itself")
    skips = any(vllm_lines.SKIPS.search(line) for _, line in lines)
    if totals:
        return _since_start(source, totals, problems)
    whole = with_lengths(windows, "windows of time")
    if whole and not any(window.drafts for window in whole):
        raise RowError(
            f"{len(windows)} lines of vLLM, none of a window in which anything was drafted: no step to count. Give a "
            "log of the time under load",
            "no steps",
        )
    idle = sum(not window.drafts for window in whole)
    notes = ["windows are of equal time, not of equal work: idle ends and warm-up are in them"]
    notes += [f"{wording.counted(idle, 'window')} without a draft"] if idle else []
    if skips:
        notes.append(
            "the drafter may have no draft for a step (n-grams, suffixes), and vLLM counts steps with a draft only: "
            "this is tokens per draft, not per pass of the target, and no verdict follows from it"
        )
    found = _pooled(source, whole, problems, "vllm", "windows of time", notes, per_draft=skips)
    runs = [replace(run, unknown=[*run.unknown, STEPS_WITHOUT_DRAFT]) for run in found.runs]
    return replace(found, runs=runs)


def _since_start(source: Source, totals: Sequence[vllm_lines.SinceStart], problems: list[Problem]) -> Found:
    """V0: what was counted when each start of the server was last heard of."""
    if len({total.length for total in totals}) > 1:
        raise RowError("lines of vLLM V0 with drafts of several lengths; give each server's log by itself")
    ends = [a for a, b in itertools.pairwise(totals) if b.drafted < a.drafted] + [totals[-1]]
    length = totals[0].length
    drafted, emitted = sum(end.drafted for end in ends), sum(end.emitted for end in ends)
    drafts = drafted // length
    notes = [
        f"vLLM V0: {wording.counted(len(totals), 'line')} of counts since the server started; accepted tokens are "
        "those that were emitted, without the bonus token"
    ]
    if len(ends) > 1:
        notes.append(f"the server was started anew {len(ends) - 1} times; the counts before each start are added")
    aggregate, told = counted("all requests", drafts, emitted - drafts, drafted)
    return _found(source, aggregate, problems, "vllm", [*notes, *told], [], len(totals))


def _llama(source: Source, lines: Sequence[tuple[int, str]]) -> Found:
    problems: list[Problem] = []
    requests = llama_lines.windows(lines, problems)
    if all(window is not None and window.passes is not None for _, window, _ in requests):
        whole = [window for _, window, _ in requests if window is not None]
        without = sum((w.passes or 0) - w.drafts for w in whole if w.exact)
        notes = [f"{without:,} passes of the target had no draft; they count as steps"] if without > 0 else []
        return _pooled(source, whole, problems, "llama.cpp", "requests", notes, per_draft=False)
    whole = []
    for line, window, (accepted, _) in requests:
        if window is not None:
            whole += [window] if window.drafted else []
        elif accepted:
            problems.append(Problem(line, "no mean acceptance length: the number of drafts is not known"))
        else:
            raise RowError(
                f"line {line}: no token was accepted, and the number of drafts is not known; without this request the "
                "mean would be too high. Give a log with eval times, or with the lines 'statistics'"
            )
    notes = [
        "passes of the target without a draft are not in the log (it has neither eval times nor statistics with "
        "#calls for every request), so this is tokens per draft, not per pass: no verdict follows from it"
    ]
    return _pooled(source, whole, problems, "llama.cpp", "requests", notes, per_draft=True)


def _pooled(
    source: Source,
    windows: Sequence[Window],
    problems: list[Problem],
    engine: str,
    what: str,
    notes: Sequence[str],
    *,
    per_draft: bool,
) -> Found:
    if not windows:
        return Found([], problems)
    steps = [w.drafts if w.passes is None or per_draft else w.passes for w in windows]
    accepted = sum(w.accepted for w in windows)
    means = [1 + w.accepted / n if w.mean is None or w.passes is not None else w.mean
             for w, n in zip(windows, steps, strict=True) if n]  # fmt: skip
    mean = f"; the plain mean of their means is {sum(means) / len(means):.4f}" if means else ""
    try:
        aggregate, told = counted(
            "all requests",
            sum(steps),
            accepted,
            sum(w.drafted for w in windows),
            _positions(windows, accepted),
            mean_of=PER_DRAFT if per_draft else None,
        )
    except RowError as error:
        return Found([], [*problems, problem(None, error)])
    exact = all(w.exact or (w.passes is not None and not per_draft) for w in windows)
    unknown = [] if exact else ["drafts exactly (means are rounded)"]
    some = what if len(windows) != 1 else what.replace("windows", "window").replace("requests", "request")
    notes = [f"{len(windows)} {some}, weighted by their {'drafts' if per_draft else 'steps'}{mean}", *notes, *told]
    return _found(source, aggregate, problems, engine, notes, unknown, len(windows))


def _found(
    source: Source,
    aggregate: Aggregate,
    problems: list[Problem],
    engine: str,
    notes: Sequence[str],
    unknown: Sequence[str],
    used: int,
) -> Found:
    run = Imported(
        format=NAME,
        label=source.stem,
        counting=Counting(prefill_token="outside", last_step="whole"),
        aggregates=[aggregate],
        engine=engine,
        unknown=["target", "rows per prompt", "prompts", "drafter", *unknown],
        notes=notes,
    )
    return Found([run], problems, used)


def _positions(windows: Sequence[Window], accepted: int) -> list[int] | None:
    """Accepted tokens by position; None if a line has none, or rounding spoils their sum."""
    drafted = [w for w in windows if w.drafts]
    longest = max((len(w.shares) for w in drafted), default=0)
    if not longest or not all(w.shares for w in drafted):
        return None
    at = [round(sum(w.shares[i] * w.drafts for w in drafted if i < len(w.shares))) for i in range(longest)]
    return at if sum(at) == accepted else None
