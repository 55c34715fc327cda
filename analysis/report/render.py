"""A comparison as Markdown: the whole report, and the short form that a notebook shows."""

from __future__ import annotations

import re
from collections.abc import Sequence

from analysis.comparison.factorial import Factorial
from analysis.comparison.matrix import Matrix
from analysis.comparison.pairwise import Comparison
from analysis.comparison.scaling import Scaling
from analysis.comparison.seed_study import SeedComparison
from analysis.comparison.values import ValueComparison
from analysis.report.answers import answers, chosen, first_cautions, headline
from analysis.report.markdown import escape, fill
from analysis.report.plots.style import Plot
from analysis.report.sections import anchors as anchor_sections
from analysis.report.sections import baseline as baseline_sections
from analysis.report.sections import benchmarks as benchmark_sections
from analysis.report.sections import cautions as caution_sections
from analysis.report.sections import datasets, fairness, opening, overview, positions
from analysis.report.sections import factorial as factorial_sections
from analysis.report.sections import gates as gate_sections
from analysis.report.sections import headroom as headroom_sections
from analysis.report.sections import scaling as scaling_sections
from analysis.report.sections import seeds as seed_sections
from analysis.report.sections import shift as shift_sections
from analysis.report.sections import speed as speed_sections
from analysis.report.sections import study as study_sections
from analysis.report.sections import values as value_sections
from analysis.report.sections.glossary import glossary


def report(
    comparison: Comparison, plots: Sequence[Plot], *, title: str | None = None, question: str | None = None
) -> str:
    """The whole report.md. Figures are referred to as ``figures/<name>.png``."""
    c = comparison
    text = fill(
        "report.md.j2",
        c=c,
        opening=opening,
        terms=glossary(c),
        overview=overview,
        datasets=datasets,
        positions=positions,
        shift=shift_sections,
        fairness=fairness,
        cautions=caution_sections,
        speed=speed_sections,
        anchors=anchor_sections,
        headroom=headroom_sections,
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
    return text.replace(_CONTENTS, contents(text))


_CONTENTS = "@@contents@@"  # in the template


def contents(text: str) -> str:
    """Links to the sections of a Markdown page, with GitHub's anchors; the contents heading itself is omitted."""
    headings = [line[3:] for line in text.splitlines() if line.startswith("## ") and line != "## Contents"]
    return " · ".join(f"[{heading}](#{_anchor(heading)})" for heading in headings)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def matrix(result: Matrix, plots: Sequence[Plot], *, title: str | None = None, question: str | None = None) -> str:
    """The report.md of several arms."""
    title = title or f"{len(result.comparisons)} arms against {result.comparisons[0].a.label}"
    return fill("matrix.md.j2", m=result, s=study_sections, title=title, question=question, plots=plots)


def scaling(found: Scaling, plots: Sequence[Plot]) -> str:
    """The report.md of what scales."""
    title = f"{found.estimand.name.capitalize()} against {found.unit}"
    return fill("scaling.md.j2", f=found, s=scaling_sections, title=title, plots=plots)


def factorial(found: Factorial, plots: Sequence[Plot], *, title: str | None = None, question: str | None = None) -> str:
    """The report.md of a factorial of arms."""
    title = title or f"Effects of {', '.join(factor.name for factor in found.factors)}"
    return fill("factorial.md.j2", f=found, s=factorial_sections, title=title, question=question, plots=plots)


def seeds(
    study: SeedComparison, plots: Sequence[Plot], *, title: str | None = None, question: str | None = None
) -> str:
    """The report.md of several trainings per arm."""
    title = title or f"{study.label_b} against {study.label_a}, over training seeds"
    return fill("seeds.md.j2", c=study, s=seed_sections, title=title, question=question, plots=plots)


def values(study: ValueComparison, plots: Sequence[Plot]) -> str:
    """The report.md of one number per prompt."""
    title = f"{study.label_b} against {study.label_a}: {study.estimand.name}"
    return fill("values.md.j2", c=study, s=value_sections, title=title, plots=plots)


def summary(comparison: Comparison) -> str:
    """Headline, estimates and cautions."""
    c = comparison
    parts = [f"**{escape(headline(c))}**", overview.overall_table(c)]
    if len(c.by_dataset) > 1:
        parts.append(datasets.dataset_table(c))
    if caution_lines := caution_sections.cautions(c):
        parts.append("\n".join(f"* {escape(text)}" for text in caution_lines))
    return "\n\n".join(parts) + "\n"
