"""The part of a report about acceptance at every position of the answers."""

from __future__ import annotations

import pandas as pd

from analysis.comparison.pairwise import Comparison
from analysis.report.markdown import table
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
         "—" if pd.isna(row["lo"]) else interval(row["lo"], row["hi"]))
        for row in curve.to_dict("records")
    ]  # fmt: skip
    return table([what, "positions", "A", "B", "difference", "95% interval"], rows, numeric=5)


def precision(c: Comparison) -> str:
    """What all positions gain over the steps of decoding."""
    assert c.anchors is not None
    gained = c.anchors.precision
    if gained is None:
        return "The precision of the two means cannot be compared: one of them has no standard error."
    word = "as many" if gained >= 1 else "the"
    return (
        "Relative to A's mean, the standard error of this difference is that which tau would have over "
        f"{number(gained, 2)} times {word} answers."
    )
