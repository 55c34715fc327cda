"""What scales: ``python -m analysis.scaling RUN RUN ... --over depth``.

The headline's metric against draft layers (``depth``), target layers (``target-layers``), training examples
(``examples``) or operations of training (``compute``). Runs that are equal but for the axis form a series. Prints the
slopes and writes a report to ``reports/<first run>-by-<axis>/``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from analysis import wording
from analysis.commands.folders import folder_of
from analysis.commands.show import show
from analysis.errors import Parser, out_folder


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python -m analysis.scaling", description="The headline against one axis of the runs.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="runs that differ in the axis, of one series or more")
    parser.add_argument("--over", required=True, metavar="AXIS", help="depth, target-layers, examples or compute")
    parser.add_argument("--protocol", help="replay, generate or prefix (default: the first that all runs have)")
    parser.add_argument("--evaluation", metavar="NAME", help="which, where a run holds several of one protocol")
    parser.add_argument("--metric", help="key of the headline's metric, such as tau_mean")
    parser.add_argument("--out", type=out_folder, metavar="DIR", help="output folder")
    parser.add_argument("--force", action="store_true", help="replace a report of the plan")
    parser.add_argument("--html", action="store_true", help="also write the report as one HTML file")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.add_argument("--quiet", action="store_true", help="print nothing")
    args = parser.parse_args(argv)
    from analysis.comparison.question import of_evaluation
    from analysis.comparison.scaling import compare_scaling  # takes a second to import, which --help skips
    from analysis.importers.direct import open_references
    from analysis.report.sections import scaling as sections
    from analysis.report.writing import write_scaling

    with tempfile.TemporaryDirectory() as folder:
        opened = open_references(args.runs, Path(folder), strict=False, allow_incomplete=False)
        if args.evaluation is not None:
            (opened,), args.protocol = of_evaluation([opened], args.evaluation, args.protocol)
        found = compare_scaling(opened, args.over, protocol=args.protocol, metric=args.metric)
        report = write_scaling(found, folder_of(args, f"{opened[0].name}-by-{args.over}"))
    lines = [sections.headline(found), *(f"caution: {what}: {text}" for what, text in sections.cautions(found))]
    show(args, report, map(wording.one_line, lines))
    return 0
