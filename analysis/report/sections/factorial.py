"""The sentences and tables of the report on a factorial of arms."""

from __future__ import annotations

from analysis.comparison.factorial import Effect, Factorial
from analysis.report.markdown import table
from analysis.report.sections.overview import effective
from analysis.stats.estimate import Estimate
from analysis.stats.seeds import FEWEST_SEEDS
from analysis.wording import Verdict, counted, interval, number, p_value, signed

_WORDS = {Verdict.B_BETTER: "positive", Verdict.A_BETTER: "negative"}


def _verdict(e: Estimate) -> str:
    return _WORDS.get(e.verdict, str(e.verdict))


def headline(f: Factorial) -> str:
    """The main effects, each with its interval."""
    parts = [
        f"{f.factors[i].name} {f.factors[i].high} {signed(e.estimate.estimate)} "
        f"({interval(e.estimate.lo, e.estimate.hi)}; {_verdict(e.estimate)})"
        for i, e in enumerate(f.effects[: len(f.factors)])
    ]
    return f"Main effects on {f.estimand.name}: {'; '.join(parts)}."


def conclusion(f: Factorial) -> str:
    """Which interactions are there."""
    if 1 < f.seeds < FEWEST_SEEDS:
        return f"{f.seeds} trainings a cell are too few for a verdict, which requires {FEWEST_SEEDS}."
    shown = [e for e in interactions(f) if e.estimate.verdict in _WORDS]
    if not shown:
        return "No interaction is statistically distinguishable from zero."
    return " ".join(
        f"The interaction {e.name} is {_verdict(e.estimate)}: {signed(e.estimate.estimate)} "
        f"({interval(e.estimate.lo, e.estimate.hi)})."
        for e in shown
    )


def interactions(f: Factorial) -> tuple[Effect, ...]:
    """All effects of more than one factor."""
    return f.effects[len(f.factors) :]


def basis(f: Factorial) -> str:
    """What the effects are computed from."""
    return (
        f"{counted(len(f.cells), 'cell')}, {counted(f.seeds, 'training')} each, over the "
        f"{counted(f.prompts, 'prompt')} in {counted(f.clusters, 'cluster')} that every run has."
    )


def cells_table(f: Factorial) -> str:
    """One cell per row."""
    rows = [(*cell.levels, ", ".join(dict.fromkeys(cell.labels)), number(cell.mean)) for cell in f.cells]
    return table([*(factor.name for factor in f.factors), "arm", f.estimand.name], rows, numeric=0)


def effects_table(f: Factorial) -> str:
    """One effect per row: main effects, then interactions."""
    rows = []
    for place, effect in enumerate(f.effects):
        e = effect.estimate
        name = effect.name
        if place < len(f.factors):
            name = f"{name}: {f.factors[place].high} instead of {f.factors[place].low}"
        cells = signed(e.estimate), interval(e.lo, e.hi), p_value(e.p), p_value(e.p_adjusted)
        rows.append((name, *cells, effective(e), _verdict(e)))
    headers = ["effect", f"difference ({f.estimand.unit})", "95% interval", "p", "p, Holm", "effective", "verdict"]
    return table(headers, rows, numeric=6)


def cautions(f: Factorial) -> list[tuple[str, str]]:
    """Cautions: (what they concern, text); those of an effect, each once with all its effects."""
    effects: dict[str, list[str]] = {}
    for effect in f.effects:
        for c in effect.estimate.cautions:
            effects.setdefault(c.text, []).append(effect.name)
    return [("all runs", c.text) for c in f.cautions] + [(", ".join(names), text) for text, names in effects.items()]
