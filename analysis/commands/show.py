"""What ``python -m analysis.compare`` prints in the end: its lines, and where the report is."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from analysis.report.html import write_html
from analysis.report.terminal import terminal


def show(args: argparse.Namespace, report: Path, lines: Iterable[str]) -> None:
    """Print the lines and the path of the report, and write it as one HTML file where that was asked for."""
    console = terminal()
    pages = [f"page: {write_html(report.parent)}"] if args.html else []
    for line in (*lines, f"report: {report}", *pages):
        console.print(line, soft_wrap=True)
