"""What a command shows on the terminal: plain lines, and a comparison in short."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from analysis import wording
from analysis.comparison.pairwise import Comparison
from analysis.report.answers import answers, first_cautions, headline
from analysis.report.sections.overview import cautions


def terminal() -> Console:
    """Standard output, plain; a terminal without UTF-8 shows ? for what it lacks, and the report is whole."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    return Console(markup=False, highlight=False, emoji=False, width=None if sys.stdout.isatty() else 110)


def summarise(comparison: Comparison, console: Console) -> None:
    """The conclusion, a table of estimates, what would change it, and the cautions."""
    c = comparison
    console.print(headline(c), style="bold", soft_wrap=True)
    for text in first_cautions(c):
        console.print(f"caution: {wording.one_line(text)}", soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column("")
    for header in ("A", "B", "difference", "95% interval", "p", "pairs", "clusters"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    rows = [(e.estimand.name, e, e.p) for e in (c.overall, *c.others)]
    rows += [(f"  {wording.one_line(name)}", e, e.p_adjusted) for name, e in c.by_dataset.items()]
    for name, e, p in rows:
        cells = [wording.number(e.mean_a, 2), wording.number(e.mean_b, 2), wording.signed(e.estimate)]
        cells += [wording.interval(e.lo, e.hi), wording.p_value(p), f"{e.n_pairs:,}", f"{e.n_clusters:,}"]
        table.add_row(name, *cells, e.verdict)
    console.print(table)
    method = wording.METHODS[c.overall.method]
    console.print(f"Method: {method}. By data set, p is adjusted by Holm.", soft_wrap=True)
    for question, answer in answers(c)[2:]:
        console.print(f"{question} {answer}", soft_wrap=True)
    shown = first_cautions(c)
    for text in (text for text in cautions(c) if text not in shown):
        console.print(f"caution: {wording.one_line(text)}", soft_wrap=True)
