"""Final output of ``python -m analysis.compare``: its lines and the path of the report."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from analysis.report.html import write_html
from analysis.report.terminal import terminal
from analysis.report.writing import RESULT


def show(args: argparse.Namespace, report: Path, lines: Iterable[str]) -> None:
    """Print the lines and the path of the report, and write it as one HTML file with ``--html``. ``--quiet`` prints
    nothing, ``--json`` only the result, as one object on one line."""
    console = terminal()
    pages = [f"page: {write_html(report.parent)}"] if args.html else []
    if args.json:
        result = json.loads((report.parent / RESULT).read_text(encoding="utf-8"))
        print(json.dumps({**result, "report": str(report)}, ensure_ascii=False, allow_nan=False))
    if args.json or args.quiet:
        return
    for line in (*lines, f"report: {report}", *pages):
        console.print(line, soft_wrap=True)
