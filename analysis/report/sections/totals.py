"""Comparison of totals only, as sentences and as a page."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.measures.aggregate import CANNOT, NO_RATIO, Total, TotalsComparison, one_load
from analysis.report.markdown import escape, table
from analysis.wording import number, one_line, percent


def lines(c: TotalsComparison) -> list[str]:
    """The comparison as sentences."""
    sentences = [f"A is {one_line(c.label_a)}, B is {one_line(c.label_b)}."]
    for subset, a, b in c.rows:
        if a.tau is not None and b.tau is not None:
            sentences.append(
                f"{one_line(subset)}: tokens per step {number(a.tau)} in A, {number(b.tau)} in B, {b.tau - a.tau:+.3f} "
                f"({100 * (b.tau / a.tau - 1):+.1f}%)."
            )
        if a.tokens_per_s and b.tokens_per_s:
            ratio = f"{b.tokens_per_s / a.tokens_per_s:.2f} times" if one_load(a, b) else NO_RATIO
            sentences.append(
                f"{one_line(subset)}: {a.tokens_per_s:,.1f} tokens/s in A, {b.tokens_per_s:,.1f} in B, {ratio}."
            )
        for what, x, y in (("the first token", a.ttft_s, b.ttft_s), ("the last token", a.e2e_s, b.e2e_s)):
            if x is not None and y is not None:
                sentences.append(f"{one_line(subset)}: median time to {what} {x:.3f} s in A, {y:.3f} s in B.")
    return [*sentences, CANNOT]


def report(c: TotalsComparison) -> str:
    """The comparison as Markdown."""
    headers = ["subset", "arm", "tokens per step", "mean of", "steps", "accepted of drafted", "tokens/s", "requests",
               "concurrency"]  # fmt: skip
    rows = [(subset, side, *_cells(t)) for subset, *pair in c.rows for side, t in zip("AB", pair, strict=True)]
    parts = [f"# {escape(c.label_b)} against {escape(c.label_a)}, totals only"]
    parts += [escape(text) for text in lines(c)]
    parts.append(table(headers, rows, numeric=7))
    for subset, a, b in c.rows:
        if a.survival and b.survival:
            longest = max(len(a.survival), len(b.survival))
            columns = [[percent(t.survival[k]) if k < len(t.survival or ()) else None for k in range(longest)]
                       for t in (a, b) if t.survival]  # fmt: skip
            parts.append(f"Drafts whose first k tokens were all accepted, {escape(subset)}:")
            parts.append(
                table(["k", "A", "B"], [(k + 1, *pair) for k, pair in enumerate(zip(*columns, strict=True))], 2)
            )
    parts.append("\n".join(f"* {escape(note)}" for note in c.notes) if c.notes else "")
    return "\n\n".join(part for part in parts if part) + "\n"


def _cells(t: Total) -> Sequence[str | None]:
    def count(n: int | None) -> str | None:
        return None if n is None else f"{n:,}"

    tau = None if t.tau is None else number(t.tau, 4)
    speed = None if t.tokens_per_s is None else f"{t.tokens_per_s:,.1f}"
    share = None if t.acceptance is None else percent(t.acceptance)
    mean_of = None if t.tau is None else t.mean_of or "steps (pooled)"
    return tau, mean_of, count(t.steps), share, speed, count(t.requests), count(t.concurrency)
