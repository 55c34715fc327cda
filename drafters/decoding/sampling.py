"""Choosing tokens: greedy or sampled, and the acceptance rule that keeps the target's distribution.

Speculative sampling (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318): a drafted token x
with draft probability q(x) and target probability p(x) is kept with probability min(1, p(x) / q(x)); at the
first refusal the token is drawn from the residual max(p - q, 0), normalised. The output is then distributed
as the target's own, whatever the drafter. A greedy draft is the case where q is 1 at one token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. Temperature 0 is greedy; top_p 1 and top_k 0 cut nothing.

    ``greedy_draft`` drafts the most likely tokens although the target samples: still lossless, but it changes
    tau, so it is recorded with the run.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    greedy_draft: bool = False

    def __post_init__(self) -> None:
        if self.temperature < 0 or not 0 < self.top_p <= 1 or self.top_k < 0:
            raise ValueError("temperature and top_k must be at least 0, and top_p within (0, 1]")

    @property
    def greedy(self) -> bool:
        """Whether the target's tokens are its most likely ones."""
        return self.temperature == 0

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """Distribution [..., V], fp32, from logits [..., V]: temperature, then top-k, then top-p."""
        scores = logits.float() / self.temperature
        if 0 < self.top_k < scores.shape[-1]:
            least = scores.topk(self.top_k, dim=-1).values[..., -1:]
            scores = scores.masked_fill(scores < least, float("-inf"))
        p = scores.softmax(-1)
        if self.top_p < 1:
            ordered, order = p.sort(dim=-1, descending=True, stable=True)
            # the smallest set of likeliest tokens that reaches top_p: a token stays if those before it do not
            ordered = ordered.masked_fill(ordered.cumsum(-1) - ordered >= self.top_p, 0.0)
            p = torch.zeros_like(p).scatter(-1, order, ordered)
            p = p / p.sum(-1, keepdim=True)
        return p


def draw(p: torch.Tensor, generator: torch.Generator) -> int:
    """One token from a distribution [V], on the generator's device."""
    return int(torch.multinomial(p, 1, generator=generator))


def accept_sampled(
    draft: torch.Tensor, q: torch.Tensor, p: torch.Tensor, generator: torch.Generator
) -> tuple[int, int]:
    """(accepted, bonus token) of one row. ``draft`` int64 [n-1], ``q`` [n-1, V], ``p`` [n, V], all on the generator's
    device.

    The bonus comes from the residual at the first refusal, or from p after a block that was accepted whole.
    """
    slots = torch.arange(len(draft), device=draft.device)
    kept = torch.rand(len(draft), generator=generator, device=draft.device) * q[slots, draft] < p[slots, draft]
    accepted = int(kept.long().cumprod(0).sum())
    if accepted == len(draft):
        return accepted, draw(p[accepted], generator)
    residual = (p[accepted] - q[accepted]).clamp(min=0)
    total = residual.sum()
    # p = q there up to rounding: the residual is empty and p itself is right
    return accepted, draw(residual / total if total > 0 else p[accepted], generator)
