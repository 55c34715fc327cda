"""Which counting rule a file keeps, found from its own sums: lists with or without the bonus, totals with or without
the prefill token, the last step whole where only the output was cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Convention:
    """``bonus``: whether the listed lengths count the bonus token; ``prefill``: whether the prefill token is in the
    first step (``inside``) or in none (``outside``); ``whole``: the output ends at its stop token, and the last step
    is listed as it was accepted, past that end."""

    bonus: bool
    prefill: str
    whole: bool = False

    def beyond(self, lengths: Sequence[int], output_tokens: int) -> int:
        """Tokens in steps that the output has not; below 0 for output that is in no step."""
        in_steps = sum(lengths) + (0 if self.bonus else len(lengths))
        return in_steps - (output_tokens - (1 if self.prefill == "outside" else 0))

    def holds(self, lengths: Sequence[int], output_tokens: int) -> bool:
        """Whether a response keeps it. Of a last step at least one token is output, or it would not have been run."""
        most = lengths[-1] - 1 if self.whole and lengths else 0
        return 0 <= self.beyond(lengths, output_tokens) <= most

    def __str__(self) -> str:
        told = f"lengths {'with' if self.bonus else 'without'} the bonus token, the prefill token {self.prefill}"
        return f"{told}, the last step whole" if self.whole else told


#: The first is the convention of the reference implementation of DFlash as packaged.
CONVENTIONS = (
    Convention(True, "outside"),
    Convention(True, "inside"),
    Convention(False, "outside"),
    Convention(False, "inside"),
)
#: And of its repository, which cuts the output alone.
WHOLE = Convention(True, "outside", whole=True)
#: A rule with one sum is so unlikely to be kept by chance that it goes before WHOLE, which allows several.
_NEARLY_ALL = 0.9


def fit(responses: Sequence[tuple[Sequence[int], int]]) -> tuple[Convention, int]:
    """The convention that most (lengths, output_tokens) keep, and how many do; of equals the first."""
    kept = {c: sum(c.holds(lengths, total) for lengths, total in responses) for c in (*CONVENTIONS, WHOLE)}
    best = max(CONVENTIONS, key=lambda c: kept[c])
    others_are_exact = best != CONVENTIONS[0] and kept[best] >= _NEARLY_ALL * len(responses)
    if kept[WHOLE] > kept[best] and not others_are_exact:
        best = WHOLE
    return best, kept[best]
