"""Was the output the target's own? What each arm logged about its text against plain decoding, and against the other.

Greedy speculative decoding gives the target's tokens. Where kernels for another block size round differently, a
near-tie can flip: a mismatch is explained if the target's two best logits were closer than TIE there.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import pyarrow.compute as pc

from analysis.load import Evaluated
from analysis.pair import Pairs
from analysis.schema import PAIR_KEY
from analysis.wording import Caution, caution

#: A margin of the target's logits under which another order of summation can decide.
TIE = 1e-3
_COLUMNS = ("output_tokens", "output_hash", "matches_baseline", "first_mismatch", "mismatch_margin")


@dataclass(frozen=True)
class Lossless:
    """One arm against its plain baseline, over the paired prompts.

    ``checked``: prompts whose output was held against plain decoding; ``mismatches``: those that differ, a row each:
    prompt_id, turn, sample, dataset, first_mismatch (token index), mismatch_margin, explained.
    ``mean_tokens``: mean output length.
    """

    checked: int
    mismatches: pd.DataFrame
    mean_tokens: float | None

    @property
    def matches(self) -> int:
        return self.checked - len(self.mismatches)


@dataclass(frozen=True)
class Outputs:
    """Both arms, and ``same`` of ``compared`` prompts on which their outputs are equal."""

    a: Lossless
    b: Lossless
    compared: int
    same: int


def outputs(a: Evaluated, b: Evaluated, pairs: Pairs) -> Outputs:
    """What the prompts tables say about outputs."""
    first, second = _prompts(a, pairs), _prompts(b, pairs)
    hashes = first["output_hash"].notna() & second["output_hash"].notna()
    same = int((first["output_hash"] == second["output_hash"])[hashes].sum())
    return Outputs(_lossless(first), _lossless(second), int(hashes.sum()), same)


def cautions_of(found: Outputs, names: tuple[str, str]) -> tuple[Caution, ...]:
    """A warning per arm whose output differs from plain decoding where no near-tie explains it."""
    told = []
    for name, arm in zip(names, (found.a, found.b), strict=True):
        if unexplained := int((~arm.mismatches["explained"]).sum()):
            told.append(caution("not-lossless", run=name, n=unexplained, total=arm.checked))
    return tuple(told)


def _prompts(evaluated: Evaluated, pairs: Pairs) -> pd.DataFrame:
    """The paired prompts in order, with what the arm logged about its output."""
    table = evaluated.run.read("prompts", [*PAIR_KEY, *_COLUMNS])
    rows = table.filter(pc.equal(table["protocol"], evaluated.protocol)).to_pandas()
    return pairs.frame[[*PAIR_KEY, "dataset"]].merge(rows, on=list(PAIR_KEY), how="left", validate="one_to_one")


def _lossless(rows: pd.DataFrame) -> Lossless:
    checked = rows[rows["matches_baseline"].notna()]
    differing = checked[~checked["matches_baseline"].astype(bool)]
    columns = ["prompt_id", "turn", "sample", "dataset", "first_mismatch", "mismatch_margin"]
    mismatches = differing[columns].assign(explained=differing["mismatch_margin"] < TIE).reset_index(drop=True)
    known = rows["output_tokens"].dropna()
    return Lossless(len(checked), mismatches, float(known.mean()) if len(known) else None)
