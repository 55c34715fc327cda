"""``from analysis import compare_runs``: runs, log files, tables of one number per prompt, and pandas DataFrames."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, TypeAlias, overload

import pandas as pd

from analysis.comparison import pairwise
from analysis.comparison.pairwise import Comparison
from analysis.comparison.values import Direction, ValueComparison, compare_values
from analysis.errors import UsageError
from analysis.importers.direct import open_references
from analysis.importers.values import values_of
from analysis.runlog.reading import Run

Source: TypeAlias = Run | Path | str | pd.DataFrame


@overload
def compare_runs(run_a: Run | Path | str, run_b: Run | Path | str, **options: Any) -> Comparison: ...
@overload
def compare_runs(
    run_a: pd.DataFrame | Path | str, run_b: pd.DataFrame | Path | str, *, value: str, **options: Any
) -> ValueComparison: ...


def compare_runs(
    run_a: Source,
    run_b: Source,
    *,
    value: str | None = None,
    unit: str | None = None,
    higher_is: Direction | None = None,
    labels: tuple[str, str] | None = None,
    **options: Any,
) -> Comparison | ValueComparison:
    """Compare two arms: is B better than A, by how much, on which data sets.

    Each is a run (folder, address, name under ``runs/``), or a log file of another tool; with ``value`` both are tables
    of one number per prompt, as files or DataFrames (:mod:`analysis.importers.values`), and ``value`` names the column,
    ``unit`` its unit, ``higher_is`` whether more is ``better`` or ``worse``, ``labels`` the arms. ``options``: those of
    :func:`analysis.comparison.pairwise.compare_runs`, or of :func:`analysis.comparison.values.compare_values`.
    Raises UsageError and DataError as these do.
    """
    if value is not None:
        a, b = (values_of(_table(run, side), value, side, {}) for run, side in ((run_a, "A"), (run_b, "B")))
        named = labels or (None, None)
        return compare_values(a, b, value, unit=unit, higher_is=higher_is, labels=named, **options)
    if unit or higher_is or labels:
        raise UsageError("unit, higher_is and labels require value=COLUMN, for tables with one number per prompt")
    if isinstance(run_a, pd.DataFrame) or isinstance(run_b, pd.DataFrame):
        raise UsageError("a DataFrame requires value=COLUMN, for example value='accepted_length'")
    with tempfile.TemporaryDirectory() as folder:
        asked = {name: options[name] for name in ("strict", "allow_incomplete") if name in options}
        opened = [
            run if isinstance(run, Run) else open_references([str(run)], Path(folder) / side, **asked)[0]
            for run, side in ((run_a, "a"), (run_b, "b"))
        ]
        return pairwise.compare_runs(opened[0], opened[1], **options)


def _table(source: Source, side: str) -> pd.DataFrame | Path | str:
    if isinstance(source, Run):
        raise UsageError(f"value=... requires tables with one number per prompt; {side} is a run")
    return source
