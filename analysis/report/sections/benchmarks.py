"""The report's section on the six benchmarks of published drafters."""

from __future__ import annotations

from analysis.comparison.facts import ArmSummary
from analysis.comparison.pairwise import Comparison
from analysis.measures.benchmark_table import Measured, Published
from analysis.report.markdown import table
from analysis.runlog.counting import Counting, counting_of
from analysis.wording import counted, number, with_interval


def benchmark_table(c: Comparison) -> str | None:
    """Both arms as measured, beside the published values by benchmark."""
    if (t := c.benchmarks) is None:
        return None
    published = [p for p in t.published if p.tau or p.speedup]
    rows = [
        (row.benchmark, *((f"{row.prompts:,}", f"{row.responses:,}") if row.datasets else (None, None)),
         _tau(row.a), _tau(row.b), _speedup(row.a), _speedup(row.b),
         _effective(row.a), _effective(row.b),
         *(_pair(p.tau.get(row.benchmark), p.speedup.get(row.benchmark)) for p in published))
        for row in t.rows
    ]  # fmt: skip
    if (present := sum(bool(row.datasets) for row in t.rows)) > 1:
        a, b = t.average_a, t.average_b
        averages = [*(number(x, 2) for x in (a.tau, b.tau, a.speedup, b.speedup)), None, None]
        theirs = [_pair(p.average.tau, p.average.speedup) for p in published]
        rows.append((f"average of these {present}", None, None, *averages, *theirs))
    headers = ["benchmark", "prompts", "responses", "tau, A", "tau, B", "speed-up, A", "speed-up, B"]
    headers += ["effective clusters (tau / speed-up), A", "B"]
    headers += [f"published: {p.method}, {p.target}" for p in published]
    return table(headers, rows, numeric=len(headers) - 1)


def _tau(x: Measured | None) -> str | None:
    return None if x is None else with_interval(x.tau, x.tau_lo, x.tau_hi, 2)


def _speedup(x: Measured | None) -> str | None:
    return None if x is None else with_interval(x.speedup, x.speedup_lo, x.speedup_hi, 2)


def _effective(x: Measured | None) -> str | None:
    return None if x is None else f"{number(x.tau_n_effective, 1)} / {number(x.speedup_n_effective, 1)}"


def _pair(tau: float | None, speedup: float | None) -> str | None:
    return None if tau is None and speedup is None else f"{number(tau, 2)} / {number(speedup, 2)}"


def here(c: Comparison) -> str:
    """The setting of the measurement: target, decoding and device of both arms (once if equal), and the data sets."""
    assert c.benchmarks is not None
    known = {e.protocol for e in c.a.manifest.evaluations.values()}
    a, b = (_settings(arm, "generate" if "generate" in known else "replay") for arm in (c.a, c.b))
    measured = a if a == b else f"A: {a}; B: {b}"
    names = [name for row in c.benchmarks.rows for name in row.datasets]
    return f"Measured here: {measured}. Data sets of the runs: {', '.join(names)}."


def _settings(arm: ArmSummary, protocol: str) -> str:
    manifest = arm.manifest
    parts = [f"target {manifest.target.id}" if manifest.target else "target not recorded"]
    for evaluation in manifest.evaluations.values():
        if evaluation.protocol == protocol:
            settings = evaluation.settings
            parts += [f"block {evaluation.block_size}"] if evaluation.block_size else []
            parts += [f"temperature {settings['temperature']:g}"] if settings.get("temperature") is not None else []
            parts += [f"at most {settings['max_new_tokens']} new tokens"] if settings.get("max_new_tokens") else []
            break
    parts += [manifest.environment.device] if manifest.environment.device else []
    counting = counting_of(manifest, protocol)
    parts += (
        [f"counting convention of the log: {counting}; times cover {counting.time}"] if counting != Counting() else []
    )
    return ", ".join(parts)


def published_lines(c: Comparison) -> list[str]:
    """Source and setting of each published column."""
    assert c.benchmarks is not None
    return [_line(p) for p in c.benchmarks.published]


_TARGETS = {True: "target with the same name", False: "different target", None: "target of the runs not known"}


def _line(p: Published) -> str:
    parts = [
        _TARGETS[p.same_target],
        f"temperature {p.temperature:g}",
        f"hardware {p.hardware or 'not recorded'}",
        *([p.settings] if p.settings else []),
    ]
    own = p.own_average
    averages = [f"{name} {number(x, 2)}" for name, x in (("tau", own.tau), ("speed-up", own.speedup)) if x is not None]
    if averages:
        of = f", of {p.own_average_of}" if p.own_average_of else ""
        parts.append(f"published average {', '.join(averages)}{of}")
    if not (p.tau or p.speedup):
        parts.append("not reported by benchmark")
    return f"{p.method}, {p.target}: {'; '.join(parts)}. Source: {p.source}."


def timing_notes(c: Comparison) -> list[str]:
    """The source of plain decoding if it is another run, and why speed-ups are missing or use fewer responses."""
    assert c.benchmarks is not None
    notes = [f"Times of plain decoding come from the run {c.benchmarks.plain_run}."] if c.benchmarks.plain_run else []
    rows = [(row, x) for row in c.benchmarks.rows for x in (row.a, row.b) if x is not None]
    if not any(x.timed for _, x in rows):
        return [*notes, "No speed-up: no response was timed both with plain decoding and with an arm."]
    fewer = [f"{row.benchmark} {x.timed} of {counted(row.responses, 'response')}" for row, x in rows
             if x.timed < row.responses]  # fmt: skip
    if fewer:
        notes.append(f"Speed-ups use only responses timed both ways: {', '.join(dict.fromkeys(fewer))}.")
    return notes
