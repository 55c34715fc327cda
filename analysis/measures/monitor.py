"""The paired differences as a sequence that may be looked at at any time (:mod:`analysis.stats.sequential`)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.errors import UsageError
from analysis.runlog.pairing import Pairs
from analysis.runlog.reading import Run
from analysis.stats.sequential import Sequential, sequential


def monitor(a: Run, b: Run, pairs: Pairs) -> Sequential:
    """Over clusters in the order of A's log; each counts once, with the mean of its prompts' differences in tokens per
    step, which lie within the block size less 1.

    Raises UsageError where a log does not record its block size.
    """
    evaluations = [e for run in (a, b) for e in run.manifest.evaluations.values() if e.protocol in _protocols(pairs)]
    sizes = [e.block_size for e in evaluations if e.block_size is not None]
    if not sizes or len(sizes) < len(evaluations):
        raise UsageError(
            "--sequential requires the block size, which bounds a difference, and these logs do not record it"
        )
    frame = pairs.frame
    difference = frame["tokens_b"].astype(float) / frame["steps_b"] - frame["tokens_a"].astype(float) / frame["steps_a"]
    rows = pd.DataFrame({"cluster": frame["cluster"].to_numpy(), "d": difference.to_numpy(float)})
    in_order = rows.iloc[np.argsort(frame["row_a"].to_numpy(), kind="stable")]
    return sequential(in_order.groupby("cluster", sort=False)["d"].mean().to_numpy(), max(sizes) - 1)


def _protocols(pairs: Pairs) -> set[str]:
    return set(pairs.frame["protocol"].unique())
