"""The part of a report about acceptance at every position of the answers."""

from __future__ import annotations

import pandas as pd

from analysis.comparison.pairwise import Comparison
from analysis.report.markdown import table
from analysis.report.sections.overview import own_means
from analysis.wording import interval, number, signed


def place_table(c: Comparison) -> str:
    """Mean accepted length by place in the answer."""
    assert c.anchors is not None
    return _table("token of the answer", c.anchors.by_place)


def entropy_table(c: Comparison) -> str:
    """Mean accepted length by the entropy of the target's next token."""
    assert c.anchors is not None
    return _table("entropy (nats)", c.anchors.by_entropy)


def _table(what: str, curve: pd.DataFrame) -> str:
    rows = [
        (row["class"], f"{row['n']:,}", number(row["mean_a"]), number(row["mean_b"]), signed(row["difference"]),
         *(("—", "—") if pd.isna(row["lo"]) else (interval(row["lo"], row["hi"]), number(row["n_effective"], 1))))
        for row in curve.to_dict("records")
    ]  # fmt: skip
    return table([what, "positions", "A", "B", "difference", "95% interval", "effective"], rows, numeric=6)


def everywhere(c: Comparison) -> str:
    """The means over all positions, and what they gain in precision over the steps of decoding."""
    assert c.anchors is not None
    a, b = own_means(c.anchors.overall)
    told = (
        "The drafter proposed after every position of each answer, not only where decoding takes a step: mean accepted "
        f"length {a} for A and {b} for B. This is not tau: decoding takes more steps where acceptance is low. "
    )
    gained = c.anchors.precision
    if gained is None:
        return told + "Their precision cannot be compared with that of tau: a standard error is 0 or unknown."
    return told + (
        "Relative to the mean of A, the difference has the standard error that tau would have over "
        f"{number(gained, 2)} times {'as many' if gained >= 1 else 'the'} answers."
    )
