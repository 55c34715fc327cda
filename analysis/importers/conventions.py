"""Which counting rule a file keeps, found from its own sums: lists with or without the bonus, totals with or without
the prefill token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Convention:
    """``bonus``: whether the listed lengths count the bonus token; ``prefill``: whether the prefill token is in the
    first step (``inside``) or in none (``outside``)."""

    bonus: bool
    prefill: str

    def holds(self, lengths: Sequence[int], output_tokens: int) -> bool:
        """Whether a response keeps it: its tokens in steps are its output, without the prefill token if outside."""
        in_steps = sum(lengths) + (0 if self.bonus else len(lengths))
        return in_steps == output_tokens - (1 if self.prefill == "outside" else 0)

    def __str__(self) -> str:
        return f"lengths {'with' if self.bonus else 'without'} the bonus token, the prefill token {self.prefill}"


#: The first is the convention of the reference implementation of DFlash.
CONVENTIONS = (
    Convention(True, "outside"),
    Convention(True, "inside"),
    Convention(False, "outside"),
    Convention(False, "inside"),
)


def fit(responses: Sequence[tuple[Sequence[int], int]]) -> tuple[Convention, int]:
    """The convention that most (lengths, output_tokens) keep, and how many do; of equals the first."""
    kept = {c: sum(c.holds(lengths, total) for lengths, total in responses) for c in CONVENTIONS}
    best = max(CONVENTIONS, key=lambda c: kept[c])
    return best, kept[best]
