"""How a draft is counted against the target: which slots were at risk, how many were right, what ended it.

One place for the rules that every log and both protocols share:

* slots 1..n-1 of a step propose the n-1 tokens after the anchor; those before the target's first stop token
  (or the length limit) are *eligible*, since beyond it nothing was at risk;
* *accepted* is the number of leading agreements within the eligible slots;
* the step adds accepted + 1 tokens: the 1 is the target's own token (bonus), the stop token included.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class StepCount:
    """The counts of one verification step; ``ended`` is one of ``analysis.runlog.schema.ENDINGS``."""

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
    """Count one drafted block against the target's tokens at the same positions, all of them known.

    ``draft``: the drafter's tokens of slots 1..; ``truth``: the target's tokens there, cut after its first
    stop token, or at the length limit. ``vocabulary``: the target ids that the drafter can propose, if not all.
    """
    stop_at = next((i for i, token in enumerate(truth) if token in stop_ids), None)
    agreed = 0
    while agreed < min(len(draft), len(truth)) and draft[agreed] == truth[agreed]:
        agreed += 1
    missing = vocabulary is not None and agreed < len(truth) and truth[agreed] not in vocabulary
    return close_step(len(draft), agreed, stop_at=stop_at, room=len(truth) + 1, outside_vocabulary=missing)


def count_first_block(
    draft: Sequence[int], answer: Sequence[int], stop_ids: Collection[int], vocabulary: Collection[int] | None = None
) -> StepCount:
    """Count the block after an answer's first token, as the ``prefix`` protocol and validation in training do.

    ``answer``: the target's answer from its first token on, cut at the block's size. A first token that stops leaves
    nothing to accept: the step adds that token alone.
    """
    count = count_step(draft, answer[1:], stop_ids, vocabulary)
    return replace(count, ended="stop") if answer[0] in stop_ids else count


def close_step(
    drafted: int, agreed: int, *, stop_at: int | None, room: int, outside_vocabulary: bool = False
) -> StepCount:
    """The counts of a step from ``agreed`` leading agreements of ``drafted`` slots.

    ``stop_at``: how many tokens come before the first stop token, if the step reached one; ``room``: how many
    tokens the step may still add; ``outside_vocabulary``: the target's token after the agreements is one that
    the drafter cannot propose, so that a miss there ended for lack of vocabulary.
    """
    eligible = min(drafted, room - 1, drafted if stop_at is None else stop_at)
    accepted = min(agreed, eligible)
    if accepted < eligible:
        ended = "vocabulary" if outside_vocabulary else "mismatch"
    elif stop_at is not None and accepted == stop_at:
        ended = "stop"
    elif accepted == drafted:
        ended = "block"
    else:
        ended = "length"
    return StepCount(drafted, eligible, accepted, ended)
