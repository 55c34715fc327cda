"""What a supervised slot is trained towards: the target's token, and what a drafter's further parts learn.

Of n slots, each with its weight in the block (drafters.training.losses):

* cross-entropy against the target's token, of the corrected logits where a Markov head corrects them;
* ``distill``: the distance of the draft's distribution from the target's own, over the rows that the drafter has;
* with ``selection: path`` the cross-entropy among the candidates after the true token before, the right one put in the
  place of the last where it is missing (DFlash2);
* with a confidence head the binary cross-entropy towards the acceptance rate 1 - TV(draft, target) (DSpark).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from drafters.config import LossSettings
from drafters.model.confidence import ConfidenceHead
from drafters.model.drafter import Drafter
from drafters.model.head import OutputRows
from drafters.model.selection import Candidates, PathSelector, Selection

DISTILL_WEIGHT = 0.9  # DSpark's, beside 0.1 of cross-entropy
#: Columns of the terms of a slot, as the history names them.
TERMS = ("ce", "distill", "selection_ce", "confidence_bce")


def kl(draft: Tensor, target: Tensor) -> Tensor:
    """KL(target || draft) [n] of logits [n, V']; a row that may not be predicted, -inf in both, adds 0."""
    q, p = draft.log_softmax(-1), target.log_softmax(-1)
    return (p.exp() * (p - q).masked_fill(p.isneginf(), 0.0)).sum(-1)


def tv(draft: Tensor, target: Tensor) -> Tensor:
    """Total variation [n] of logits [n, V']: half the sum of the differences of probabilities."""
    return l1(draft, target) / 2


def l1(draft: Tensor, target: Tensor) -> Tensor:
    """Sum of the absolute differences of probabilities [n] of logits [n, V']."""
    return (draft.softmax(-1) - target.softmax(-1)).abs().sum(-1)


#: By the name that a configuration gives.
DISTANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"kl": kl, "tv": tv, "l1": l1}


@dataclass(frozen=True)
class Slots:
    """n supervised slots: hidden states [n, H], right rows of the head int64 [n], whose sequence each is, the true
    tokens before them, and the target's final hidden states there [n, H] (None: not read)."""

    hidden: Tensor
    labels: Tensor
    sequence: Tensor
    previous: Tensor
    final: Tensor | None

    def split(self, size: int) -> list[Slots]:
        """Pieces of at most so many slots."""
        fields = [self.hidden, self.labels, self.sequence, self.previous]
        finals = [None] * -(-len(self.hidden) // size) if self.final is None else self.final.split(size)
        return [Slots(*parts) for parts in zip(*(field.split(size) for field in fields), finals, strict=True)]


@dataclass(frozen=True)
class Objective:
    """The parts of a drafter that learn beside its layers, and the distance to the target's distribution."""

    selection: Selection | None = None
    confidence: ConfidenceHead | None = None
    distance: Callable[[Tensor, Tensor], Tensor] | None = None
    distill_weight: float = 0.0

    @classmethod
    def of(cls, drafter: Drafter, settings: LossSettings) -> Objective:
        """What ``settings`` ask of ``drafter``."""
        distance = DISTANCES.get(settings.distill)
        weight = 0.0 if distance is None else settings.distill_weight or DISTILL_WEIGHT
        return cls(drafter.selection, drafter.confidence_head, distance, weight)

    def total(self, terms: Tensor) -> Tensor:
        """Loss [n] of slots from their terms [n, 4]."""
        ce, distill, selection, confidence = terms.unbind(-1)
        mixed = ce if self.distance is None else (1 - self.distill_weight) * ce + self.distill_weight * distill
        return mixed + selection + confidence

    def terms(self, slots: Slots, head: OutputRows) -> tuple[Tensor, Tensor]:
        """Terms fp32 [n, 4] in the order of :data:`TERMS`, 0 where there is none; and the row that each slot drafts."""
        logits = _masked(slots.hidden @ head.weight.T, head, slots)
        scored = Candidates(logits, None)
        if self.selection is not None:
            scored = self.selection.candidates(slots.hidden, logits, slots.previous)
        if scored.rows is None:
            logits = scored.scores
        ce = F.cross_entropy(logits, slots.labels, reduction="none")
        zero = torch.zeros_like(ce)
        selection = zero
        if isinstance(self.selection, PathSelector):
            selection = _among_candidates(self.selection, slots, logits, scored)
        distill = confidence = zero
        if slots.final is not None:
            with torch.no_grad():
                target = _masked(slots.final.to(head.weight) @ head.weight.T, head, slots)
            if self.distance is not None:
                distill = self.distance(logits, target)
            if self.confidence is not None:
                before = None if self.selection is None else self.selection.embedded(slots.previous)
                predicted = self.confidence(slots.hidden, before).float()
                rate = _acceptance_rate(scored, target).clamp(0, 1)
                confidence = F.binary_cross_entropy_with_logits(predicted, rate, reduction="none")
        best = scored.row(scored.scores.detach().argmax(-1))
        return torch.stack((ce, distill, selection, confidence), -1), best


def _masked(logits: Tensor, head: OutputRows, slots: Slots) -> Tensor:
    """fp32 logits [n, V'], -inf where a slot's sequence may not predict."""
    logits = logits.float()
    return logits if head.allowed is None else logits.masked_fill(~head.allowed[slots.sequence], float("-inf"))


def _among_candidates(selector: PathSelector, slots: Slots, logits: Tensor, scored: Candidates) -> Tensor:
    """Cross-entropy [n] among the candidates, the last of which makes place for a right one that is missing."""
    assert scored.rows is not None
    match = scored.rows == slots.labels[:, None]
    there = match.any(-1)
    last = torch.where(there, scored.rows[:, -1], slots.labels)
    rows = torch.cat((scored.rows[:, :-1], last[:, None]), -1)
    place = torch.where(there, match.long().argmax(-1), rows.shape[-1] - 1)
    scores = selector.score(slots.hidden, logits, slots.previous, rows).scores
    return F.cross_entropy(scores, place, reduction="none")


@torch.no_grad()
def _acceptance_rate(scored: Candidates, target: Tensor) -> Tensor:
    """sum over tokens of min(draft, target), [n]: what speculative sampling accepts."""
    p = target.softmax(-1)
    if scored.rows is not None:
        p = p.gather(-1, scored.rows)
    return torch.minimum(scored.scores.detach().softmax(-1), p).sum(-1)
