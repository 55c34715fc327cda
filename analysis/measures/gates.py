"""Use of each target layer by a fusion: gate, feature norm and contribution, from moments over all tokens.

Gate levels are not identified: the norm after the projection removes a factor common to all layers, and the projection
absorbs a constant per layer. Means and their ranking are descriptive. The variation of log(g_l / g_last) from token to
token is identified, because no constant can absorb it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from analysis.cautions import Caution, caution
from analysis.runlog.load import Evaluated
from analysis.runlog.schema import GATE_MOMENTS, KEY, PAIR_KEY
from analysis.stats.cluster import ClusterMean, Partition, cluster_t, partition
from analysis.stats.ratio import linearise, weights

#: Column that counts the tokens of a quantity. Logs are summed over the tokens whose gates are positive, log_gate over
#: those whose own is, log_ratio over those whose last layer's is too; the other quantities over all.
_COUNTS = {"log_gate": "n_log_gate", "log_ratio": "n_log"}
#: Share of tokens whose gate is 0 or negative and has no logarithm; present only if there are such tokens.
NOT_POSITIVE = "not_positive"
TABLE = (
    *("role", "layer", "quantity", "mean", "lo", "hi", "sd", "sd_lo", "sd_hi", "sd_within", "sd_between"),
    *("tokens", "prompts", "clusters", "n_effective", "sd_n_effective"),
)


@dataclass(frozen=True, eq=False)
class Gates:
    """Gate moments of one arm, on the prompts of ``protocol``.

    ``table``: one row per (role, layer, quantity), columns TABLE; quantities are GATE_MOMENTS (and NOT_POSITIVE where
    gates are 0 or negative), layers are indices into hidden_states. ``mean`` is over tokens, ``sd`` its standard
    deviation over tokens, each with a 95% interval over prompt clusters (NaN for one cluster), of which
    ``n_effective`` and ``sd_n_effective`` are effective; ``sd_within`` prompts
    and ``sd_between`` them (analysis of variance). ``sample``: single tokens: role, layer, gate, feature_norm. Empty if
    the run has none. ``spread``: per prompt, PAIR_KEY columns and ``spread``: standard deviation over its answer tokens
    of log(g_l / g_last), root mean square over layers; the variation of the gate within that prompt. Empty without a
    moving gate.
    """

    protocol: str
    table: pd.DataFrame
    sample: pd.DataFrame
    spread: pd.DataFrame

    @property
    def moving(self) -> bool:
        """Whether the arm has a gate: without one it is logged as 1 everywhere."""
        gate = self.table[self.table["quantity"] == "gate"]
        return bool(((gate["mean"] != 1) | (gate["sd"] > 0)).any())


def summarise(evaluated: Evaluated) -> Gates | Caution | None:
    """Gate moments of a run's evaluated prompts; a caution if a value is NaN or infinite; None if it logged none."""
    run = evaluated.run
    if not run.has("gate_stats"):
        return None
    stats = run.read("gate_stats")
    stats = stats.filter(pc.equal(stats["protocol"], evaluated.protocol)).to_pandas()
    sample = pd.DataFrame(columns=["role", "layer", "gate", "feature_norm"])
    if run.has("gates"):
        rows = run.read("gates")
        sample = rows.filter(pc.equal(rows["protocol"], evaluated.protocol)).to_pandas()[list(sample.columns)]
    sums = [f"{quantity}_{kind}" for quantity in GATE_MOMENTS for kind in ("sum", "sumsq")]
    values = stats[sums], sample[["gate", "feature_norm"]]
    if not all(np.isfinite(frame.to_numpy(dtype=np.float64)).all() for frame in values):
        return caution("gates-nan", run=run.name)
    # runs from before n_log_gate summed both logs over the same tokens
    stats["n_log_gate"] = stats["n_log_gate"].astype("Int64").fillna(stats["n_log"]).astype(np.int64)
    stats = stats[stats["n"] > 0].merge(evaluated.prompts[[*KEY, "cluster_id"]], on=list(KEY))
    if stats.empty:
        return None
    rows = [
        {"role": role, "layer": int(layer), **row}
        for (role, layer), of_layer in stats.groupby(["role", "layer"])
        for row in _quantities(of_layer)
    ]
    return Gates(evaluated.protocol, pd.DataFrame(rows, columns=list(TABLE)), sample, _spread(stats))


def _quantities(of_layer: pd.DataFrame) -> list[dict[str, object]]:
    """Ratios of sums over tokens: prompts are weighted by their tokens, and whole clusters are the units."""
    everywhere = partition(of_layer["cluster_id"])
    rows = []
    lacking = [NOT_POSITIVE] if (of_layer["n_log_gate"] < of_layer["n"]).any() else []
    for quantity in (*GATE_MOMENTS, *lacking):
        counted = of_layer[_COUNTS.get(quantity, "n")].to_numpy(dtype=np.float64)
        some = counted > 0
        if not some.any():
            continue
        n, clusters = counted[some], everywhere.subset(some)
        if quantity == NOT_POSITIVE:
            total = squares = (of_layer["n"] - of_layer["n_log_gate"]).to_numpy(dtype=np.float64)[some]
        else:
            total, squares = (of_layer.loc[some, f"{quantity}_{kind}"].to_numpy() for kind in ("sum", "sumsq"))
        mean = cluster_t(linearise(total, n), clusters, weights=weights(n))
        counts = {"tokens": int(n.sum()), "prompts": n.size, "clusters": clusters.count, "n_effective": _units(mean)}
        bounds = {"lo": _nan(mean.lo), "hi": _nan(mean.hi)}
        rows.append(
            {"quantity": quantity, "mean": mean.mean, **bounds, **_spreads(total, squares, n, clusters), **counts}
        )
    return rows


def _spreads(total: np.ndarray, squares: np.ndarray, n: np.ndarray, clusters: Partition) -> dict[str, float]:
    """Standard deviation over tokens with its interval, and its parts, from sums and sums of squares per prompt."""
    mean, tokens = total.sum() / n.sum(), n.sum()
    # the variance is a ratio of sums too: its derivative with respect to the mean is 0
    around = np.maximum(squares - 2 * mean * total + mean**2 * n, 0.0)
    noise = 1e-12 * (squares.sum() / tokens)  # rounding error of a constant
    variance = cluster_t(linearise(around, n), clusters, weights=weights(n))
    inside = np.maximum(squares - total**2 / n, 0.0).sum()
    free = tokens - n.size
    within = inside / free if free > 0 else 0.0
    between = 0.0
    if n.size > 1:
        typical = (tokens - (n @ n) / tokens) / (n.size - 1)
        among = (n @ (total / n - mean) ** 2) / (n.size - 1)
        between = max(0.0, (among - within) / typical)
    lo, hi = (math.nan if b is None else _root(b, noise) for b in (variance.lo, variance.hi))
    parts = {"sd_within": _root(within, noise), "sd_between": _root(between, noise)}
    return {"sd": _root(variance.mean, noise), "sd_lo": lo, "sd_hi": hi, "sd_n_effective": _units(variance), **parts}


def _units(mean: ClusterMean) -> float:
    return mean.effective if mean.se else math.nan


def _spread(stats: pd.DataFrame) -> pd.DataFrame:
    """Per prompt: root mean square over layers of the standard deviation of log(g_l / g_last) over its tokens (answer
    tokens if there are any)."""
    role = "answer" if (stats["role"] == "answer").any() else stats["role"].iloc[0]
    last = stats["layer"].max()
    rows = stats[(stats["role"] == role) & (stats["layer"] != last) & (stats["n_log"] > 1)]
    n = rows["n_log"]
    variance = ((rows["log_ratio_sumsq"] - rows["log_ratio_sum"] ** 2 / n) / (n - 1)).clip(lower=0)
    spread = variance.groupby([rows[key] for key in PAIR_KEY]).mean().pow(0.5).rename("spread").reset_index()
    return spread if (spread["spread"] > 1e-9).any() else spread.iloc[:0]


def _root(variance: float, noise: float) -> float:
    return math.sqrt(variance) if variance > noise else 0.0


def _nan(value: float | None) -> float:
    return math.nan if value is None else value
