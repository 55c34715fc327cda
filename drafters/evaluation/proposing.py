"""An arm in the decoding loop: the proposer that drafts what the arm would."""

from __future__ import annotations

from drafters.decoding.lookup_first import LookupFirst
from drafters.decoding.proposers import BlockProposer, LookupProposer, NextTokenProposer, Proposer
from drafters.evaluation.arms import Arm, BlockArm, LookupArm, NextTokenArm
from drafters.evaluation.lookup_first import LookupFirstArm
from drafters.target.frozen import Target


def proposer_of(arm: Arm, target: Target, block_size: int | None = None, confidence: float = 0.0) -> Proposer:
    """What proposes an arm's tokens in the decoding loop, in blocks of at most ``block_size`` (default: the arm's).

    ``confidence``: see :class:`~drafters.decoding.proposers.BlockProposer`. Raises ValueError for a block size or a
    confidence that the arm cannot have.
    """
    if isinstance(arm, BlockArm):
        drafter = BlockProposer(target, arm.drafter, block_size, confidence)
        return LookupFirst(drafter) if isinstance(arm, LookupFirstArm) else drafter
    if confidence:
        raise ValueError("confidence requires a trained drafter")
    size = arm.block_size if block_size is None else block_size
    if not 2 <= size <= arm.block_size:
        raise ValueError(f"block size {size} is not within 2..{arm.block_size}, that of the arm")
    if isinstance(arm, NextTokenArm):
        return NextTokenProposer(arm.successor, size)
    assert isinstance(arm, LookupArm)
    return LookupProposer(size, arm.longest)
