"""How each kind of result shows itself: its headline, a short form for notebooks, the whole report, its figures."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from analysis.comparison.matrix import Matrix
from analysis.comparison.pairwise import Comparison
from analysis.comparison.seed_study import SeedComparison
from analysis.comparison.values import ValueComparison
from analysis.report import answers, render
from analysis.report.sections import seeds as seed_sections
from analysis.report.sections import study as study_sections
from analysis.report.sections import values as value_sections


@singledispatch
def headline(result: Any) -> str:
    """The conclusion as one line."""
    raise NotImplementedError(type(result))


@singledispatch
def summary(result: Any) -> str:
    """What a notebook shows: by default the whole report."""
    return report(result)


@singledispatch
def report(result: Any) -> str:
    """The whole report as Markdown."""
    raise NotImplementedError(type(result))


@singledispatch
def figures(result: Any) -> list[Any]:
    """The figures of the report."""
    raise NotImplementedError(type(result))


headline.register(Comparison, answers.headline)
headline.register(Matrix, study_sections.matrix_headline)
headline.register(ValueComparison, value_sections.headline)
headline.register(SeedComparison, seed_sections.headline)

summary.register(Comparison, render.summary)


@report.register
def _(result: Comparison) -> str:
    return render.report(result, result.figures())


@report.register
def _(result: Matrix) -> str:
    return render.matrix(result, result.figures())


@report.register
def _(result: SeedComparison) -> str:
    return render.seeds(result, result.figures())


@report.register
def _(result: ValueComparison) -> str:
    return render.values(result, result.figures())


@figures.register
def _(result: ValueComparison) -> list[Any]:
    from analysis.report.plots import estimates

    return [estimates.paired_differences(result), estimates.forest(result)]


@figures.register
def _(result: Comparison) -> list[Any]:
    from analysis.report.plots import everything  # matplotlib takes most of a second, which a headline need not wait

    return list(everything.draw_all(result))


@figures.register
def _(result: Matrix) -> list[Any]:
    from analysis.report.plots import study

    return list(study.draw_matrix(result))


@figures.register
def _(result: SeedComparison) -> list[Any]:
    from analysis.report.plots import study

    return list(study.draw_seeds(result))
