"""What goes with the gain: the paired difference per prompt against properties of the prompt.

Each property by itself, as the slope of B - A (tokens per step) per standard deviation of the property, within data
sets (one intercept each), with a CR2 interval over prompt clusters (:mod:`analysis.stats.regression`) and p adjusted by
Holm over the properties. Associations, not effects: properties go together, and none was assigned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from analysis.runlog.load import Evaluated
from analysis.runlog.pairing import Pairs
from analysis.runlog.schema import PAIR_KEY
from analysis.stats.cluster import FloatArray, partition
from analysis.stats.families import holm
from analysis.stats.method import ALPHA, FEWEST, LEVEL
from analysis.stats.regression import slope

_KEY = list(PAIR_KEY)


@dataclass(frozen=True)
class Explained:
    """One property: ``slope``, tokens of B - A per standard deviation of it, with interval, p and p by Holm;
    ``n_effective``: effective number of clusters."""

    name: str
    slope: float
    lo: float
    hi: float
    p: float
    p_adjusted: float
    n_pairs: int
    n_effective: float

    @property
    def significant(self) -> bool:
        """Whether the slope differs from 0, on enough effective clusters for a verdict."""
        return self.p_adjusted < ALPHA and self.n_effective >= FEWEST


def explained(a: Evaluated, pairs: Pairs) -> tuple[Explained, ...]:
    """Of the properties that the log of ``a`` has for every pair; empty without pairs."""
    if pairs.frame.empty:
        return ()
    frame = pairs.frame
    gain = (frame["tokens_b"] / frame["steps_b"] - frame["tokens_a"] / frame["steps_a"]).to_numpy()
    clusters, datasets = partition(frame["cluster_id"]), partition(frame["dataset"])
    found = []
    for name, values in _properties(a, frame):
        spread = float(values.std(ddof=1)) if values.size > 1 else 0.0
        if spread > 0 and (fit := slope(values / spread, gain, datasets, clusters, LEVEL)) is not None:
            found.append(Explained(name, fit.slope, fit.lo, fit.hi, fit.p, fit.p, gain.size, fit.effective))
    adjusted = holm([one.p for one in found])
    return tuple(replace(one, p_adjusted=p) for one, p in zip(found, adjusted, strict=True) if p is not None)


def _properties(a: Evaluated, frame: pd.DataFrame) -> Iterator[tuple[str, FloatArray]]:
    """Name and values (n,) of every property that is known for all pairs."""
    table = a.run.read("prompts", [*_KEY, "prompt_tokens", "output_tokens"])
    prompts = table.filter(pc.equal(table["protocol"], a.protocol)).to_pandas()
    rows = frame[_KEY].merge(prompts, on=_KEY, how="left")
    for name, column in (("log2 of prompt tokens", "prompt_tokens"), ("log2 of answer tokens", "output_tokens")):
        if (rows[column] > 0).all() and not (a.protocol == "prefix" and column == "output_tokens"):
            yield name, np.log2(rows[column].to_numpy(dtype=np.float64))
    if frame["repetition_a"].notna().all():
        yield "repetition of the answer", frame["repetition_a"].to_numpy(dtype=np.float64)
    if a.run.has("anchors"):
        anchors = a.run.read("anchors", [*_KEY, "entropy"])
        of_protocol = anchors.filter(pc.equal(anchors["protocol"], a.protocol)).to_pandas()
        mean = of_protocol.groupby(_KEY, observed=True)["entropy"].mean().rename("entropy").reset_index()
        entropy = frame[_KEY].merge(mean, on=_KEY, how="left")["entropy"]
        if len(entropy) and entropy.notna().all():
            yield "mean entropy of the target's next token", entropy.to_numpy(dtype=np.float64)
