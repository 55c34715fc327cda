"""One line of a server's log, or one request: what was drafted and accepted in it, and in how many steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from analysis.importers.model import RowError

#: A mean is printed with two decimals.
HALF_A_DIGIT = 0.005 + 1e-9


@dataclass(frozen=True)
class Window:
    """``drafts``: verification steps that had a draft; ``passes``: all of the target, with a draft or without, None
    where the log does not tell; ``mean``: as stated, with the bonus token; ``shares``: of drafts by accepted position;
    ``exact``: whether the counts give the drafts, without a rounded mean."""

    accepted: int
    drafted: int
    drafts: int
    passes: int | None = None
    mean: float | None = None
    shares: tuple[float, ...] = ()
    exact: bool = True


def shares_of(text: str | None) -> tuple[float, ...]:
    """Rates by position, as printed. Raises RowError."""
    try:
        shares = tuple(float(piece) for piece in (text or "").split(",") if piece.strip())
    except ValueError as error:
        raise RowError("per-position rates cannot be read") from error
    if any(not 0 <= share <= 1 for share in shares):
        raise RowError("a per-position rate is not between 0 and 1")
    return shares


def require_rates(shares: Sequence[float], accepted: int, drafted: int) -> None:
    """Raises RowError for rates by position that are all 0 although tokens were accepted: a filler, no measurement.

    The first position has the largest rate, at least accepted / drafted, and at three digits 0.0005 is not 0.
    """
    if shares and not any(shares) and accepted > 0.0006 * drafted:
        raise RowError(f"{accepted} tokens were accepted, but the per-position rates are all 0")


def drafts_of(accepted: int, drafted: int, mean: float | None, shares: Sequence[float]) -> tuple[int, bool] | None:
    """(verification steps, whether they are exact); None where the line does not say.

    Where all drafts are of one length, there were drafted / positions of them; else accepted / (mean - 1), as near as
    the printed mean tells. Raises RowError if the line contradicts itself.
    """
    if accepted > drafted:
        raise RowError(f"{accepted} accepted tokens of {drafted} drafted")
    if not drafted:
        return 0, True
    require_rates(shares, accepted, drafted)
    full = drafted / len(shares) if shares else 0
    if shares and mean is None:
        mean = 1 + sum(shares)
    agree = bool(full) and mean is not None and abs(accepted / full - (mean - 1)) <= HALF_A_DIGIT + 0.0006 * len(shares)
    if mean is not None and mean <= 1 and accepted and not agree:
        raise RowError(f"{accepted} tokens were accepted, but the mean acceptance length is {mean:g}")
    if shares and mean is not None and abs(sum(shares) - (mean - 1)) > 0.006 + 0.0006 * len(shares):
        raise RowError(f"per-position rates sum to {sum(shares):.3f}, the mean says {mean - 1:.2f}")
    if agree:
        return -(-drafted // len(shares)), drafted % len(shares) == 0
    if not accepted or mean is None or mean <= 1:
        return None
    return max(round(accepted / (mean - 1)), 1), False


def with_lengths(windows: Sequence[tuple[int, Window | None, tuple[int, int]]], what: str) -> list[Window]:
    """The windows, (line, window or None, (accepted, drafted)), those without a number of drafts by the length that
    all other drafts have.

    Raises RowError where there is no such length: without the windows of no acceptance the mean would be too high.
    """
    exact = {w.drafted // w.drafts for _, w, _ in windows if w is not None and w.drafts and w.exact}
    if len(exact) == 1:
        (length,) = exact
        windows = [(line, _of_length(w, length), counts) for line, w, counts in windows]
    lacking = [line for line, window, _ in windows if window is None]
    known = [window for _, window, _ in windows if window is not None and window.drafts]
    lengths = {round(w.drafted / w.drafts) for w in known if _is_whole(w)}
    if lacking and (len(lengths) != 1 or not all(map(_is_whole, known))):
        raise RowError(
            f"{len(lacking)} {what} do not state their number of drafts (the first on line {lacking[0]}), nor is it "
            "known how long a draft is; without them the mean would be another. Give a log whose lines state a mean "
            "acceptance length and rates by position, or the server's counters (/metrics) before and after"
        )
    found = []
    for line, window, (accepted, drafted) in windows:
        if window is None:
            (length,) = lengths
            window = Window(accepted, drafted, drafted // length)
            if drafted % length:
                raise RowError(f"line {line}: {drafted} tokens are no whole number of drafts of {length}")
        found.append(window)
    return found


def _of_length(window: Window | None, length: int) -> Window | None:
    """The window with the drafts that its tokens make at this length, where its rounded mean agrees."""
    if window is None or window.exact or window.drafted % length or window.mean is None:
        return window
    drafts = window.drafted // length
    if abs(1 + window.accepted / drafts - window.mean) > HALF_A_DIGIT:
        return window
    return replace(window, drafts=drafts, exact=True)


def _is_whole(window: Window) -> bool:
    """Whether all drafts of a window were of one length, as near as its drafts are known."""
    length = window.drafted / window.drafts
    tolerance = 0.0 if window.exact else 0.05 * length
    return abs(length - round(length)) <= tolerance and round(length) >= 1
