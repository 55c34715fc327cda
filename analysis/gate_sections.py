"""The parts of a report about the fusion of target layers."""

from __future__ import annotations

import pandas as pd

from analysis.facts import ArmSummary
from analysis.markdown import table
from analysis.schema import GATE_QUANTITIES
from analysis.wording import number


def gate_table(arm: ArmSummary) -> str:
    """Means with intervals per role and target layer."""
    assert arm.gates is not None
    headers = ["tokens", "layer", *(q.replace("_", " ") for q in GATE_QUANTITIES)]
    rows = []
    for (role, layer), of_layer in arm.gates.table.groupby(["role", "layer"]):
        by_quantity = of_layer.set_index("quantity")
        cells = [_mean_with_interval(by_quantity.loc[quantity]) for quantity in GATE_QUANTITIES]
        rows.append((role, layer, *cells))
    return table(headers, rows, numeric=1 + len(GATE_QUANTITIES))


def _mean_with_interval(row: pd.Series) -> str:
    digits = 3 if abs(row["mean"]) < 10 else 1
    if pd.isna(row["lo"]):
        return number(row["mean"], digits)
    return f"{number(row['mean'], digits)} ({number(row['lo'], digits)} to {number(row['hi'], digits)})"
