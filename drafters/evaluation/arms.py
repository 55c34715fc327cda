"""What can be evaluated: a trained drafter, or the most-frequent-next-token baseline.

An arm proposes the tokens after an anchor from what the target has committed so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from drafters.model.drafter import Drafter
from drafters.model.fusion import Contributions
from drafters.model.head import Head
from drafters.target.frozen import Target


class Arm(Protocol):
    """One drafter under evaluation."""

    layer_ids: tuple[int, ...]  # hidden states that it reads; empty if none
    block_size: int
    vocabulary: frozenset[int] | None  # target ids that it can propose, None for all

    def propose(self, features: Sequence[torch.Tensor], anchors: Sequence[int]) -> np.ndarray:
        """Greedy draft, int64 [batch, B - 1], after anchor tokens whose contexts have features [S_i, T, H].

        Features are on the arm's device, here and below.
        """
        ...

    def contributions(self, features: torch.Tensor) -> Contributions | None:
        """The fusion's decomposition at tokens with features [n, T, H]; None if it has no projection."""
        ...


class BlockArm:
    """A block-diffusion drafter with its target's embedding and head, run in the target's type."""

    def __init__(self, drafter: Drafter, target: Target, device: str = "cpu"):
        self.drafter = drafter.to(device).cast(target.dtype).eval()
        config = drafter.config
        self.layer_ids, self.block_size = config.target_layer_ids, config.block_size
        self.vocabulary = None if config.draft_vocab is None else frozenset(config.draft_vocab)
        self.head = Head(target, config)
        self.device = torch.device(device)

    @torch.inference_mode()
    def propose(self, features: Sequence[torch.Tensor], anchors: Sequence[int]) -> np.ndarray:
        """See :class:`Arm`; one forward pass over the whole batch."""
        lengths = torch.tensor([len(f) for f in features], device=self.device)
        padded = torch.nn.utils.rnn.pad_sequence([f.to(self.drafter.dtype) for f in features], batch_first=True)
        ids = torch.full((len(anchors), 1, self.block_size), self.drafter.config.mask_token_id)
        ids[:, 0, 0] = torch.tensor(anchors)
        embeddings = self.head.embed(ids).to(self.device)
        hidden = self.drafter.draft_hidden(padded, embeddings, lengths[:, None])
        rows = (hidden[:, 0, 1:] @ self.head.weight.T).argmax(-1)
        return self.head.ids[rows].cpu().numpy()

    @torch.inference_mode()
    def contributions(self, features: torch.Tensor) -> Contributions | None:
        """See :class:`Arm`."""
        return self.drafter.fusion.contributions(features.float())


class NextTokenArm:
    """Always proposes the most frequent next token: after each token, its most frequent successor.

    What template memory alone can do; a drafter that reads hidden states has to beat it. Needs no target
    features.
    """

    layer_ids: tuple[int, ...] = ()
    vocabulary: frozenset[int] | None = None

    def __init__(self, successor: np.ndarray, block_size: int):
        """``successor``: int64 [vocab], the token to propose after each token."""
        self.successor, self.block_size = successor, block_size

    @classmethod
    def from_answers(cls, answers: Sequence[np.ndarray], vocab_size: int, block_size: int) -> NextTokenArm:
        """Count successors in token sequences; a token never seen is followed by the most frequent of all.

        Ties go to the smaller id.
        """
        pairs = np.concatenate([np.stack((a[:-1], a[1:]), axis=1) for a in answers]).astype(np.int64)
        successor = np.full(vocab_size, np.bincount(pairs[:, 1], minlength=vocab_size).argmax())
        codes, counts = np.unique(pairs[:, 0] * vocab_size + pairs[:, 1], return_counts=True)
        # the last write to a cell wins: fewest first, and the larger of two equally frequent ids first
        order = np.lexsort((-codes, counts))
        successor[codes[order] // vocab_size] = codes[order] % vocab_size
        return cls(successor, block_size)

    def propose(self, features: Sequence[torch.Tensor], anchors: Sequence[int]) -> np.ndarray:
        """See :class:`Arm`; ``features`` are not read."""
        chain = [np.asarray(anchors)]
        for _ in range(self.block_size - 1):
            chain.append(self.successor[chain[-1]])
        return np.stack(chain[1:], axis=1)

    def contributions(self, features: torch.Tensor) -> Contributions | None:
        """None: nothing is fused."""
        return None
