"""Sums over an optimizer step, which ranks add up, and the history row that they make."""

from __future__ import annotations

from typing import Any

import torch

from drafters.training.batches import Batch
from drafters.training.losses import BlockLoss
from drafters.training.objective import TERMS


class StepSums:
    """Sums over an optimizer step, one float64 vector, so that ranks can add theirs up."""

    _SCALARS = ("numerator", "denominator", "accepted", "blocks")
    _BY_SLOT = ("ce_sum", "correct", "count")
    _HEAD = 2 + len(_SCALARS) + len(TERMS)

    def __init__(self, slots: int):
        self.slots = slots
        self.values = torch.zeros(self._HEAD + len(self._BY_SLOT) * slots, dtype=torch.float64)

    def add(self, loss: BlockLoss, batch: Batch) -> None:
        """Add a micro-batch."""
        scalars = [getattr(loss, name).detach().double().reshape(1) for name in self._SCALARS]
        by_slot = [getattr(loss, name).double() for name in self._BY_SLOT]
        counts = torch.tensor([len(batch.examples), sum(len(e.tokens) for e in batch.examples)], dtype=torch.float64)
        self.values += torch.cat([counts, torch.cat([*scalars, loss.terms.double(), *by_slot]).cpu()])

    @property
    def denominator(self) -> float:
        """sum(w) over the step."""
        return float(self.values[3])

    def row(self) -> dict[str, Any]:
        """History columns; nothing supervised gives nulls, and so does a term that the loss does not have."""
        examples, tokens, numerator, denominator, accepted, blocks, *terms = self.values[: self._HEAD].tolist()
        ce, correct, count = self.values[self._HEAD :].view(len(self._BY_SLOT), self.slots)
        seen = count.clamp(min=1)
        # the history's ce is the unweighted one
        added = {n: term / denominator if term else None for n, term in zip(TERMS, terms, strict=True) if n != "ce"}
        return {
            **added,
            "examples": int(examples),
            "tokens": int(tokens),
            "loss": numerator / denominator if denominator else None,
            "ce": float(ce.sum() / count.sum()) if denominator else None,
            "ce_at": (ce / seen).tolist(),
            "accuracy_at": (correct / seen).tolist(),
            "accepted_length": 1 + accepted / blocks if blocks else None,
        }
