"""What the drafter borrows of its target: the frozen embedding and output head."""

from __future__ import annotations

import torch

from drafters.config import DrafterConfig
from drafters.model.blocks import IGNORED
from drafters.target.frozen import Target


class Head:
    """The frozen embedding and output head, restricted to the draft vocabulary where there is one.

    ``dtype``: of the output head (default: the target's). ``weight`` and ``ids``, the target ids of its rows, are on
    the target's device; labels and single tokens are looked up on the CPU, where corpus and decoding loop have them.
    """

    def __init__(self, target: Target, config: DrafterConfig, dtype: torch.dtype | None = None):
        self.embed = target.embed
        vocab = config.draft_vocab
        weight = target.head_weight
        ids = torch.arange(config.vocab_size) if vocab is None else torch.tensor(vocab)
        self.ids = ids.to(weight.device)
        self.weight = (weight if vocab is None else weight[self.ids]).to(dtype or target.dtype)
        self._row = torch.full((config.vocab_size,), IGNORED)
        self._row[ids] = torch.arange(len(ids))

    def knows(self, token: int) -> bool:
        """Whether the drafter can propose this target id."""
        return int(self._row[token]) != IGNORED

    def rows(self, labels: torch.Tensor) -> torch.Tensor:
        """Target ids (or IGNORED) to rows of ``weight``; a token outside the draft vocabulary is IGNORED."""
        return torch.where(labels == IGNORED, IGNORED, self._row[labels.clamp(min=0)])
