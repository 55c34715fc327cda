"""Training curves of a run."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from analysis.runlog import Run

CURVES = ("step", "examples", "loss", "ce", "accepted_length", "val_accepted_length", "val_unseen_accepted_length")


@dataclass(frozen=True)
class History:
    """``curves``: one row per optimizer step, columns CURVES; what was not measured at a step is NaN."""

    curves: pd.DataFrame

    def last(self, column: str) -> float | None:
        """The last value that was measured, None if none was."""
        values = self.curves[column].dropna()
        return float(values.iloc[-1]) if len(values) else None


def load_history(run: Run) -> History | None:
    """The run's history in order of steps, None if it has none (a baseline, an imported log)."""
    if not run.has("history"):
        return None
    curves = run.read("history", CURVES).to_pandas().sort_values("step", ignore_index=True)
    return History(curves) if len(curves) else None
