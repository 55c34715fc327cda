"""The training loss of blocks: what its slots are trained towards (objective), weighted by the slot in the block.

* ``fixed`` (DFlash, arXiv 2602.06036): w_k = exp(-(k - 1) / gamma).
* ``progressive`` (DFlare, arXiv 2606.02091): the same with gamma_s = gamma_0 + (gamma_max - gamma_0) s / (S - 1)
  over the optimizer steps s = 0..S-1: early slots first, since a later one counts only if they are right.
* ``dpace`` (D-PACE, arXiv 2605.18810): weights that follow the drafter's own confidence (:func:`dpace_weights`).

Numerator and denominator are returned apart, since the loss of an optimizer step is
sum(w loss) / sum(w) over *all* its micro-batches and ranks: the caller adds both up and divides the
gradients once. A mean of micro-batch means would depend on how the step was cut (SpecForge #731).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.utils.checkpoint import checkpoint

from drafters.config import LossSettings
from drafters.model.blocks import IGNORED
from drafters.model.head import OutputRows
from drafters.training.objective import Objective, Slots

# gamma as published for these block sizes (DFlash, arXiv 2602.06036); between them by B / 2, the same trend
PUBLISHED_GAMMA = {16: 7.0, 10: 5.0, 8: 4.0}
# gamma_0 and gamma_max as shares of the fixed gamma. Published for B = 16 is 4.5, and 1 more in each of six epochs
# (DFlare): 4.5 to 9.5 around the fixed 7. Other block sizes take the same shares
PROGRESSIVE = (4.5 / 7, 9.5 / 7)
DPACE_ALPHA = 0.5  # as published
# logits of more rows than this are made in pieces and made again in the backward pass, never kept: at
# Qwen3's vocabulary 4,096 rows of fp32 logits are 2.5 GB
LOGIT_ROWS = 4096


def default_gamma(block_size: int) -> float:
    """The decay constant for a block size: as published for 8, 10 and 16, else B / 2."""
    return PUBLISHED_GAMMA.get(block_size, block_size / 2)


#: From the cross-entropies [n] of the supervised slots (detached) and where those stand, bool [b, N, B - 1], to
#: their weights [n].
Weights = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def fixed_weights(block_size: int, gamma: float) -> torch.Tensor:
    """w_k = exp(-(k - 1) / gamma) for slots k = 1..B-1, fp32 [B - 1]; slot 0, the anchor, has no loss."""
    return torch.tensor([math.exp(-k / gamma) for k in range(block_size - 1)])


def decaying(block_size: int, gamma: float) -> Weights:
    """:func:`fixed_weights`, by slot."""
    by_slot = fixed_weights(block_size, gamma)
    return lambda ce, supervised: by_slot.to(ce)[_slots(supervised)]


def dpace_weights(ce: torch.Tensor, supervised: torch.Tensor, alpha: float) -> torch.Tensor:
    """w_j = sum of C_m over the supervised slots m >= j of the block, C_m = s_1 ... s_m, s = (1 - alpha) q + alpha.

    q = exp(-CE) is the probability given to the target's token, and sum_m C_m a smoothed expected accepted length,
    whose derivative by log s_j is w_j. A slot that is not supervised has q = 0: acceptance ends there, as it does in
    :class:`BlockLoss`. (Public implementations take s = 1; it differs only where a draft vocabulary, or the end of an
    earlier answer, leaves a gap inside a block.)
    """
    q = ce.new_zeros(supervised.shape)
    q[supervised] = (-ce).exp()
    reached = ((1 - alpha) * q + alpha).cumprod(-1) * supervised
    return reached.flip(-1).cumsum(-1).flip(-1)[supervised]


def _fixed(settings: LossSettings, block_size: int, step: int, steps: int) -> tuple[float | None, Weights]:
    gamma = settings.gamma or default_gamma(block_size)
    return gamma, decaying(block_size, gamma)


def _progressive(settings: LossSettings, block_size: int, step: int, steps: int) -> tuple[float | None, Weights]:
    start = settings.gamma_start or PROGRESSIVE[0] * default_gamma(block_size)
    end = settings.gamma_end or PROGRESSIVE[1] * default_gamma(block_size)
    gamma = start + (end - start) * step / max(1, steps - 1)
    return gamma, decaying(block_size, gamma)


def _dpace(settings: LossSettings, block_size: int, step: int, steps: int) -> tuple[float | None, Weights]:
    alpha = DPACE_ALPHA if settings.alpha is None else settings.alpha
    return None, lambda ce, supervised: dpace_weights(ce, supervised, alpha)


#: By the name that a configuration gives: (settings, block size, step, steps) to gamma and weights.
WEIGHTINGS: dict[str, Callable[[LossSettings, int, int, int], tuple[float | None, Weights]]] = {
    "fixed": _fixed,
    "progressive": _progressive,
    "dpace": _dpace,
}


def step_weights(settings: LossSettings, block_size: int, step: int, steps: int) -> tuple[float | None, Weights]:
    """gamma (None where there is none) and the weights of optimizer step ``step`` = 0..``steps`` - 1."""
    return WEIGHTINGS[settings.weighting](settings, block_size, step, steps)


@dataclass(frozen=True)
class BlockLoss:
    """Sums over one micro-batch; per-slot tensors have shape [B - 1] and are detached.

    ``numerator`` (differentiable) and ``denominator`` are sum(w loss) and sum(w); ``terms`` [4] are sum(w term) of what
    the loss is made of (:data:`~drafters.training.objective.TERMS`); ``accepted`` and ``blocks`` give the realised
    accepted length, 1 + accepted / blocks.
    """

    numerator: torch.Tensor
    denominator: torch.Tensor
    terms: torch.Tensor
    ce_sum: torch.Tensor
    correct: torch.Tensor
    count: torch.Tensor
    accepted: torch.Tensor
    blocks: torch.Tensor


@dataclass(frozen=True)
class Supervision:
    """What a batch of blocks is trained towards, on the drafter's device.

    ``labels`` int64 [b, N, B - 1] as row numbers of the output head (``IGNORED``: not supervised); ``previous`` of the
    same shape, the true tokens before each slot; ``real`` bool [b, N]: blocks, not padding; ``at_risk`` bool
    [b, N, B - 1]: slots that may be accepted, those before a stop token, as in drafters.model.acceptance; ``final``
    [b, N, B - 1, H]: the target's final hidden states from which it predicts the labels (None: not read).
    """

    labels: torch.Tensor
    previous: torch.Tensor
    real: torch.Tensor
    at_risk: torch.Tensor
    final: torch.Tensor | None = None


def block_loss(
    hidden: torch.Tensor,
    head: OutputRows,
    asked: Supervision,
    weights: Weights,
    objective: Objective = Objective(),  # noqa: B008 (frozen)
) -> BlockLoss:
    """Weighted loss of a batch of blocks; logits are made for supervised slots only.

    ``hidden`` [b, N, B - 1, H] of slots 1..B-1, ``head`` the frozen output rows.
    """
    labels, supervised = asked.labels, asked.labels != IGNORED
    slots = Slots(
        hidden=hidden[supervised],
        labels=labels[supervised],
        sequence=torch.arange(len(labels), device=labels.device)[:, None, None].expand_as(labels)[supervised],
        previous=asked.previous[supervised],
        final=None if asked.final is None else asked.final[supervised],
    )
    terms, best = _terms(slots, head, objective)
    slot = _slots(supervised)
    ce = terms[:, 0].detach()
    w = weights(ce, supervised)

    def per_slot(values: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros(labels.shape[-1], dtype=torch.float64, device=ce.device)
        return zeros.index_add_(0, slot, values.double())

    hit = best == slots.labels
    match = torch.zeros_like(supervised)
    match[supervised] = hit
    match &= asked.at_risk
    return BlockLoss(
        numerator=(w * objective.total(terms)).sum(),
        denominator=w.double().sum(),
        terms=(w[:, None] * terms.detach()).double().sum(0),
        ce_sum=per_slot(ce),
        correct=per_slot(hit),
        count=per_slot(torch.ones_like(ce)),
        accepted=match.cumprod(-1).sum(),
        blocks=asked.real.sum(),
    )


def _slots(supervised: torch.Tensor) -> torch.Tensor:
    """Slot (from 0) of every supervised place, int64 [n]."""
    return torch.arange(supervised.shape[-1], device=supervised.device).expand_as(supervised)[supervised]


def _terms(slots: Slots, head: OutputRows, objective: Objective) -> tuple[torch.Tensor, torch.Tensor]:
    """:meth:`Objective.terms`, many slots in pieces."""
    if len(slots.hidden) <= LOGIT_ROWS:
        return objective.terms(slots, head)
    pieces = [checkpoint(objective.terms, part, head, use_reentrant=False) for part in slots.split(LOGIT_ROWS)]
    return torch.cat([terms for terms, _ in pieces]), torch.cat([best for _, best in pieces])
