"""Compare runs: ``python -m analysis.compare RUN_A RUN_B``. Is B better than A, where, and by how much.

    RUN_A RUN_B                    two runs
    RUN_A RUN_B RUN_C ...          several arms, each against the first and all ranked
    A1 A2 ... --vs B1 B2 ...       several trainings of two arms, or of one against a single run of the other

A run may be a log file of another tool (``FILE``, or ``FILE#CONDITION`` of a file with several). Prints a summary and
writes a report with figures to ``reports/<A>-vs-<B>/``. With ``--fail-if`` the exit code judges: 0 the rule passed,
1 it failed, 2 the interval cannot tell.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from analysis import wording
from analysis.errors import Parser, UsageError, finite, out_folder

#: Options that a comparison of seeds does not take.
_NOT_OF_SEEDS = ("baseline", "hypothesis", "dataset", "control", "earlier")


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    args = _parser().parse_args(argv)
    _require_sense(args)
    from analysis.commands.carry_out import carry_out  # takes a second, for which a wrong call or --help need not wait

    return carry_out(args)


_GRAMMAR = """\
rules (--fail-if): WHAT<NUMBER or WHAT>NUMBER, where WHAT is
  delta               the headline's difference, B - A
  delta[DATASET]      the same on one data set; its interval is not adjusted for the number of data sets
  METRIC              another metric of the report by its key, such as tau_mean; METRIC[DATASET] where it has one
  speedup             B over A in time per token
A rule fails (exit 1) if the whole 95% interval says that it holds, passes (0) if the whole interval says that it
does not, and is undecided (2) otherwise. Prompts without a pair widen the interval by all that they could change."""


def _version() -> str:
    try:
        return version("draftlab")
    except PackageNotFoundError:
        return "(not installed)"


def _require_sense(args: argparse.Namespace) -> None:
    """Raises UsageError for options that do not go together."""
    wide = len(args.value or ()) == 2
    if wide and (len(args.runs) != 1 or args.vs):
        raise UsageError("--value twice names the columns of A and of B in one table; name that table alone")
    if len(args.value or ()) > 2:
        raise UsageError("--value takes one column, or two of one table")
    if args.value and (len(args.runs) != 1 + (not wide) or args.vs or args.baseline or args.control):
        raise UsageError("--value compares two tables of one number per prompt, or two columns of one")
    if len(args.runs) < 2 and not args.vs and not wide:
        raise UsageError("compare needs at least two runs")
    sessions = bool(args.sessions_a), bool(args.sessions_b)
    if any(sessions) and not all(sessions):
        raise UsageError("--sessions-a and --sessions-b go together: the spread of both arms over sessions is needed")
    if (args.vs or len(args.runs) > 2) and any(sessions):
        raise UsageError("--sessions-a and --sessions-b are for two runs; compare them in pairs")
    if not args.vs and len(args.runs) > 2 and (args.fail_if or args.baseline):
        raise UsageError("--fail-if and --baseline judge two runs; compare them in pairs")
    if args.vs and (refused := [name for name in _NOT_OF_SEEDS if getattr(args, name)]):
        raise UsageError(f"--{refused[0]} is not for --vs; several seeds are compared on all their prompts")


def _parser() -> Parser:
    parser = Parser(
        prog="python -m analysis.compare",
        description="Compare runs over the prompts that they share.",
        epilog=_GRAMMAR,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"draftlab {_version()}")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder, address, name under runs/, or log file")
    parser.add_argument("--vs", nargs="+", metavar="RUN", help="trainings of arm B; those before it are of arm A")
    parser.add_argument("--baseline", metavar="RUN", help="plain decoding of the same prompts, for speed-ups over it")
    parser.add_argument(
        "--out", type=out_folder, metavar="DIR", help="folder of the report (default: reports/<A>-vs-<B>)"
    )
    parser.add_argument(
        "--value", action="append", metavar="COLUMN", help="tables of one number per prompt: its column (two: A and B)"
    )
    parser.add_argument("--unit", help="of --value, such as ms")
    parser.add_argument("--higher-is", choices=["better", "worse"], help="of --value, where its name does not say")
    parser.add_argument("--map", action="append", default=[], metavar="FIELD=COLUMN", help="columns of a plain table")
    for side in "ab":
        parser.add_argument(f"--label-{side}", metavar="TEXT", help=f"how the report calls arm {side.upper()}")
    parser.add_argument("--protocol", choices=list(wording.HEADLINES), help="default: the first that both runs have")
    parser.add_argument("--metric", choices=wording.METRICS, help="headline")
    parser.add_argument("--margin", type=finite, metavar="TOKENS", help="a difference within it counts as none")
    parser.add_argument("--hypothesis", metavar="TEXT", help="what was expected, for the record")
    parser.add_argument("--dataset", action="append", metavar="NAME", help="only this data set; may be given again")
    parser.add_argument("--control", nargs="+", default=(), metavar="RUN", help="frozen, shuffled or static gates")
    parser.add_argument("--earlier", nargs="+", default=(), metavar="RUN", help="runs whose explored prompts count too")
    for side in "ab":
        parser.add_argument(
            f"--sessions-{side}",
            nargs="+",
            default=(),
            metavar="RUN",
            help=f"runs that timed arm {side.upper()} again, in other sessions",
        )
    parser.add_argument(
        "--fail-if", action="append", default=[], metavar="RULE", help="such as 'delta<-0.05': exit 1 if it holds"
    )
    parser.add_argument("--html", action="store_true", help="write report.html too: one file to send to a colleague")
    parser.add_argument(
        "--min-coverage",
        type=finite,
        default=0.95,
        metavar="SHARE",
        help="pairs per prompt of the larger run (0.95)",
    )
    parser.add_argument("--target", metavar="NAME", help="the target of logs that do not name theirs")
    parser.add_argument("--force", action="store_true", help="replace a report that the plan has made")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object, and nothing else")
    parser.add_argument("--quiet", action="store_true", help="print nothing; the exit code and the report tell")
    parser.add_argument("--strict", action="store_true", help="a dropped row, unknown target or bad gate is an error")
    parser.add_argument("--allow-incomplete", action="store_true", help="take runs that are not finished")
    return parser
