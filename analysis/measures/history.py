"""Training curves of a run, and signs of a training that did not end well."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.cautions import Caution, caution
from analysis.runlog.reading import Run
from analysis.stats.spikes import spikes

CURVES = ("step", "examples", "loss", "ce", "accepted_length", "val_accepted_length", "val_unseen_accepted_length")

#: A training diverged if the mean loss of its last tenth is above this multiple of its best tenth.
DIVERGED = 1.25
#: Validation accepted length is still rising if it grew by more than this factor over the last quarter.
RISING = 1.02


@dataclass(frozen=True, eq=False)
class History:
    """``curves``: one row per optimizer step, columns CURVES; NaN for quantities that were not measured at a step."""

    curves: pd.DataFrame

    @property
    def spikes(self) -> list[int]:
        """Steps whose loss was a spike (:mod:`analysis.stats.spikes`)."""
        return self.curves.loc[spikes(self.curves["loss"].to_numpy(float)), "step"].tolist()

    def last(self, column: str) -> float | None:
        """The last measured value; None without one."""
        values = self.curves[column].dropna()
        return float(values.iloc[-1]) if len(values) else None

    def final(self, column: str) -> float | None:
        """Mean over the last twentieth of the steps, None if nothing was measured: a single step's loss is noise."""
        values = self.curves[column].iloc[-(1 + len(self.curves) // 20) :].dropna()
        return float(values.mean()) if len(values) else None


def load_history(run: Run) -> History | None:
    """The run's history in order of steps, None if it has none (a baseline, an imported log)."""
    if not run.has("history"):
        return None
    curves = run.read("history", CURVES).to_pandas().sort_values("step", ignore_index=True)
    return History(curves) if len(curves) else None


def health(run: Run, history: History | None) -> tuple[Caution, ...]:
    """Cautions about a training: NaN or infinite loss, missing steps, divergence, spikes of the loss, and an accepted
    length that was still rising at the end."""
    if history is None:
        return ()
    curves, cautions = history.curves, []
    planned = run.manifest.training.steps if run.manifest.training else None
    if planned is not None and len(curves) < planned:
        cautions.append(caution("history-short", run=run.name, n=len(curves), total=planned))
    loss = curves["loss"]
    if len(bad := curves.loc[~np.isfinite(loss), "step"]):
        cautions.append(caution("history-nan", run=run.name, n=len(bad), total=len(curves), first=int(bad.iloc[0])))
    elif (ends := _ends(curves)) is not None and ends[1] > DIVERGED * ends[0]:
        cautions.append(caution("history-diverged", run=run.name, best=ends[0], last=ends[1]))
    if found := history.spikes:
        cautions.append(caution("history-spikes", run=run.name, n=len(found), first=found[0]))
    if (rise := _rise(curves)) is not None and rise[1] > RISING * rise[0]:
        cautions.append(caution("history-rising", run=run.name, before=rise[0], last=rise[1]))
    return tuple(cautions)


def _ends(curves: pd.DataFrame) -> tuple[float, float] | None:
    """Mean loss of the best tenth and of the last tenth. Uses the unweighted loss if available, because a weight
    schedule changes the weighted one. None with fewer than 20 steps."""
    loss = curves["ce"] if curves["ce"].notna().all() else curves["loss"]
    if len(loss) < 20:
        return None
    tenths = [float(loss.iloc[part].mean()) for part in np.array_split(np.arange(len(loss)), 10)]
    return min(tenths), tenths[-1]


def _rise(curves: pd.DataFrame) -> tuple[float, float] | None:
    """Validation accepted length at three quarters of the training (the last value before it), and at the end."""
    measured = curves.dropna(subset=["val_accepted_length"])
    before = measured[measured["step"] <= 0.75 * curves["step"].iloc[-1]]
    if before.empty or len(measured) < 4:
        return None
    return float(before["val_accepted_length"].iloc[-1]), float(measured["val_accepted_length"].iloc[-1])
