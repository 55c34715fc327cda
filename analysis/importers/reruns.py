"""Questions that a tool ran again and appended, as a resumed Spec-Bench does: the last run counts, and is told."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.importers.model import Response

#: Runs that differ by more than this share of their mean length are hardly of one setting.
_ALIKE = 0.02


def last_runs(responses: Sequence[Response]) -> tuple[list[Response], list[str]]:
    """One response per key, the last, and a note of those that were replaced, with both mean lengths."""
    last = {r.key: r for r in responses}
    replaced = [r for r in responses if last[r.key] is not r]
    if not replaced:
        return list(responses), []
    first = replaced[0]
    keys = {r.key: last[r.key] for r in replaced}
    questions = {prompt for prompt, _, _ in keys}
    note = (
        f"{len(questions)} question{'s'[: len(questions) != 1]} run again, the last run counts (the first: "
        f"{first.prompt_id} on line {first.line}, again on line {last[first.key].line})"
    )
    before, now = _mean(replaced), _mean(list(keys.values()))
    if before and now:
        note += f"; tokens per step {before:.4f} before, {now:.4f} now"
        if abs(now / before - 1) > _ALIKE:
            note += ": WARNING, so far apart are runs of one setting hardly; see that the file is of one arm"
    return list(last.values()), [note]


def _mean(responses: Sequence[Response]) -> float | None:
    steps = sum(r.steps or 0 for r in responses)
    return sum(r.tokens or 0 for r in responses) / steps if steps else None
