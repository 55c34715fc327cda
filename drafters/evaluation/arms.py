"""What can be evaluated: a trained drafter, or a baseline that needs no training.

An arm proposes the tokens after an anchor from the tokens up to it and the target's hidden states before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from drafters.decoding.lookup import LONGEST, lookup
from drafters.model.blocks import IGNORED
from drafters.model.drafter import Context, Drafter
from drafters.model.fusion import Contributions
from drafters.model.head import Head, OutputRows, vocabulary_of
from drafters.model.selection import walk
from drafters.target.frozen import Target

Tokens = NDArray[np.int64]
NO_DRAFT = -1  # where an arm proposes nothing
CANDIDATES = 16  # the largest rank that is logged, for all ranks from there on; DFlash2's number of candidates
_SLOTS = 2048  # block slots of one pass: with the head of a large vocabulary, their logits are half a gigabyte


@dataclass(frozen=True)
class Passage:
    """A token sequence and the blocks to draft in it.

    ``tokens`` int64 [n], the first ``prompt`` of them a prompt's; ``features`` [m, T, H]: hidden states of the first
    m tokens, all before the last anchor at least, on the arm's device; ``anchors`` int64 [N], ascending, within
    1..n-1; ``sizes`` int64 [N]: slots of each block, its anchor's own included.
    """

    tokens: Tokens
    prompt: int
    features: torch.Tensor
    anchors: Tokens
    sizes: Tokens


@dataclass(frozen=True)
class Ranked:
    """Greedy drafts of a passage, int64 [N, B - 1], NO_DRAFT from where there is none; and where an arm gives every
    slot a distribution of its own, ``ranks`` int64 [N, B - 1]: how many tokens that puts before the passage's, at most
    CANDIDATES; NO_DRAFT past a block's or the passage's end."""

    drafts: Tokens
    ranks: Tokens | None


class Arm(Protocol):
    """One drafter under evaluation."""

    layer_ids: tuple[int, ...]  # hidden states that it reads; empty if none
    block_size: int

    def vocabulary(self, prompt: Sequence[int]) -> Collection[int] | None:
        """Target ids that it can propose after a prompt (token ids); None for all."""
        ...

    def propose(self, passages: Sequence[Passage]) -> list[Tokens]:
        """Greedy drafts after the anchors of each passage: int64 [N, B - 1], NO_DRAFT from where there is none.

        A draft depends on the tokens up to its anchor and the features before it, on nothing later.
        """
        ...

    def propose_ranked(self, passages: Sequence[Passage]) -> list[Ranked]:
        """The same, with the ranks of the passage's own tokens."""
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

    def propose(self, passages: Sequence[Passage]) -> list[Tokens]:
        """See :class:`Arm`; as many passages in a pass as ``_SLOTS`` allows, their contexts projected once."""
        return [found.drafts for group in self._groups(passages) for found in self._propose(group, ranked=False)]

    def propose_ranked(self, passages: Sequence[Passage]) -> list[Ranked]:
        """See :class:`Arm`."""
        return [found for group in self._groups(passages) for found in self._propose(group, ranked=True)]

    def _groups(self, passages: Sequence[Passage]) -> Iterator[list[Passage]]:
        group: list[Passage] = []
        for passage in passages:
            most = max(len(p.anchors) for p in (*group, passage))
            if group and (len(group) + 1) * most * self.block_size > _SLOTS:
                yield group
                group = []
            group.append(passage)
        if group:
            yield group

    @torch.inference_mode()
    def _propose(self, passages: Sequence[Passage], *, ranked: bool) -> list[Ranked]:
        first, anchors, sizes = (
            torch.nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in rows], True, padding)
            for rows, padding in (
                ([p.tokens[p.anchors] for p in passages], 0),
                ([p.anchors for p in passages], 0),
                ([p.sizes for p in passages], 1),
            )
        )
        drafts, ranks = torch.full((2, *anchors.shape, self.block_size - 1), NO_DRAFT)
        truth = _ahead(passages, anchors, self.block_size - 1) if ranked else ranks
        slots = int(sizes.max()) if sizes.numel() else 1
        if slots > 1:
            features = torch.nn.utils.rnn.pad_sequence([p.features for p in passages], True)
            positions = torch.arange(features.shape[1], device=self.device)
            context = self.drafter.project_context(features.to(self.drafter.dtype), positions)
            outputs = self.head.outputs([p.tokens[: p.prompt].tolist() for p in passages])
            width = max(1, _SLOTS // (len(passages) * slots))
            pieces = zip(*(x.split(width, 1) for x in (first, anchors, sizes, truth[..., : slots - 1])), strict=True)
            found = [self._pass(context, outputs, slots, *piece, ranked=ranked) for piece in pieces]
            for into, parts in zip((drafts, ranks), zip(*found, strict=True), strict=False):
                into[..., : slots - 1] = torch.cat(parts, 1)
                into[torch.arange(1, self.block_size) >= sizes[..., None]] = NO_DRAFT
        of = [(d[: len(p.anchors)], r[: len(p.anchors)]) for d, r, p in zip(drafts, ranks, passages, strict=True)]
        return [Ranked(d.numpy(), r.numpy() if ranked else None) for d, r in of]

    def _pass(
        self,
        context: Context,
        outputs: OutputRows,
        slots: int,
        first: torch.Tensor,
        anchors: torch.Tensor,
        sizes: torch.Tensor,
        truth: torch.Tensor,
        *,
        ranked: bool,
    ) -> tuple[torch.Tensor, ...]:
        """Drafts int64 [b, N, slots - 1] of blocks that start with the tokens ``first`` at ``anchors``, all [b, N]; and
        with ``ranked`` the ranks of ``truth``, of the same shape."""
        ids = torch.full((*anchors.shape, slots), self.drafter.config.mask_token_id)
        ids[..., 0] = first
        cut = sizes.to(self.device) if bool((sizes < slots).any()) else None
        embeddings = self.head.embed(ids).to(self.device)
        hidden = self.drafter(embeddings, anchors.to(self.device), context, cut)[:, :, 1:]
        logits = outputs.logits(hidden)
        chosen = walk(self.drafter.selection, outputs, hidden, logits, first.to(self.device))
        drafts = torch.stack(list(chosen), -1).cpu()
        if not ranked:
            return (drafts,)
        rows = outputs.rows(truth).to(self.device)
        of_truth = logits.gather(-1, rows.clamp(min=0)[..., None])
        # of equal logits the first is drafted
        earlier = torch.arange(logits.shape[-1], device=rows.device) < rows[..., None]
        before = (logits > of_truth) | ((logits == of_truth) & earlier)
        ranks = before.sum(-1).clamp(max=CANDIDATES).cpu()
        ranks[rows.cpu() == IGNORED] = CANDIDATES  # outside the drafter's vocabulary
        return drafts, torch.where(truth == NO_DRAFT, NO_DRAFT, ranks)

    @torch.inference_mode()
    def contributions(self, features: torch.Tensor) -> Contributions | None:
        """See :class:`Arm`."""
        return self.drafter.fusion.contributions(features.float())


def _ahead(passages: Sequence[Passage], anchors: torch.Tensor, count: int) -> torch.Tensor:
    """The ``count`` tokens after every anchor [b, N], int64 [b, N, count]; NO_DRAFT past the end."""
    ends = [np.concatenate([p.tokens, np.full(count, NO_DRAFT)]) for p in passages]
    tokens = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in ends], True, NO_DRAFT)
    places = anchors[..., None] + torch.arange(1, count + 1)
    return tokens.gather(1, places.flatten(1)).view_as(places)


class TrainingFreeArm:
    """What an arm that reads no hidden states has in common: any token can be proposed, nothing is fused."""

    layer_ids: tuple[int, ...] = ()

    def propose(self, passages: Sequence[Passage]) -> list[Tokens]:
        """See :class:`Arm`; ``features`` are not read."""
        return [self._of(passage) for passage in passages]

    def propose_ranked(self, passages: Sequence[Passage]) -> list[Ranked]:
        """See :class:`Arm`; one token a slot has no ranks."""
        return [Ranked(drafts, None) for drafts in self.propose(passages)]

    def _of(self, passage: Passage) -> Tokens:
        raise NotImplementedError

    def vocabulary(self, prompt: Sequence[int]) -> Collection[int] | None:
        """None: all target ids."""
        return None

    def contributions(self, features: torch.Tensor) -> Contributions | None:
        """None: nothing is fused."""
        return None


class LookupArm(TrainingFreeArm):
    """Prompt lookup (:mod:`drafters.decoding.lookup`) in prompt and answer so far."""

    def __init__(self, block_size: int, least: int = 1, longest: int = LONGEST):
        self.block_size, self.least, self.longest = block_size, least, longest

    def _of(self, passage: Passage) -> Tokens:
        drafts = np.full((len(passage.anchors), self.block_size - 1), NO_DRAFT)
        for row, anchor, size in zip(drafts, passage.anchors, passage.sizes, strict=True):
            found = lookup(passage.tokens[: anchor + 1], int(size) - 1, self.longest, self.least)
            row[: len(found)] = found
        return drafts


class NextTokenArm(TrainingFreeArm):
    """Always proposes the most frequent next token: after each token, its most frequent successor.

    What template memory alone can do; a drafter that reads hidden states has to beat it. Needs no target
    features.
    """

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

    def _of(self, passage: Passage) -> Tokens:
        chain = [passage.tokens[passage.anchors]]
        for _ in range(self.block_size - 1):
            chain.append(self.successor[chain[-1]])
        slots = np.arange(1, self.block_size)
        drafts = np.stack(chain, axis=1)[:, 1:]
        return np.where(slots < passage.sizes[:, None], drafts, NO_DRAFT)
