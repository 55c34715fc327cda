"""Comparison of times only, as sentences and as a page."""

from __future__ import annotations

from analysis.measures.times_alone import TimesComparison
from analysis.report.markdown import escape
from analysis.report.sections.baseline import speed_lines


def lines(c: TimesComparison) -> list[str]:
    """The comparison as sentences."""
    return speed_lines(c.ratios, c.label_a, c.label_b)


def report(c: TimesComparison) -> str:
    """The comparison as Markdown."""
    parts = [f"# {escape(c.label_b)} against {escape(c.label_a)}, speed only", *map(escape, lines(c))]
    parts.append("\n".join(f"* {escape(note)}" for note in c.notes))
    return "\n\n".join(parts) + "\n"
