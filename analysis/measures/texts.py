"""What the outputs themselves say about a comparison: loops that are easy to draft, and arms that wrote at different
length."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.runlog.pairing import Pairs
from analysis.runlog.schema import DEGENERATE
from analysis.wording import Caution, caution

#: Relative differences above these are told: of tau by loops, of mean output length between the arms.
_TOLD_TAU, _TOLD_LENGTH = 0.01, 0.05


@dataclass(frozen=True)
class Loops:
    """Outputs of one arm of which over half of the 4-grams repeat earlier ones, and what they do to pooled tau;
    ``tau_without`` is None if all of them are such."""

    outputs: int
    known: int
    tau: float
    tau_without: float | None


def loops(pairs: Pairs, side: str) -> Loops | None:
    """The measure for arm ``a`` or ``b``; None if its run logged no repetition."""
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
    """A warning per arm whose loops move its tau by over 1%, and one if output lengths differ by over 5%."""
    told = []
    for side, label in zip("ab", labels, strict=True):
        found = loops(pairs, side)
        if found is None or not found.outputs:
            continue
        if found.tau_without is None or abs(found.tau / found.tau_without - 1) > _TOLD_TAU:
            without = "—" if found.tau_without is None else f"{found.tau_without:.3f}"
            told.append(
                caution("loops", arm=label, n=found.outputs, total=found.known, tau=f"{found.tau:.3f}", without=without)
            )
    a, b = mean_tokens
    if a and b and abs(b / a - 1) > _TOLD_LENGTH:
        told.append(caution("lengths-differ", a=f"{a:.1f}", b=f"{b:.1f}"))
    return tuple(told)
