"""Losslessness: each arm's outputs against plain decoding, and against the other arm's outputs.

Greedy speculative decoding reproduces the target's tokens. Kernels for another block size may round differently, which
can flip a near-tie. A mismatch counts as explained if the target's two largest logits were closer than TIE there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.cautions import Caution, caution
from analysis.keys import taken
from analysis.runlog.counting import counting_of
from analysis.runlog.load import Evaluated, of_protocol
from analysis.runlog.pairing import Pairs

#: Logit margin below which the order of summation can change the token.
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

    ``checked``: prompts whose output was compared with plain decoding; ``mismatches``: those that differ, a row each:
    prompt_id, turn, sample, dataset, first_mismatch (token index), mismatch_margin, explained.
    ``mean_tokens``: mean output length; ``limit``: the maximum length of an answer; ``cut``: answers that reached
    it. None if not logged, and for first blocks.
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
    outputs differ although both arms are recorded as equal to plain decoding. ``answers``: their number per
    data set; empty for first blocks."""

    a: Lossless
    b: Lossless
    compared: int
    same: int
    claimed: int
    answers: Mapping[str, int]


def outputs(a: Evaluated, b: Evaluated, pairs: Pairs) -> Outputs:
    """Outputs as logged in the prompts tables."""
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


def cautions_of(compared: Outputs, names: tuple[str, str]) -> tuple[Caution, ...]:
    """A caution per arm whose output differs from plain decoding at tokens without a near-tie, and one if the arms
    cannot both match it."""
    cautions = []
    for name, arm in zip(names, (compared.a, compared.b), strict=True):
        if unexplained := int((~arm.mismatches["explained"]).sum()):
            cautions.append(caution("not-lossless", run=name, n=unexplained, total=arm.checked))
    if compared.claimed:
        cautions.append(caution("claims-disagree", n=compared.claimed, total=compared.compared))
    return tuple(cautions)


def _prompts(evaluated: Evaluated, pairs: Pairs, side: str) -> pa.Table:
    """The logged outputs of the paired prompts, in their order."""
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
    """The length limit of the evaluations, and how many answers reached it."""
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
