"""The sentences and tables of the report on what scales."""

from __future__ import annotations

from analysis.comparison.scaling import Scaling, Series
from analysis.report.markdown import table
from analysis.report.sections.overview import effective
from analysis.stats.estimate import Estimate
from analysis.wording import Verdict, counted, interval, number, p_value, signed

_WORDS = {Verdict.B_BETTER: "larger is better", Verdict.A_BETTER: "larger is worse"}


def _verdict(e: Estimate) -> str:
    return _WORDS.get(e.verdict, str(e.verdict))


def headline(f: Scaling) -> str:
    """The slope of every series, or its one step."""
    return f"{f.estimand.name.capitalize()} against {f.unit}: {'; '.join(map(_in_words, f.series))}."


def _in_words(s: Series) -> str:
    if s.slope is None and not s.steps:
        return f"{s.name} has one level"
    e, what = (s.slope, "per doubling") if s.slope is not None else (s.steps[0], f"to {_level(s.points[1].level)}")
    assert e is not None
    return f"{s.name} {signed(e.estimate)} {what} ({interval(e.lo, e.hi)}; {_verdict(e)})"


def _level(level: float) -> str:
    return f"{level:,.0f}" if level < 1e9 else f"{level:.3g}"


def points_table(f: Scaling) -> str:
    """One run per row."""
    rows = [
        (s.name, _level(p.level), p.run, number(p.mean), _between(p.lo, p.hi), number(p.n_effective, 1))
        for s in f.series
        for p in s.points
    ]
    return table(["series", f.unit, "arm", f.estimand.name, "95% interval", "effective"], rows)


def _between(lo: float | None, hi: float | None) -> str | None:
    return None if lo is None or hi is None else f"{number(lo)} to {number(hi)}"


def steps_table(f: Scaling) -> str:
    """One step between neighbouring levels per row."""
    rows = []
    for s in f.series:
        for before, after, e in zip(s.points, s.points[1:], s.steps, strict=False):
            step = f"{_level(before.level)} to {_level(after.level)}"
            rows.append((s.name, step, *_cells(e)))
    return table(["series", f.unit, "difference", "95% interval", "p", "p, Holm", "effective", "verdict"], rows)


def _cells(e: Estimate) -> tuple[str, ...]:
    bounds = interval(e.lo, e.hi)
    return signed(e.estimate), bounds, p_value(e.p), p_value(e.p_adjusted), effective(e), _verdict(e)


def slopes_table(f: Scaling) -> str:
    """The slope of every series of three levels or more; empty without any."""
    rows = [(s.name, *_cells(e)) for s in f.series if (e := s.slope) is not None]
    headers = ["series", f"per doubling ({f.estimand.unit})", "95% interval", "p", "p, Holm", "effective", "verdict"]
    return table(headers, rows) if rows else ""


def basis(f: Scaling) -> str:
    """What the numbers are computed from."""
    return f"Over the {counted(f.prompts, 'prompt')} in {counted(f.clusters, 'cluster')} that every run has."


def cautions(f: Scaling) -> list[tuple[str, str]]:
    """Cautions: (what they concern, text), each once."""
    places: dict[str, list[str]] = {}
    for s in f.series:
        for e in (*s.steps, *((s.slope,) if s.slope is not None else ())):
            for c in e.cautions:
                names = places.setdefault(c.text, [])
                names += [s.name] if s.name not in names else []
    return [("all runs", c.text) for c in f.cautions] + [("; ".join(names), text) for text, names in places.items()]
