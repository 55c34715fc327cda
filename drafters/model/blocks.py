"""Blocks: where they are anchored, what they hold, which slots are supervised.

A block of size B at anchor a covers positions a..a+B-1. Slot 0 is the clean token x_a, slots 1..B-1 are
MASK; slot k predicts x_{a+k} (labels at the same position, DFlash, arXiv 2602.06036). Attention needs no
mask tensor: a block sees the context before its anchor and itself, which ``anchors`` alone decides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from drafters.keyed import permutation

IGNORED = -1  # label of a slot that is not supervised


def valid_anchors(supervised: np.ndarray) -> np.ndarray:
    """Positions a with supervised tokens at a and a + 1.

    ``supervised``: bool [length]. Returns int64 [n], ascending. A block may run past the end of the
    sequence; its overrun is not supervised.
    """
    return np.flatnonzero(supervised[:-1] & supervised[1:])


def sample_anchors(supervised: np.ndarray, count: int, *key: object) -> np.ndarray:
    """``count`` anchors without replacement (all, if there are fewer), ascending int64.

    ``key`` names the draw, by convention (seed, epoch, example id).
    """
    candidates = valid_anchors(supervised)
    if len(candidates) <= count:
        return candidates
    return np.sort(candidates[permutation(len(candidates), "anchors", *key)[:count]])


@dataclass(frozen=True)
class Blocks:
    """A batch of blocks: b sequences, N blocks each (padded; padding has no supervised slot), size B.

    ``anchors`` int64 [b, N], ``ids`` int64 [b, N, B] (block inputs), ``labels`` int64 [b, N, B - 1]
    (target token of slots 1..B-1, ``IGNORED`` where not supervised), ``previous`` int64 [b, N, B - 1] (the true token
    before each of these slots), ``real`` bool [b, N].
    """

    anchors: torch.Tensor
    ids: torch.Tensor
    labels: torch.Tensor
    previous: torch.Tensor
    real: torch.Tensor

    def at_risk(self, stop_ids: Collection[int]) -> torch.Tensor:
        """Bool [b, N, B - 1]: slots before the block's first stop token, which alone count in an accepted length."""
        stops = torch.isin(self.labels, torch.tensor(sorted(stop_ids), dtype=torch.int64))
        return ~stops.cumsum(-1).bool()

    @property
    def block_size(self) -> int:
        """B, the anchor slot included."""
        return self.ids.shape[-1]


def make_blocks(
    tokens: Sequence[torch.Tensor],
    supervised: Sequence[np.ndarray],
    anchors: Sequence[np.ndarray],
    *,
    block_size: int,
    mask_token_id: int,
) -> Blocks:
    """Blocks at the given anchors of a batch of sequences (int64 [n_i], bool [n_i], int64 [N_i])."""
    width = max(1, max(len(a) for a in anchors))
    batch = len(tokens)
    anchor = torch.zeros(batch, width, dtype=torch.int64)
    real = torch.zeros(batch, width, dtype=torch.bool)
    ids = torch.full((batch, width, block_size), mask_token_id, dtype=torch.int64)
    labels = torch.full((batch, width, block_size - 1), IGNORED, dtype=torch.int64)
    previous = torch.zeros_like(labels)
    ahead = torch.arange(1, block_size)
    for row, (sequence, flags, places) in enumerate(zip(tokens, supervised, anchors, strict=True)):
        count = len(places)
        place = torch.from_numpy(np.ascontiguousarray(places))
        anchor[row, :count] = place
        real[row, :count] = True
        ids[row, :count, 0] = sequence[place]
        positions = place[:, None] + ahead
        inside = positions < len(sequence)
        positions = positions.clamp(max=len(sequence) - 1)
        counted = inside & torch.from_numpy(np.ascontiguousarray(flags))[positions]
        labels[row, :count] = torch.where(counted, sequence[positions], IGNORED)
        previous[row, :count] = sequence[positions - 1]
    return Blocks(anchor, ids, labels, previous, real)


class DataHash:
    """Rolling hash of what training really consumed, in order: example id, anchors, label tokens.

    Two arms with equal hashes saw the same data in the same order, however it was batched: the hash of a
    step covers the hash before it and every example of the step one after another.
    """

    def __init__(self, state: str = "") -> None:
        self.state = state

    def update(self, example_id: str, anchors: np.ndarray, labels: np.ndarray) -> None:
        """Add one example: its id, its anchors int64 [N] and the labels of its blocks int64 [N, B - 1]."""
        digest = hashlib.sha256(self.state.encode())
        for piece in (example_id.encode(), anchors.astype("<i8").tobytes(), labels.astype("<i8").tobytes()):
            digest.update(len(piece).to_bytes(8, "little") + piece)
        self.state = digest.hexdigest()
