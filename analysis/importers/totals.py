"""The identities of counted totals, which serving engines report in several places and roundings."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from analysis.importers.model import Aggregate, RowError

#: So many times the counted drafts, steps by output are more than rounding at the end of requests.
_SKIPPING = 1.05
#: What counters of drafts do not tell.
STEPS_WITHOUT_DRAFT = "steps without a draft (drafters by n-grams or suffixes have them, and they are not counted)"


def counted(
    subset: str,
    drafts: int,
    accepted: int,
    draft_tokens: int | None = None,
    accepted_at: Sequence[int] | None = None,
    **more: object,
) -> tuple[Aggregate, list[str]]:
    """The aggregate of counts, tau = 1 + accepted/drafts, and notes. Raises RowError for counts that cannot be.

    Accepted tokens by position must fall and sum to ``accepted``; a list that stops before the last draft position
    is left out.
    """
    notes = []
    if draft_tokens is not None and accepted > draft_tokens:
        raise RowError(f"{accepted} accepted tokens of {draft_tokens} drafted")
    if not drafts and (accepted or draft_tokens):
        raise RowError(f"{accepted} accepted and {draft_tokens} drafted tokens, but no draft")
    if accepted_at:
        if accepted_at[0] > drafts:
            raise RowError(f"{accepted_at[0]} drafts accepted position 0, but there were {drafts}")
        if any(b > a for a, b in itertools.pairwise(accepted_at)):
            raise RowError("accepted tokens by position rise, but a position counts only after all before it")
        total = sum(accepted_at)
        longest = math.ceil(draft_tokens / drafts) if draft_tokens and drafts else 0
        if total > accepted or (total < accepted and len(accepted_at) >= longest > 0):
            raise RowError(f"accepted tokens by position sum to {total}, but accepted tokens are {accepted}")
        if total < accepted:
            notes.append(f"accepted tokens by position stop after {len(accepted_at)} positions; left out")
            accepted_at = None
    aggregate = Aggregate(
        subset=subset,
        tau=1 + accepted / drafts if drafts else None,
        drafts=drafts,
        draft_tokens=draft_tokens,
        accepted=accepted,
        accepted_at=list(accepted_at) if accepted_at else None,
        **more,  # type: ignore[arg-type]
    )
    return aggregate, notes if drafts else [*notes, "no verification step was counted"]


def without_draft(drafts: int, accepted: int, output_tokens: int | None, requests: int | None) -> str | None:
    """What to say where steps were run without a draft (n-grams, suffixes), which vLLM does not count; None where all
    had one. Each request has one token of prefill, and each step gives one token beside the accepted ones: so many more
    tokens of output come of steps without a draft."""
    if output_tokens is None or requests is None or not drafts:
        return None
    steps = output_tokens - requests - accepted
    if steps <= _SKIPPING * drafts:
        return None
    return (
        f"{drafts:,} drafts were counted, but the output takes about {steps:,} steps of the target: the others had no "
        f"draft. Tokens per draft are {1 + accepted / drafts:.4f}, tokens per step about {1 + accepted / steps:.4f}; "
        "no verdict follows from the former"
    )


def distinct(aggregates: Sequence[Aggregate], origins: Sequence[str]) -> list[Aggregate]:
    """The aggregates under names of their own: those that share one are told apart by the settings in which they
    differ, then by their file (``origins``), and last by their place in it. So one alone never answers to the name of
    several, and what only its place tells apart corresponds to nothing in another file."""
    aggregates = _by_settings(aggregates)
    named = [(a.subset, origin) for a, origin in zip(aggregates, origins, strict=True)]
    within = Counter(named)
    files = Counter(subset for subset, _ in within)
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for a, (subset, origin) in zip(aggregates, named, strict=True):
        seen[subset, origin] += 1
        file = f" ({origin})" if files[subset] > 1 else ""
        by_place = within[subset, origin] > 1
        place = f", #{seen[subset, origin]}" if by_place else ""
        found.append(replace(a, subset=f"{subset}{file}{place}", by_place=by_place))
    return found


def _by_settings(aggregates: Sequence[Aggregate]) -> list[Aggregate]:
    """The aggregates, those of one name with the settings in which they differ added to it."""
    settings: dict[str, list[Mapping[str, str]]] = {}
    for a in aggregates:
        settings.setdefault(a.subset, []).append(a.settings)
    differing = {
        subset: sorted(name for name in set().union(*each) if len({s.get(name) for s in each}) > 1)
        for subset, each in settings.items()
    }
    return [
        replace(
            a, subset=", ".join([a.subset, *(f"{name} {a.settings.get(name, '-')}" for name in differing[a.subset])])
        )
        for a in aggregates
    ]


def require_close(stated: float | None, computed: float | None, what: str, tolerance: float) -> None:
    """Raises RowError if a number that the file states is not what its counts give."""
    if stated is not None and computed is not None and abs(stated - computed) > tolerance:
        raise RowError(f"{what} is stated as {stated:g}, but the counts give {computed:g}")


def rounding(stated: float, otherwise: float) -> float:
    """How far a stated ratio may be from its counts: half a digit where somebody rounded it to two decimals."""
    return 0.005 + 1e-9 if round(stated, 2) == stated else otherwise
