"""The training loss: cross-entropy against the target's tokens, weighted by the slot in the block.

Numerator and denominator are returned apart, since the loss of an optimizer step is
sum(w CE) / sum(w) over *all* its micro-batches and ranks: the caller adds both up and divides the
gradients once. A mean of micro-batch means would depend on how the step was cut (SpecForge #731).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from drafters.blocks import IGNORED

# gamma as published for these block sizes (DFlash, arXiv 2602.06036); between them by B / 2, the same trend
PUBLISHED_GAMMA = {16: 7.0, 10: 5.0, 8: 4.0}
# logits of more rows than this are made in pieces and made again in the backward pass, never kept: at
# Qwen3's vocabulary 4,096 rows of fp32 logits are 2.5 GB
LOGIT_ROWS = 4096


def default_gamma(block_size: int) -> float:
    """The decay constant for a block size: as published for 8, 10 and 16, else B / 2."""
    return PUBLISHED_GAMMA.get(block_size, block_size / 2)


def fixed_weights(block_size: int, gamma: float) -> torch.Tensor:
    """w_k = exp(-(k - 1) / gamma) for slots k = 1..B-1, fp32 [B - 1]; slot 0, the anchor, has no loss."""
    return torch.tensor([math.exp(-k / gamma) for k in range(block_size - 1)])


@dataclass(frozen=True)
class BlockLoss:
    """Sums over one micro-batch; per-slot tensors have shape [B - 1] and are detached.

    ``numerator`` (differentiable) and ``denominator`` are sum(w CE) and sum(w); ``accepted`` and ``blocks``
    give the realised accepted length, 1 + accepted / blocks.
    """

    numerator: torch.Tensor
    denominator: torch.Tensor
    ce_sum: torch.Tensor
    correct: torch.Tensor
    count: torch.Tensor
    accepted: torch.Tensor
    blocks: torch.Tensor


def block_loss(
    hidden: torch.Tensor, head: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor, real: torch.Tensor
) -> BlockLoss:
    """Weighted cross-entropy of a batch of blocks; logits are made for supervised slots only.

    ``hidden`` [b, N, B - 1, H] of slots 1..B-1, ``head`` [V, H] frozen output rows, ``labels`` int64
    [b, N, B - 1] as row numbers of ``head`` (``IGNORED``: not supervised), ``weights`` [B - 1],
    ``real`` bool [b, N] tells blocks from padding.
    """
    supervised = labels != IGNORED
    ce, best = _cross_entropy(hidden[supervised], head, labels[supervised])
    slots = labels.shape[-1]
    slot = torch.arange(slots, device=labels.device).expand_as(labels)[supervised]
    w = weights.to(ce)[slot]

    def per_slot(values: torch.Tensor) -> torch.Tensor:
        return torch.zeros(slots, dtype=torch.float64, device=ce.device).index_add_(0, slot, values.double())

    hit = best == labels[supervised]
    match = torch.zeros_like(supervised)
    match[supervised] = hit
    return BlockLoss(
        numerator=(w * ce).sum(),
        denominator=w.double().sum(),
        ce_sum=per_slot(ce.detach()),
        correct=per_slot(hit),
        count=per_slot(torch.ones_like(ce)),
        accepted=match.cumprod(-1).sum(),
        blocks=real.sum(),
    )


def _cross_entropy(hidden: torch.Tensor, head: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Per-row cross-entropy (fp32) and argmax of ``hidden @ head.T``."""

    def piece(rows: torch.Tensor, answers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = (rows @ head.T).float()
        return F.cross_entropy(logits, answers, reduction="none"), logits.detach().argmax(-1)

    if len(hidden) <= LOGIT_ROWS:
        return piece(hidden, labels)
    pieces = [
        checkpoint(piece, rows, answers, use_reentrant=False)
        for rows, answers in zip(hidden.split(LOGIT_ROWS), labels.split(LOGIT_ROWS), strict=True)
    ]
    return torch.cat([ce for ce, _ in pieces]), torch.cat([best for _, best in pieces])
