"""Sequences that are being decoded: what was asked (:class:`Request`), and how far it is (:class:`Row`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from drafters.decoding.sampling import Sampling
from drafters.model.acceptance import StepCount


@dataclass(frozen=True)
class Request:
    """One sequence to decode: token ids of the prompt, and how its answer is chosen and ended.

    ``key``: what its random draws are keyed by; they do not depend on the batch, but on the kind of device. Raises
    ValueError for an empty prompt or no room for a token.
    """

    prompt: Sequence[int]
    max_new_tokens: int
    key: object = 0
    sampling: Sampling = field(default_factory=Sampling)
    stop_ids: frozenset[int] = frozenset()
    stop_strings: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.prompt or self.max_new_tokens < 1:
            raise ValueError("decoding requires a prompt of at least one token, and max_new_tokens of at least 1")


@dataclass(eq=False)
class Row:
    """A request under way. The first of ``tokens`` comes from the prefill; every step adds ``emitted`` more."""

    request: Request
    generator: torch.Generator
    tokens: list[int] = field(default_factory=list)
    steps: list[StepCount] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)  # of each step's anchor
    finish_reason: str | None = None  # "stop" or "length"
    text_end: int | None = None  # characters of the text before a stop string, if one ended it

    @property
    def room(self) -> int:
        """Tokens that may still be added."""
        return self.request.max_new_tokens - len(self.tokens)

    @property
    def sampling(self) -> Sampling:
        """How its tokens are chosen."""
        return self.request.sampling

    def find_stop(self, new: Sequence[int], text_of: Callable[[Sequence[int]], str]) -> int | None:
        """How many of the ``new`` tokens come before the one that ends the sequence, if one does.

        A stop string may begin in earlier tokens, so a tail of them is read with the new ones: a character takes at
        most four tokens.
        """
        end = next((i for i, token in enumerate(new) if token in self.request.stop_ids), None)
        if strings := self.request.stop_strings:
            longest = max(map(len, strings))
            tail = [*self.tokens[-4 * longest :], *new]
            if any(string in text_of(tail) for string in strings):
                for i in range(len(new) if end is None else end):
                    found = [at for s in strings if (at := text_of([*self.tokens, *new[: i + 1]]).find(s)) >= 0]
                    if found:
                        self.text_end = min(found)
                        return i
        return end

    def add(self, new: Sequence[int], stopped: bool) -> None:
        """Enter tokens that stand, at most ``room``; ``stopped``: the last of them ends the sequence."""
        self.tokens += new
        if stopped:
            self.finish_reason = "stop"
        elif self.room <= 0:
            self.finish_reason = "length"


def sampled(rows: Sequence[Row], logits: torch.Tensor) -> dict[int, torch.Tensor]:
    """For the rows that sample, the distribution of their logits: row -> [..., V] of ``logits`` [b, ..., V].

    Rows with the same settings, mostly all of them, are done together.
    """
    groups: dict[Sampling, list[int]] = {}
    for i, row in enumerate(rows):
        if not row.sampling.greedy:
            groups.setdefault(row.sampling, []).append(i)
    found: dict[int, torch.Tensor] = {}
    for sampling, places in groups.items():
        of = logits if len(places) == len(rows) else logits[torch.tensor(places, device=logits.device)]
        found |= dict(zip(places, sampling.probabilities(of), strict=True))
    return found
