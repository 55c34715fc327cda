"""Was the output the target's own? What each arm logged about its text against plain decoding, and against the other.

Greedy speculative decoding gives the target's tokens. Where kernels for another block size round differently, a
near-tie can flip: a mismatch is explained if the target's two best logits were closer than TIE there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.keys import taken
from analysis.runlog.counting import counting_of
from analysis.runlog.load import Evaluated, of_protocol
from analysis.runlog.pairing import Pairs
from analysis.wording import Caution, caution

#: A margin of the target's logits under which another order of summation can decide.
TIE = 1e-3
_COLUMNS = (
    "eval_id",
    "finish_reason",
    "output_tokens",
    "output_hash",
    "matches_baseline",
    "first_mismatch",
    "mismatch_margin",
)


@dataclass(frozen=True, eq=False)
class Lossless:
    """One arm against its plain baseline, over the paired prompts.

    ``checked``: prompts whose output was held against plain decoding; ``mismatches``: those that differ, a row each:
    prompt_id, turn, sample, dataset, first_mismatch (token index), mismatch_margin, explained.
    ``mean_tokens``: mean output length; ``limit``: the most tokens that an answer could have; ``cut``: answers that
    ended there. None where it was not logged, and for first blocks.
    """

    checked: int
    mismatches: pd.DataFrame
    mean_tokens: float | None
    limit: int | None
    cut: int | None

    @property
    def matches(self) -> int:
        return self.checked - len(self.mismatches)


@dataclass(frozen=True)
class Outputs:
    """Both arms, and ``same`` of ``compared`` prompts on which their outputs are equal. ``claimed``: prompts whose
    outputs differ although both arms claim to match plain decoding. ``answers``: how many there are
    per data set; none of first blocks."""

    a: Lossless
    b: Lossless
    compared: int
    same: int
    claimed: int
    answers: Mapping[str, int]


def outputs(a: Evaluated, b: Evaluated, pairs: Pairs) -> Outputs:
    """What the prompts tables say about outputs."""
    first, second = _prompts(a, pairs, "a"), _prompts(b, pairs, "b")
    equal = pc.equal(first["output_hash"], second["output_hash"])
    if counting_of(a.run.manifest, a.protocol).ids != counting_of(b.run.manifest, b.protocol).ids:
        equal = pa.chunked_array([pa.nulls(len(equal), pa.bool_())])  # of tokens and of texts: not comparable
    same = pc.sum(equal).as_py() or 0
    answers = pairs.frame["dataset"].value_counts(sort=False).sort_index() if a.protocol != "prefix" else {}
    return Outputs(
        _lossless(first, pairs, a),
        _lossless(second, pairs, b),
        compared=len(equal) - equal.null_count,
        same=same,
        claimed=pc.sum(pc.and_(pc.invert(equal), pc.and_(*(t["matches_baseline"] for t in (first, second))))).as_py()
        or 0,
        answers={str(name): int(count) for name, count in answers.items()},
    )


def cautions_of(found: Outputs, names: tuple[str, str]) -> tuple[Caution, ...]:
    """A warning per arm whose output differs from plain decoding where no near-tie explains it, and one where the arms
    cannot both match it."""
    told = []
    for name, arm in zip(names, (found.a, found.b), strict=True):
        if unexplained := int((~arm.mismatches["explained"]).sum()):
            told.append(caution("not-lossless", run=name, n=unexplained, total=arm.checked))
    if found.claimed:
        told.append(caution("claims-disagree", n=found.claimed, total=found.compared))
    return tuple(told)


def _prompts(evaluated: Evaluated, pairs: Pairs, side: str) -> pa.Table:
    """What the arm logged about the outputs of the paired prompts, in their order."""
    rows = of_protocol(evaluated.run.read("prompts", ["protocol", *_COLUMNS]), evaluated.protocol)
    return taken(rows.select(list(_COLUMNS)), pairs.frame[f"row_{side}"].to_numpy())


def _lossless(rows: pa.Table, pairs: Pairs, arm: Evaluated) -> Lossless:
    matches = rows["matches_baseline"]
    if arm.protocol == "replay":  # the output is the target's own; the column says how near to ties it is
        matches = pa.chunked_array([pa.nulls(len(rows), pa.bool_())])
    differing = np.flatnonzero(pc.equal(matches, False).fill_null(False).to_numpy())
    columns = ["prompt_id", "turn", "sample", "dataset"]
    logged = rows.select(["first_mismatch", "mismatch_margin"]).to_pandas().iloc[differing]
    mismatches = pd.concat(
        [pairs.frame[columns].iloc[differing].reset_index(drop=True), logged.reset_index(drop=True)], axis=1
    )
    known = rows["output_tokens"]
    return Lossless(
        checked=len(rows) - matches.null_count,
        mismatches=mismatches.assign(explained=mismatches["mismatch_margin"] < TIE),
        mean_tokens=pc.mean(known).as_py() if len(known) > known.null_count else None,
        **_length_limit(rows, arm),
    )


def _length_limit(rows: pa.Table, arm: Evaluated) -> Mapping[str, int | None]:
    """The limit of the evaluations that the answers are of, and how many ended there."""
    if arm.protocol == "prefix":
        return {"limit": None, "cut": None}
    evaluations = map(arm.run.manifest.evaluations.get, pc.unique(rows["eval_id"]).to_pylist())
    limits = [e.settings.get("max_new_tokens") if e else None for e in evaluations]
    stated = [limit for limit in limits if isinstance(limit, int)]
    reasons = rows["finish_reason"]
    known = len(reasons) > reasons.null_count
    return {
        "limit": max(stated) if len(stated) == len(limits) else None,
        "cut": (pc.sum(pc.equal(reasons, "length")).as_py() or 0) if known else None,
    }
