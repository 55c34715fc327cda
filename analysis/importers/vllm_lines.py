"""Log lines of vLLM's servers: one per window of time (V1), or totals since the server started (V0).

    SpecDecoding metrics: Mean acceptance length: 2.00, ..., Accepted: 100 tokens, Drafted: 200 tokens,
        Per-position acceptance rate: 0.600, 0.400, Avg Draft acceptance rate: 50.0%
    SpecDecoding metrics: Draft acceptance rate: 50.0%, Mean acceptance length: 2.00, Accepted: 100 tokens,
        Drafted: 200 tokens, Per-position acceptance rate: 0.600, 0.400
    SpecDecoding metrics: Draft acceptance rate: 50.0%, Accepted: 100 tokens, Drafted: 200 tokens
    Speculative metrics: Draft acceptance rate: 0.500, System efficiency: 0.500, Number of speculative tokens: 3,
        Number of accepted tokens: 150, Number of draft tokens: 300, Number of emitted tokens: 200.

The third form is the oldest of V1; the last is V0's. V0's accepted tokens are those that would be accepted by
themselves, also behind a rejected one; its emitted tokens are the output of its steps, so they give tokens per step. A
part of a line that is there must be readable, or the line is refused whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from analysis.importers.model import RowError
from analysis.importers.totals import require_close
from analysis.importers.windows import Window, drafts_of, shares_of

V1, V0 = "SpecDecoding metrics", "Speculative metrics:"
_NUMBER = r"\d{1,9}(?:\.\d{1,12})?"
#: Part of a line: (what announces it, the part).
_PARTS = {
    "mean": ("ean acceptance length:", re.compile(rf"Mean acceptance length: ({_NUMBER}|nan)(?=[,\s]|$)")),
    "accepted": ("Accepted:", re.compile(r"Accepted: (\d{1,12}) tokens(?=[,\s]|$)")),
    "drafted": ("Drafted:", re.compile(r"Drafted: (\d{1,12}) tokens(?=[,\s]|$)")),
    "shares": (
        "er-position acceptance rate:",
        re.compile(rf"Per-position acceptance rate: ((?:{_NUMBER}(?:, )?)*)(?:,? ?Avg Draft|\s*$)"),
    ),
}
_V0 = re.compile(
    rf"Draft acceptance rate: ({_NUMBER}|nan), System efficiency: ({_NUMBER}|nan), "
    r"Number of speculative tokens: (\d{1,4}), Number of accepted tokens: (\d{1,12}), "
    r"Number of draft tokens: (\d{1,12}), Number of emitted tokens: (\d{1,12})\b"
)
_V0_PARTS = (
    "Draft acceptance rate",
    "System efficiency",
    "Number of speculative tokens",
    "Number of accepted tokens",
    "Number of draft tokens",
    "Number of emitted tokens",
)
#: A drafter that may have no draft for a step, in the settings that the server prints.
SKIPS = re.compile(r"method=?['\": ]*(?:ngram|suffix|prompt_lookup)|speculative_model=?['\": ]*\[ngram\]")


def is_line(line: str) -> bool:
    """Whether a line states acceptance."""
    return V1 in line or V0 in line


def window(line: str) -> tuple[Window | None, tuple[int, int]]:
    """(a V1 line's window, None if its number of drafts is not stated; its accepted and drafted tokens). Raises
    RowError for a line of which a part is missing or cannot be read."""
    found: dict[str, str] = {}
    for name, (announced, shape) in _PARTS.items():
        if announced in line:
            if not (part := shape.search(line)):
                raise RowError(f"half a line, or numbers that cannot be read, behind '{announced}'")
            found[name] = part[1]
    if missing := [name for name in ("accepted", "drafted") if name not in found]:
        raise RowError(f"half a line: no {' and no '.join(missing)} tokens")
    accepted, drafted = int(found["accepted"]), int(found["drafted"])
    mean = float(found["mean"]) if found.get("mean", "nan") != "nan" else None
    shares = shares_of(found.get("shares"))
    drafts = drafts_of(accepted, drafted, mean, shares)
    if drafts is None:
        return None, (accepted, drafted)
    return Window(accepted, drafted, drafts[0], None, mean, shares, drafts[1]), (accepted, drafted)


@dataclass(frozen=True)
class SinceStart:
    """What a V0 line states: counts since the server started, with drafts of ``length`` tokens."""

    length: int
    drafted: int
    emitted: int


def since_start(line: str) -> SinceStart:
    """A V0 line. Raises RowError for half a line, and for counts that contradict each other."""
    if not (found := _V0.search(line)):
        if missing := [name for name in _V0_PARTS if f"{name}:" not in line]:
            raise RowError(f"half a line, or one of another version: no {', no '.join(missing)}")
        raise RowError("numbers that cannot be read")
    length, accepted, drafted, emitted = (int(found[place]) for place in (3, 4, 5, 6))
    if not length or drafted % length:
        raise RowError(f"{drafted} draft tokens are no whole number of drafts of {length}")
    drafts = drafted // length
    if not drafts <= emitted <= drafts * (length + 1):
        raise RowError(f"{emitted} tokens emitted in {drafts} steps of 1 to {length + 1} tokens")
    if accepted > drafted:
        raise RowError(f"{accepted} accepted tokens of {drafted} drafted")
    if drafts:
        for place, what, share in ((1, "Draft acceptance rate", accepted / drafted),
                                   (2, "System efficiency", emitted / (drafts * (length + 1)))):  # fmt: skip
            if found[place] != "nan":
                require_close(float(found[place]), share, what, 0.0006)
    return SinceStart(length, drafted, emitted)
