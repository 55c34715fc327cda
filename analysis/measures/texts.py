"""Cautions from the outputs: repetitive outputs, which are easy to draft, and different output lengths."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.cautions import Caution, caution
from analysis.runlog.pairing import Pairs
from analysis.runlog.schema import DEGENERATE

#: Relative changes above these lead to a caution: of tau without loops, of mean output length between the arms.
_MOST_TAU, _MOST_LENGTH = 0.01, 0.05


@dataclass(frozen=True)
class Loops:
    """Outputs of one arm in which over half of the 4-grams repeat earlier ones, and their effect on pooled tau;
    ``tau_without`` is None if all outputs are such loops."""

    outputs: int
    known: int
    tau: float
    tau_without: float | None


def loops(pairs: Pairs, side: str) -> Loops | None:
    """Loops of arm ``a`` or ``b``; None if repetition was not logged."""
    frame = pairs.frame[pairs.frame[f"repetition_{side}"].notna()]
    if frame.empty:
        return None
    looping = frame[f"repetition_{side}"] > DEGENERATE
    tokens, steps = frame[f"tokens_{side}"], frame[f"steps_{side}"]
    rest = steps[~looping].sum()
    without = float(tokens[~looping].sum() / rest) if rest else None
    return Loops(int(looping.sum()), len(frame), float(tokens.sum() / steps.sum()), without)


def cautions_of(
    pairs: Pairs, mean_tokens: tuple[float | None, float | None], labels: tuple[str, str]
) -> tuple[Caution, ...]:
    """A caution per arm whose loops change its tau by more than 1%, and one if output lengths differ by more than
    5%."""
    cautions = []
    for side, label in zip("ab", labels, strict=True):
        looping = loops(pairs, side)
        if looping is None or not looping.outputs:
            continue
        if looping.tau_without is None or abs(looping.tau / looping.tau_without - 1) > _MOST_TAU:
            without = "—" if looping.tau_without is None else f"{looping.tau_without:.3f}"
            cautions.append(
                caution(
                    "loops",
                    arm=label,
                    n=looping.outputs,
                    total=looping.known,
                    tau=f"{looping.tau:.3f}",
                    without=without,
                )
            )
    a, b = mean_tokens
    if a and b and abs(b / a - 1) > _MOST_LENGTH:
        cautions.append(caution("lengths-differ", a=f"{a:.1f}", b=f"{b:.1f}"))
    return tuple(cautions)
