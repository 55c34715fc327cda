"""What a fusion does with each target layer: gate, feature norm and contribution, from moments over all tokens.

Levels of gates are not identified: the norm after the projection removes a factor common to all layers, and the
projection absorbs a constant per layer. Means and their ranking are descriptive.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from analysis.cluster import cluster_t, partition
from analysis.load import Evaluated
from analysis.ratio import linearise
from analysis.schema import GATE_QUANTITIES, KEY
from analysis.wording import Caution, caution


@dataclass(frozen=True)
class Gates:
    """Gate moments of one arm.

    ``table``: one row per (role, layer, quantity): ``mean`` over tokens, ``lo`` and ``hi`` its 95% interval over
    prompt clusters (NaN for one cluster), ``tokens``, ``prompts``, ``clusters``. Quantities are GATE_QUANTITIES;
    layers are indices into hidden_states.
    ``sample``: single tokens: role, layer, gate, feature_norm. Empty if the run has none.
    """

    table: pd.DataFrame
    sample: pd.DataFrame


def summarise(evaluated: Evaluated) -> Gates | Caution | None:
    """Gate means of a run's evaluated prompts; a caution if a value is NaN or infinite; None if it logged none."""
    run = evaluated.run
    if not run.has("gate_stats"):
        return None
    stats = run.read("gate_stats")
    stats = stats.filter(pc.equal(stats["protocol"], evaluated.protocol)).to_pandas()
    sample = pd.DataFrame(columns=["role", "layer", "gate", "feature_norm"])
    if run.has("gates"):
        rows = run.read("gates")
        sample = rows.filter(pc.equal(rows["protocol"], evaluated.protocol)).to_pandas()[list(sample.columns)]
    sums = [f"{quantity}_sum" for quantity in GATE_QUANTITIES]
    values = stats[sums], sample[["gate", "feature_norm"]]
    if not all(np.isfinite(frame.to_numpy(dtype=np.float64)).all() for frame in values):
        return caution("gates-nan", run=run.name)
    stats = stats[stats["n"] > 0].merge(evaluated.prompts[[*KEY, "cluster_id"]], on=list(KEY))
    if stats.empty:
        return None
    rows = [
        {"role": role, "layer": int(layer), **row}
        for (role, layer), of_layer in stats.groupby(["role", "layer"])
        for row in _means(of_layer)
    ]
    return Gates(pd.DataFrame(rows), sample)


def _means(of_layer: pd.DataFrame) -> list[dict[str, object]]:
    """Ratios of sums, value over tokens: prompts count by their tokens, and vary by whole clusters."""
    clusters = partition(of_layer["cluster_id"])
    rows = []
    for quantity in GATE_QUANTITIES:
        mean = cluster_t(linearise(of_layer[f"{quantity}_sum"], of_layer["n"]), clusters)
        bounds = {"lo": mean.lo if mean.lo is not None else np.nan, "hi": mean.hi if mean.hi is not None else np.nan}
        counts = {"tokens": int(of_layer["n"].sum()), "prompts": len(of_layer), "clusters": clusters.count}
        rows.append({"quantity": quantity, "mean": mean.mean, **bounds, **counts})
    return rows
