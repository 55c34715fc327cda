"""Reports on disk: a folder with ``report.md``, ``result.json``, and each figure as PNG and SVG with its CSV."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from analysis.comparison.factorial import Factorial
from analysis.comparison.matrix import Matrix
from analysis.comparison.pairwise import Comparison
from analysis.comparison.scaling import Scaling
from analysis.comparison.seed_study import SeedComparison
from analysis.comparison.values import ValueComparison
from analysis.errors import UsageError
from analysis.measures.aggregate import TotalsComparison
from analysis.measures.serving import Serving
from analysis.measures.times_alone import TimesComparison
from analysis.report import render
from analysis.report.plots import everything as plots
from analysis.report.plots import serving as serving_plots
from analysis.report.plots import style as figures
from analysis.report.plots.factorial import FACTORIAL
from analysis.report.plots.scaling import SCALING
from analysis.report.plots.study import BY_DATASET, MATRIX, SEEDS
from analysis.report.plots.style import Plot
from analysis.report.result import (
    factorial_json,
    matrix_json,
    scaling_json,
    seeds_json,
    serving_json,
    times_json,
    to_json,
    totals_json,
    values_json,
)
from analysis.report.sections import serving as serving_sections
from analysis.report.sections import times, totals
from analysis.report.sections.study import pair_folder
from analysis.runlog.writing import write_atomic

REPORT, RESULT, LOST = "report.md", "result.json", "lost-pairs.csv"
_KINDS = ("png", "svg", "pdf", "csv")


def write_report(
    comparison: Comparison, folder: Path, *, title: str | None = None, question: str | None = None
) -> Path:
    """Write the report of a comparison; returns the path of report.md, which is written last.

    Figures of an earlier report that this one does not have are removed; other files are kept. Raises
    UsageError if the folder cannot be written.
    """
    drawn = plots.draw_all(comparison)
    files: dict[str, bytes | str] = {}
    if len(comparison.pairs.lost):
        files[LOST] = figures.csv(comparison.pairs.lost)
    files[RESULT] = to_json(comparison, title=title, question=question)
    text = render.report(comparison, drawn, title=title, question=question)
    return _write(folder, drawn, files, text, (LOST, *_names(plots.NAMES)))


def write_matrix(matrix: Matrix, folder: Path, *, title: str | None = None, question: str | None = None) -> Path:
    """Write the report of several arms, and each comparison's own in a folder inside."""
    _withdraw(folder)
    for comparison in matrix.comparisons:
        write_report(comparison, folder / pair_folder(comparison))
    drawn = matrix.figures()
    files = {RESULT: matrix_json(matrix, title=title, question=question)}
    text = render.matrix(matrix, drawn, title=title, question=question)
    return _write(folder, drawn, files, text, _names((MATRIX,)))


def write_seeds(study: SeedComparison, folder: Path, *, title: str | None = None, question: str | None = None) -> Path:
    """Write the report of several trainings per arm."""
    drawn = study.figures()
    files = {RESULT: seeds_json(study, title=title, question=question)}
    text = render.seeds(study, drawn, title=title, question=question)
    return _write(folder, drawn, files, text, _names((SEEDS, BY_DATASET)))


def write_factorial(found: Factorial, folder: Path, *, title: str | None = None, question: str | None = None) -> Path:
    """Write the report of a factorial of arms."""
    drawn = found.figures()
    files = {RESULT: factorial_json(found, title=title, question=question)}
    text = render.factorial(found, drawn, title=title, question=question)
    return _write(folder, drawn, files, text, _names((FACTORIAL,)))


def write_scaling(found: Scaling, folder: Path) -> Path:
    """Write the report of what scales."""
    drawn = found.figures()
    return _write(folder, drawn, {RESULT: scaling_json(found)}, render.scaling(found, drawn), _names((SCALING,)))


def write_serving(found: Serving, folder: Path, *, title: str | None = None, question: str | None = None) -> Path:
    """Write the report of a serving experiment."""
    drawn = serving_plots.draw_all(found)
    files = {RESULT: serving_json(found, title=title, question=question)}
    text = serving_sections.report(found, drawn, title=title, question=question)
    return _write(folder, drawn, files, text, _names((serving_plots.SERVING, serving_plots.SWEEP)))


def write_totals(comparison: TotalsComparison, folder: Path) -> Path:
    """Write the report of runs of which at least one has only totals."""
    return _write(
        folder, (), {RESULT: totals_json(comparison)}, totals.report(comparison), (LOST, *_names(plots.NAMES))
    )


def write_values(found: ValueComparison, folder: Path) -> Path:
    """Write the report of one number per prompt."""
    drawn = found.figures()
    files: dict[str, bytes | str] = {LOST: figures.csv(found.pairs.lost)} if len(found.pairs.lost) else {}
    files[RESULT] = values_json(found)
    return _write(folder, drawn, files, render.values(found, drawn), (LOST, *_names(plots.NAMES)))


def write_times(comparison: TimesComparison, folder: Path) -> Path:
    """Write the report of runs of which at least one has only times of prompts."""
    return _write(folder, (), {RESULT: times_json(comparison)}, times.report(comparison), (LOST, *_names(plots.NAMES)))


def matrix_folder(matrix: Matrix) -> str:
    """``<A>-vs-<B>-and-<C>``, of the runs' folder names."""
    return f"{matrix.comparisons[0].a.name}-vs-" + "-and-".join(c.b.name for c in matrix.comparisons)


def factorial_folder(found: Factorial) -> str:
    """``<first arm>-by-<axis>-<axis>``."""
    return f"{found.first}-by-{'-'.join(factor.name.split('.')[-1] for factor in found.factors)}"


def seeds_folder(study: SeedComparison) -> str:
    """``<A>-x5-vs-<B>-x5``, of the folder names of the first runs."""
    return f"{study.runs_a[0]}-x{len(study.runs_a)}-vs-{study.runs_b[0]}-x{len(study.runs_b)}"


def _names(stems: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"figures/{stem}.{kind}" for stem in stems for kind in _KINDS)


def _write(
    folder: Path, drawn: Sequence[Plot], files: Mapping[str, bytes | str], text: str, ours: Sequence[str]
) -> Path:
    """Write figures, then ``files``, then the report; remove those of ``ours`` that are stale.

    An earlier report is removed first: if writing stops midway, it must not stay beside figures of another comparison.
    """
    everything: dict[str, bytes | str] = {}
    for plot in drawn:
        everything[f"figures/{plot.name}.png"] = figures.png(plot.figure)
        everything[f"figures/{plot.name}.svg"] = figures.svg(plot.figure)
        everything[f"figures/{plot.name}.pdf"] = figures.pdf(plot.figure)
        everything[f"figures/{plot.name}.csv"] = figures.csv(plot.data)
    everything |= files
    everything[REPORT] = text
    _withdraw(folder)
    try:
        for name, data in everything.items():
            write_atomic(folder / name, data)
        for name in set(ours) - set(everything):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return folder / REPORT


def _withdraw(folder: Path) -> None:
    try:
        for name in (REPORT, RESULT):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot write the report to {folder}: {error.strerror}; choose another folder")
