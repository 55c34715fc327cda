"""How a draft is counted against the target: which slots were at risk, how many were right, what ended it.

One place for the rules that every log and both protocols share:

* slots 1..n-1 of a step propose the n-1 tokens after the anchor; those before the target's first stop token
  (or the length limit) are *eligible*, since beyond it nothing was at risk;
* *accepted* is the number of leading agreements within the eligible slots;
* the step adds accepted + 1 tokens: the 1 is the target's own token (bonus), the stop token included.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class StepCount:
    """The counts of one verification step; ``ended`` is one of ``analysis.schema.ENDINGS``."""

    drafted: int
    eligible: int
    accepted: int
    ended: str

    @property
    def emitted(self) -> int:
        """Tokens that the step adds to the output, the target's own included."""
        return self.accepted + 1


def count_step(
    draft: Sequence[int], truth: Sequence[int], stop_ids: Collection[int], vocabulary: Collection[int] | None = None
) -> StepCount:
    """Count one drafted block against the target's tokens at the same positions.

    ``draft``: the drafter's tokens of slots 1..; ``truth``: the target's tokens there, cut after its first
    stop token, or at the length limit. ``vocabulary``: the target ids that the drafter can propose, if not
    all. A miss on a token outside it ended for lack of ``vocabulary``.
    """
    drafted = len(draft)
    stops = next((i for i, token in enumerate(truth) if token in stop_ids), None)
    eligible = min(drafted, len(truth) if stops is None else stops)
    accepted = 0
    while accepted < eligible and draft[accepted] == truth[accepted]:
        accepted += 1
    if accepted < eligible:
        known = vocabulary is None or truth[accepted] in vocabulary
        ended = "mismatch" if known else "vocabulary"
    elif accepted == drafted:
        ended = "block"
    else:
        ended = "stop" if stops is not None else "length"
    return StepCount(drafted, eligible, accepted, ended)


def repetition(tokens: Sequence[int], n: int = 4) -> float:
    """Share of repeated n-grams, 1 - distinct / all: 0 where none repeats, near 1 in a loop.

    Sequences shorter than n + 1 tokens have one n-gram at most, so 0.
    """
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def output_hash(tokens: Sequence[int]) -> str:
    """Short hash (16 hex digits) of output tokens, to see whether two runs had the same text."""
    return hashlib.sha256(np.asarray(tokens, dtype="<i4").tobytes()).hexdigest()[:16]
