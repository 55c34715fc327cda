"""What can be evaluated: a trained drafter, or the most-frequent-next-token baseline.

An arm proposes the tokens after an anchor from what the target has committed so far.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
import torch

from drafters.model.drafter import Drafter
from drafters.model.fusion import Contributions
from drafters.model.head import Head, vocabulary_of
from drafters.target.frozen import Target


class Arm(Protocol):
    """One drafter under evaluation."""

    layer_ids: tuple[int, ...]  # hidden states that it reads; empty if none
    block_size: int

    def vocabulary(self, prompt: Sequence[int]) -> Collection[int] | None:
        """Target ids that it can propose after a prompt (token ids); None for all."""
        ...

    def propose(
        self, features: Sequence[torch.Tensor], anchors: Sequence[int], prompts: Sequence[Sequence[int]]
    ) -> np.ndarray:
        """Greedy draft, int64 [batch, B - 1], after anchor tokens whose contexts have features [S_i, T, H].

        ``prompts``: token ids of the sequences' prompts. Features are on the arm's device, here and below.
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
        self.head = Head(target, config)
        self.device = torch.device(device)

    def vocabulary(self, prompt: Sequence[int]) -> Collection[int] | None:
        """See :class:`Arm`."""
        return vocabulary_of(self.drafter.config, prompt)

    @torch.inference_mode()
    def propose(
        self, features: Sequence[torch.Tensor], anchors: Sequence[int], prompts: Sequence[Sequence[int]]
    ) -> np.ndarray:
        """See :class:`Arm`; one forward pass over the whole batch."""
        lengths = torch.tensor([len(f) for f in features], device=self.device)
        padded = torch.nn.utils.rnn.pad_sequence([f.to(self.drafter.dtype) for f in features], batch_first=True)
        ids = torch.full((len(anchors), 1, self.block_size), self.drafter.config.mask_token_id)
        ids[:, 0, 0] = torch.tensor(anchors)
        embeddings = self.head.embed(ids).to(self.device)
        hidden = self.drafter.draft_hidden(padded, embeddings, lengths[:, None])
        outputs = self.head.outputs(prompts)
        return outputs.ids[outputs.logits(hidden[:, 0, 1:]).argmax(-1)].cpu().numpy()

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

    def vocabulary(self, prompt: Sequence[int]) -> Collection[int] | None:
        """None: any token may be the most frequent one."""
        return None

    def propose(
        self, features: Sequence[torch.Tensor], anchors: Sequence[int], prompts: Sequence[Sequence[int]]
    ) -> np.ndarray:
        """See :class:`Arm`; only ``anchors`` are read."""
        chain = [np.asarray(anchors)]
        for _ in range(self.block_size - 1):
            chain.append(self.successor[chain[-1]])
        return np.stack(chain[1:], axis=1)

    def contributions(self, features: torch.Tensor) -> Contributions | None:
        """None: nothing is fused."""
        return None
