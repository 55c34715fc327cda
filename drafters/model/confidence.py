"""A head that predicts whether a slot's token will be accepted (DSpark, DeepSpec 2026)."""

from __future__ import annotations

import torch
from torch import nn

from drafters.axes import DrafterConfig


class ConfidenceHead(nn.Module):
    """sigmoid(w [h; e] + b): the probability that the target accepts a slot's token if all before it were accepted.

    h is the slot's hidden state and e the vector of the token before it, where the drafter's selection has one. Trained
    towards 1 - TV(draft, target), the acceptance rate of speculative sampling. With a draft vocabulary both
    distributions are over its tokens, so that the rate is too high where the target prefers another token.
    """

    def __init__(self, config: DrafterConfig):
        super().__init__()
        rank = 0 if config.selection == "argmax" else config.selection_rank
        self.proj = nn.Linear(config.hidden_size + rank, 1)
        nn.init.zeros_(self.proj.bias)

    def forward(self, hidden: torch.Tensor, before: torch.Tensor | None) -> torch.Tensor:
        """Logits [...] of hidden states [..., H] and the vectors [..., r] of the tokens before."""
        features = hidden if before is None else torch.cat((hidden, before.to(hidden.dtype)), -1)
        return self.proj(features)[..., 0]
