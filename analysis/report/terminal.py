"""Terminal output: plain lines, and a short form of a comparison."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from analysis import wording
from analysis.comparison.pairwise import Comparison
from analysis.report.answers import answers, chosen, first_cautions, headline
from analysis.report.sections.cautions import cautions
from analysis.wording import cut_apart

#: Longer row names are cut, so that different names stay different.
_LONGEST_NAME = 32


def terminal() -> Console:
    """Plain standard output. A terminal without UTF-8 shows ? for missing characters; the report is complete."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    return Console(markup=False, highlight=False, emoji=False, width=None if sys.stdout.isatty() else 140)


def summarise(comparison: Comparison, console: Console) -> None:
    """The conclusion, a table of estimates, the answers, and the cautions."""
    c = comparison
    if protocol := chosen(c):
        console.print(protocol, soft_wrap=True)
    console.print(headline(c), style="bold", soft_wrap=True)
    for text in first_cautions(c):
        console.print(f"caution: {wording.one_line(text)}", soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    rows = [(e.estimand.name, e, e.p) for e in (c.overall, *c.others)]
    rows += [(f"  {wording.one_line(name)}", e, e.p_adjusted) for name, e in c.by_dataset.items()]
    # on a narrow terminal numbers wrap but names do not, because a row needs its name
    table.add_column("", no_wrap=True, min_width=min(max(len(name) for name, *_ in rows), _LONGEST_NAME))
    for header in ("A", "B", "difference", "95% interval", "p", "pairs", "clusters", "verdict"):
        table.add_column(header, justify="left" if header == "verdict" else "right", overflow="fold")
    names = cut_apart([name for name, *_ in rows], _LONGEST_NAME)
    for name, (_, e, p) in zip(names, rows, strict=True):
        cells = [wording.number(e.mean_a, 2), wording.number(e.mean_b, 2), wording.signed(e.estimate)]
        cells += [wording.interval(e.lo, e.hi), wording.p_value(p), f"{e.n_pairs:,}", f"{e.n_clusters:,}"]
        table.add_row(name, *cells, e.verdict)
    console.print(table)
    method = wording.METHODS[c.overall.method]
    console.print(f"Method: {method}. p by data set is Holm-adjusted.", soft_wrap=True)
    for answer in answers(c)[2:]:
        console.print(f"{answer.question} {answer.text}", soft_wrap=True)
    shown = first_cautions(c)
    for text in (text for text in cautions(c) if text not in shown):
        console.print(f"caution: {wording.one_line(text)}", soft_wrap=True)
