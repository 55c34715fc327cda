"""Rendering of each kind of result: headline, short form for notebooks, whole report, figures."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.comparison.factorial import Factorial
from analysis.comparison.matrix import Matrix
from analysis.comparison.pairwise import Comparison
from analysis.comparison.scaling import Scaling
from analysis.comparison.seed_study import SeedComparison
from analysis.comparison.values import ValueComparison
from analysis.report import answers, render
from analysis.report.sections import factorial as factorial_sections
from analysis.report.sections import scaling as scaling_sections
from analysis.report.sections import seeds as seed_sections
from analysis.report.sections import study as study_sections
from analysis.report.sections import values as value_sections


@singledispatch
def headline(result: Any) -> str:
    """The conclusion as one line."""
    raise NotImplementedError(type(result))


@singledispatch
def summary(result: Any) -> str:
    """The short form shown in notebooks; by default the whole report."""
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
headline.register(Factorial, factorial_sections.headline)
headline.register(Scaling, scaling_sections.headline)
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
def _(result: Factorial) -> str:
    return render.factorial(result, result.figures())


@report.register
def _(result: Scaling) -> str:
    return render.scaling(result, result.figures())


@report.register
def _(result: SeedComparison) -> str:
    return render.seeds(result, result.figures())


@report.register
def _(result: ValueComparison) -> str:
    return render.values(result, result.figures())


@figures.register
def _(result: ValueComparison) -> list[Any]:
    from analysis.report.plots import estimates

    return list(estimates.draw_values(result))


@figures.register
def _(result: Comparison) -> list[Any]:
    from analysis.report.plots import (
        everything,
    )  # matplotlib takes most of a second to import, and a headline does not need it

    return list(everything.draw_all(result))


@figures.register
def _(result: Matrix) -> list[Any]:
    from analysis.report.plots import study

    return list(study.draw_matrix(result))


@figures.register
def _(result: Factorial) -> list[Any]:
    from analysis.report.plots import factorial

    return list(factorial.draw_factorial(result))


@figures.register
def _(result: Scaling) -> list[Any]:
    from analysis.report.plots import scaling

    return list(scaling.draw_scaling(result))


@figures.register
def _(result: SeedComparison) -> list[Any]:
    from analysis.report.plots import study

    return list(study.draw_seeds(result))


@singledispatch
def save(result: Any, folder: Path) -> Path:
    """Write the report into a folder."""
    raise NotImplementedError(type(result))


for _kind, _write in ((Comparison, "write_report"), (Matrix, "write_matrix"),
                      (Factorial, "write_factorial"), (Scaling, "write_scaling"),
                      (SeedComparison, "write_seeds"),
                      (ValueComparison, "write_values")):  # fmt: skip

    def _save(result: Any, folder: Path, name: str = _write) -> Path:
        from analysis.report import writing  # with matplotlib, which a headline need not wait for

        return Path(getattr(writing, name)(result, folder))

    save.register(_kind, _save)


#: Columns of a table for a paper, by their names in ``to_frame``.
_OF_A_PAPER = {"estimand": "metric", "arm": "arm", "subset": "data set", "mean_a": "A", "mean_b": "B",
               "estimate": "difference", "lo": "lo", "hi": "hi", "p_adjusted": "$p$ (Holm)", "n_pairs": "$n$",
               "verdict": "verdict"}  # fmt: skip


def _table(result: Any) -> pd.DataFrame:
    frame = result.to_frame()
    return frame[[name for name in _OF_A_PAPER if name in frame]]


def latex(result: Any) -> str:
    """The estimates as a LaTeX table with the rules of ``booktabs``: names escaped, three decimals, a dash for none."""
    frame = _table(result)
    frame = frame.assign(**{name: frame[name].map(_escaped) for name in frame.select_dtypes(exclude="number")})
    shown: dict[Any, Callable[[float], str]] = dict.fromkeys(frame.select_dtypes("float"), _three)
    shown["p_adjusted"] = _p
    style = frame.style.hide(axis="index").format(shown, na_rep="---").format_index(_OF_A_PAPER.get, axis=1)
    return str(style.to_latex(hrules=True))


def _three(value: float) -> str:
    return f"{value:.3f}"


def _p(value: float) -> str:
    return "$<10^{-12}$" if value < 1e-12 else f"{value:.3g}"


def _escaped(text: object) -> object:
    special = {"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
               "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}  # fmt: skip
    return "".join(special.get(letter, letter) for letter in text) if isinstance(text, str) else text


def html(result: Any) -> str:
    """The headline and the estimates, for a notebook."""
    shown = _table(result).rename(columns=lambda name: _OF_A_PAPER[name].replace("$", ""))
    return f"<p><b>{escape(headline(result))}</b></p>" + shown.to_html(index=False, float_format="%.4g", na_rep="—")
