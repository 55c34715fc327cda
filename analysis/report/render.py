"""A comparison as Markdown: the whole report, and the short form that a notebook shows."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.comparison.matrix import Matrix
from analysis.comparison.pairwise import Comparison
from analysis.comparison.seed_study import SeedComparison
from analysis.comparison.values import ValueComparison
from analysis.report.answers import answers, chosen, first_cautions, headline
from analysis.report.markdown import escape, fill
from analysis.report.plots.style import Plot
from analysis.report.sections import baseline as baseline_sections
from analysis.report.sections import benchmarks as benchmark_sections
from analysis.report.sections import gates as gate_sections
from analysis.report.sections import overview as sections
from analysis.report.sections import seeds as seed_sections
from analysis.report.sections import speed as speed_sections
from analysis.report.sections import study as study_sections
from analysis.report.sections import values as value_sections


def report(
    comparison: Comparison, plots: Sequence[Plot], *, title: str | None = None, question: str | None = None
) -> str:
    """The whole report.md. Figures are referred to as ``figures/<name>.png``."""
    c = comparison
    return fill(
        "report.md.j2",
        c=c,
        s=sections,
        speed=speed_sections,
        baseline=baseline_sections,
        benchmarks=benchmark_sections,
        gates=gate_sections,
        title=title or f"{c.b.label} against {c.a.label}",
        question=question,
        headline=headline(c),
        first_cautions=first_cautions(c),
        chosen=chosen(c),
        answers=answers(c),
        plots={plot.name: plot for plot in plots},
    )


def matrix(found: Matrix, plots: Sequence[Plot], *, title: str | None = None, question: str | None = None) -> str:
    """The report.md of several arms."""
    title = title or f"{len(found.comparisons)} arms against {found.comparisons[0].a.label}"
    return fill("matrix.md.j2", m=found, s=study_sections, title=title, question=question, plots=plots)


def seeds(
    found: SeedComparison, plots: Sequence[Plot], *, title: str | None = None, question: str | None = None
) -> str:
    """The report.md of several trainings per arm."""
    title = title or f"{found.label_b} against {found.label_a}, over training seeds"
    return fill("seeds.md.j2", c=found, s=seed_sections, title=title, question=question, plots=plots)


def values(found: ValueComparison, plots: Sequence[Plot]) -> str:
    """The report.md of one number per prompt."""
    title = f"{found.label_b} against {found.label_a}: {found.estimand.name}"
    return fill("values.md.j2", c=found, s=value_sections, title=title, plots=plots)


def summary(comparison: Comparison) -> str:
    """Headline, estimates and cautions."""
    c = comparison
    parts = [f"**{escape(headline(c))}**", sections.overall_table(c)]
    if len(c.by_dataset) > 1:
        parts.append(sections.dataset_table(c))
    if told := sections.cautions(c):
        parts.append("\n".join(f"* {escape(text)}" for text in told))
    return "\n\n".join(parts) + "\n"
