"""Compare runs: ``python -m analysis.compare RUN_A RUN_B``. Is B better than A, where, and by how much.

    RUN_A RUN_B                    two runs
    RUN_A RUN_B RUN_C ...          several arms, each against the first and all ranked
    RUN_A RUN_B ... --factorial    all combinations of axes: main effects and interactions
    A1 A2 ... --vs B1 B2 ...       several trainings of two arms, or of one against a single run of the other

A run may be a log file of another tool (``FILE``, or ``FILE#CONDITION`` of a file with several). Prints a summary and
writes a report with figures to ``reports/<A>-vs-<B>/``. With ``--fail-if`` the exit code is the judgement: 0 the rule
passed, 1 it failed, 2 inconclusive.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from analysis import wording
from analysis.commands.log_options import add_log_options
from analysis.errors import Parser, UsageError, finite, out_folder

#: Options that are not available with --vs.
_NOT_OF_SEEDS = ("baseline", "hypothesis", "dataset", "control", "earlier")
#: Options that are not available with --factorial, beside these.
_NOT_OF_FACTORIALS = (
    *("vs", "value", "fail_if", "margin", "sequential", "sessions_a", "sessions_b"),
    *("strict", "allow_incomplete", "label_a", "label_b"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    args = _parser().parse_args(argv)
    _require_sense(args)
    from analysis.commands.carry_out import carry_out  # takes a second to import, which invalid calls and --help skip

    return carry_out(args)


_GRAMMAR = """\
rules (--fail-if): WHAT<NUMBER or WHAT>NUMBER, where WHAT is
  delta               the headline's difference, B - A
  delta[DATASET]      the difference on one data set; its interval is not adjusted for the number of data sets
  METRIC              another metric of the report by its key, such as tau_mean; METRIC[DATASET] for one data set
  speedup             B over A in time per token
A rule fails (exit 1) if it holds on the whole 95% interval, passes (0) if it holds nowhere on the interval, and is
inconclusive (2) otherwise. Prompts without a pair widen the interval by all that they could change."""


def _version() -> str:
    try:
        return version("draftlab")
    except PackageNotFoundError:
        return "(not installed)"


def _require_sense(args: argparse.Namespace) -> None:
    """Raises UsageError for options that do not go together."""
    wide = len(args.value or ()) == 2
    if wide and (len(args.runs) != 1 or args.vs):
        raise UsageError("--value given twice names the columns of A and B in a single table; give only that table")
    if len(args.value or ()) > 2:
        raise UsageError("--value requires one column, or two columns of a single table")
    if args.value and (len(args.runs) != 1 + (not wide) or args.vs or args.baseline or args.control):
        raise UsageError("--value requires two tables with one number per prompt, or two columns of a single table")
    if len(args.runs) < 2 and not args.vs and not wide:
        raise UsageError("compare needs at least two runs")
    sessions = bool(args.sessions_a), bool(args.sessions_b)
    if any(sessions) and not all(sessions):
        raise UsageError(
            "--sessions-a and --sessions-b require each other: the spread of both arms over sessions is needed"
        )
    if (args.vs or len(args.runs) > 2) and any(sessions):
        raise UsageError("--sessions-a and --sessions-b require exactly two runs; compare the arms in pairs")
    if not args.vs and len(args.runs) > 2 and (args.fail_if or args.baseline):
        raise UsageError("--fail-if and --baseline require exactly two runs; compare the arms in pairs")
    if args.sequential and (args.vs or args.value or len(args.runs) != 2):
        raise UsageError("--sequential requires exactly two runs")
    if args.factorial and (refused := [name for name in (*_NOT_OF_FACTORIALS, *_NOT_OF_SEEDS) if getattr(args, name)]):
        raise UsageError(f"--{refused[0].replace('_', '-')} cannot be combined with --factorial")
    if args.vs and (refused := [name for name in _NOT_OF_SEEDS if getattr(args, name)]):
        raise UsageError(
            f"--{refused[0]} cannot be combined with --vs; several seeds are compared on all their prompts"
        )


def _parser() -> Parser:
    parser = Parser(
        prog="python -m analysis.compare",
        description="Compare runs over the prompts that they share.",
        epilog=_GRAMMAR,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"draftlab {_version()}")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder, address, name under runs/, or log file")
    parser.add_argument(
        "--vs", nargs="+", metavar="RUN", help="trainings of arm B; the runs before --vs are trainings of arm A"
    )
    parser.add_argument(
        "--factorial",
        action="store_true",
        help="the runs are all combinations of two or more axes with two levels each: main effects and interactions",
    )
    parser.add_argument("--baseline", metavar="RUN", help="run of plain decoding on the same prompts, for speed-ups")
    parser.add_argument("--out", type=out_folder, metavar="DIR", help="output folder (default: reports/<A>-vs-<B>)")
    parser.add_argument(
        "--value",
        action="append",
        metavar="COLUMN",
        help="column with one number per prompt (given twice: columns of A and B)",
    )
    parser.add_argument("--unit", help="unit of --value, such as ms")
    parser.add_argument(
        "--higher-is", choices=["better", "worse"], help="direction of --value, if its name is not known"
    )
    add_log_options(parser)
    for side in "ab":
        parser.add_argument(f"--label-{side}", metavar="TEXT", help=f"name of arm {side.upper()} in the report")
    parser.add_argument("--protocol", choices=list(wording.HEADLINES), help="default: the first that both runs have")
    parser.add_argument(
        "--evaluation", metavar="NAME", help="which evaluation, where a run holds several of one protocol"
    )
    parser.add_argument("--metric", choices=wording.METRICS, help="headline metric")
    parser.add_argument("--margin", type=finite, metavar="TOKENS", help="largest difference that counts as equivalent")
    parser.add_argument("--hypothesis", metavar="TEXT", help="hypothesis to record in the report")
    parser.add_argument("--dataset", action="append", metavar="NAME", help="compare only this data set; repeatable")
    parser.add_argument(
        "--control", nargs="+", default=(), metavar="RUN", help="controls of B: frozen, shuffled or static gate"
    )
    parser.add_argument(
        "--earlier", nargs="+", default=(), metavar="RUN", help="earlier runs whose exploratory prompts cannot confirm"
    )
    for side in "ab":
        parser.add_argument(
            f"--sessions-{side}",
            nargs="+",
            default=(),
            metavar="RUN",
            help=f"runs that timed arm {side.upper()} again, in other sessions",
        )
    parser.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="RULE",
        help="for example 'delta<-0.05': exit 1 if it holds; repeatable",
    )
    parser.add_argument(
        "--sequential", action="store_true", help="also a test that may be repeated as prompts come in, at any time"
    )
    parser.add_argument("--html", action="store_true", help="write report.html too: one file to send to a colleague")
    parser.add_argument(
        "--min-coverage",
        type=finite,
        default=0.95,
        metavar="SHARE",
        help="minimum share of the larger run's prompts with a pair (0.95)",
    )
    parser.add_argument("--target", metavar="NAME", help="target of logs that do not record one")
    parser.add_argument("--force", action="store_true", help="replace a report of the plan")
    parser.add_argument("--json", action="store_true", help="print only the result, as one JSON object")
    parser.add_argument("--quiet", action="store_true", help="print nothing; use the exit code and the report")
    parser.add_argument("--strict", action="store_true", help="a dropped row, unknown target or bad gate is an error")
    parser.add_argument("--allow-incomplete", action="store_true", help="take runs that are not finished")
    return parser
