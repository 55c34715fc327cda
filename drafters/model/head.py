"""What the drafter borrows of its target: the frozen embedding and output head."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from drafters.axes import DrafterConfig
from drafters.model.blocks import IGNORED
from drafters.target.frozen import Target


@dataclass(frozen=True)
class OutputRows:
    """Rows of the frozen output head for a batch of sequences.

    ``weight`` [V', H] and ``ids`` int64 [V'], the rows and their target ids, on the target's device; ``allowed`` bool
    [b, V'], which of them each sequence may predict, None for all.
    """

    weight: torch.Tensor
    ids: torch.Tensor
    allowed: torch.Tensor | None
    row_of: torch.Tensor  # int64 [vocab] on the CPU: the row of a target id, or IGNORED

    def rows(self, labels: torch.Tensor) -> torch.Tensor:
        """Target ids (or IGNORED) [b, ...] to rows; a token that its sequence cannot predict is IGNORED."""
        found = torch.where(labels == IGNORED, IGNORED, self.row_of[labels.clamp(min=0)])
        if self.allowed is None:
            return found
        flat = found.flatten(1)
        known = self.allowed.to(flat.device).gather(1, flat.clamp(min=0))
        return torch.where(known & (flat != IGNORED), flat, IGNORED).view_as(labels)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [b, ..., V'] of hidden states [b, ..., H]; -inf where the sequence may not predict."""
        logits = hidden @ self.weight.T
        if self.allowed is None:
            return logits
        shape = (len(self.allowed), *[1] * (hidden.dim() - 2), -1)
        return logits.masked_fill(~self.allowed.view(shape), float("-inf"))


class Head:
    """The frozen embedding and output head, restricted to the draft vocabulary where there is one.

    ``dtype``: of the output head (default: the target's). With ``prompt_tokens`` the vocabulary of each sequence holds
    the tokens of its own prompt too.
    """

    def __init__(self, target: Target, config: DrafterConfig, dtype: torch.dtype | None = None):
        self.embed = target.embed
        self.prompt_tokens = config.prompt_tokens
        self.vocab_size = config.vocab_size
        self.static = config.draft_vocab
        self._head, self._dtype = target.head_weight, dtype or target.dtype
        self._outputs = self._rows_of(self.static)

    @property
    def weight(self) -> torch.Tensor:
        """Rows of the vocabulary that all sequences share, [V', H]."""
        return self._outputs.weight

    def outputs(self, prompts: Sequence[Sequence[int]]) -> OutputRows:
        """What a batch of sequences with these prompts (token ids) may predict."""
        if not self.prompt_tokens or self.static is None:
            return self._outputs
        own = [sorted(set(prompt) - set(self.static)) for prompt in prompts]
        more = sorted({token for tokens in own for token in tokens})
        found = self._rows_of([*self.static, *more])
        allowed = torch.zeros(len(own), len(found.ids), dtype=torch.bool)
        allowed[:, : len(self.static)] = True
        for row, tokens in enumerate(own):
            allowed[row, found.row_of[tokens]] = True
        return OutputRows(found.weight, found.ids, allowed.to(found.ids.device), found.row_of)

    def _rows_of(self, tokens: Sequence[int] | None) -> OutputRows:
        ids = torch.arange(self.vocab_size) if tokens is None else torch.tensor(tokens)
        on_device = ids.to(self._head.device)
        weight = (self._head if tokens is None else self._head[on_device]).to(self._dtype)
        row_of = torch.full((self.vocab_size,), IGNORED)
        row_of[ids] = torch.arange(len(ids))
        return OutputRows(weight, on_device, None, row_of)


def vocabulary_of(config: DrafterConfig, prompt: Sequence[int]) -> Collection[int] | None:
    """Target ids that a drafter can propose after a prompt (token ids); None for all."""
    if config.draft_vocab is None:
        return None
    return frozenset(config.draft_vocab) | (frozenset(prompt) if config.prompt_tokens else frozenset())
