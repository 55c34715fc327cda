"""Compare runs: ``python -m analysis.compare RUN_A RUN_B``. Is B better than A, where, and by how much.

    RUN_A RUN_B                    two runs
    RUN_A RUN_B RUN_C ...          several arms, each against the first
    A1 A2 ... --vs B1 B2 ...       several trainings of two arms

A run may be a log file of another tool (``FILE``, or ``FILE#CONDITION`` of a file with several). Prints a summary and
writes a report with figures to ``reports/<A>-vs-<B>/``. With ``--fail-if`` the exit code judges: 0 the rule passed,
1 it failed, 2 the interval cannot tell.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from analysis import aggregate, baseline_sections, wording
from analysis.aggregate import compare_totals, has_totals_alone
from analysis.answers import answers, headline
from analysis.baseline import has_times_alone, speed_alone
from analysis.comparison import Comparison, compare_runs
from analysis.errors import Parser, UsageError, run_command
from analysis.importers.direct import open_references
from analysis.markdown import escape
from analysis.matrix import compare_many
from analysis.report import default_reports
from analysis.rules import Rule, exit_code, judge, parse_rule
from analysis.run_writer import write_atomic
from analysis.runlog import Run
from analysis.sections import cautions
from analysis.seed_study import compare_seeds
from analysis.study_sections import matrix_headline, pair_folder, seeds_cautions, seeds_headline, seeds_meaning
from analysis.writing import matrix_folder, seeds_folder, write_matrix, write_report, write_seeds

#: Options that a comparison of seeds does not take.
_OF_PAIRS = ("margin", "hypothesis", "dataset", "control", "earlier")


def summarise(comparison: Comparison, console: Console) -> None:
    """The conclusion, a table of estimates, what would change it, and the cautions."""
    c = comparison
    console.print(headline(c), style="bold", soft_wrap=True)
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
    for text in cautions(c):
        console.print(f"caution: {wording.one_line(text)}", soft_wrap=True)


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    args = _parser().parse_args(argv)
    if not 0 <= args.min_coverage <= 1:
        raise UsageError(f"--min-coverage is a share from 0 to 1, not {args.min_coverage}")
    rules = [parse_rule(text) for text in args.fail_if]
    if args.vs or len(args.runs) > 2:
        return _study(args)
    if len(args.runs) < 2:
        raise UsageError("one run is nothing to compare with; name two, or more")
    with tempfile.TemporaryDirectory() as folder:
        return _compare(args, rules, Path(folder))


def _compare(args: argparse.Namespace, rules: Sequence[Rule], folder: Path) -> int:
    """Compare the runs of the arguments; log files are imported into ``folder``."""
    references = [*args.runs, *([args.baseline] if args.baseline else [])]
    a, b, *baseline = open_references(references, folder, strict=args.strict, allow_incomplete=args.allow_incomplete)
    if any(map(has_totals_alone, (a, b))) or all(map(has_times_alone, (a, b))):
        return _without_steps(a, b, args)
    comparison = compare_runs(
        a,
        b,
        baseline=baseline[0] if baseline else None,
        protocol=args.protocol,
        metric=args.metric,
        margin=args.margin,
        hypothesis=args.hypothesis,
        datasets=args.dataset,
        controls=args.control,
        earlier=args.earlier,
        min_coverage=args.min_coverage,
        strict=args.strict,
        allow_incomplete=args.allow_incomplete,
    )
    judgements = [judge(rule, comparison) for rule in rules]
    report = write_report(comparison, args.out or default_reports() / pair_folder(comparison))
    console = terminal()
    summarise(comparison, console)
    for line in baseline_sections.summary(comparison.baseline) if comparison.baseline else ():
        console.print(wording.one_line(line), soft_wrap=True)
    for judgement in judgements:
        console.print(judgement.sentence, soft_wrap=True)
    console.print(f"report: {report}", soft_wrap=True)
    return exit_code(judgements)


def _study(args: argparse.Namespace) -> int:
    """Several arms, or several seeds per arm."""
    if args.fail_if or args.baseline:
        raise UsageError("--fail-if and --baseline judge two runs; compare them in pairs")
    console = terminal()
    options: dict[str, Any] = {"protocol": args.protocol, "metric": args.metric, "min_coverage": args.min_coverage}
    options |= {"strict": args.strict, "allow_incomplete": args.allow_incomplete}
    if args.vs:
        if refused := [name for name in _OF_PAIRS if getattr(args, name)]:
            raise UsageError(f"--{refused[0]} is not for --vs; several seeds are compared on all their prompts")
        seeds = compare_seeds(args.runs, args.vs, **options)
        report = write_seeds(seeds, args.out or default_reports() / seeds_folder(seeds))
        lines = [seeds_headline(seeds), seeds_meaning(seeds), *(f"caution: {text}" for text in seeds_cautions(seeds))]
    else:
        asked = {"margin": args.margin, "hypothesis": args.hypothesis, "datasets": args.dataset}
        matrix = compare_many(args.runs, controls=args.control, earlier=args.earlier, **asked, **options)
        report = write_matrix(matrix, args.out or default_reports() / matrix_folder(matrix))
        lines = [matrix_headline(matrix), *(f"  {headline(c)}" for c in matrix.comparisons)]
    for line in lines:
        console.print(wording.one_line(line), soft_wrap=True)
    console.print(f"report: {report}", soft_wrap=True)
    return 0


def _without_steps(a: Run, b: Run, args: argparse.Namespace) -> int:
    """Totals, or times alone, beside each other, with what they cannot say; a rule on them cannot be judged."""
    if args.fail_if or args.baseline:
        raise UsageError("logs without verification steps of prompts allow neither --fail-if nor --baseline")
    if any(map(has_totals_alone, (a, b))):
        totals = compare_totals(a, b)
        lines, text = aggregate.lines(totals), aggregate.report(totals)
    else:
        lines = baseline_sections.speed_lines(speed_alone(a, b), a.label, b.label)
        text = f"# {escape(b.label)} against {escape(a.label)}, speed only\n\n" + "\n\n".join(map(escape, lines)) + "\n"
    report = (args.out or default_reports() / f"{a.name}-vs-{b.name}") / "report.md"
    try:
        write_atomic(report, text)
    except OSError as error:
        raise UsageError(f"cannot write {report}: {error.strerror}; choose another folder") from error
    console = terminal()
    for line in lines:
        console.print(line, soft_wrap=True)
    console.print(f"report: {report}", soft_wrap=True)
    return 0


def terminal() -> Console:
    """Standard output, plain; a terminal without UTF-8 shows ? for what it lacks, and the report is whole."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    return Console(markup=False, highlight=False, emoji=False, width=None if sys.stdout.isatty() else 110)


def _parser() -> Parser:
    parser = Parser(prog="python -m analysis.compare", description="Compare runs over the prompts that they share.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder, address, name under runs/, or log file")
    parser.add_argument("--vs", nargs="+", metavar="RUN", help="trainings of arm B; those before it are of arm A")
    parser.add_argument("--baseline", metavar="RUN", help="plain decoding of the same prompts, for speed-ups over it")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the report (default: reports/<A>-vs-<B>)")
    parser.add_argument("--protocol", choices=["generate", "prefix"], help="default: the first that both runs have")
    parser.add_argument("--metric", choices=[e.key for es in wording.HEADLINES.values() for e in es], help="headline")
    parser.add_argument("--margin", type=float, metavar="TOKENS", help="a difference within it counts as none")
    parser.add_argument("--hypothesis", metavar="TEXT", help="what was expected, for the record")
    parser.add_argument("--dataset", action="append", metavar="NAME", help="only this data set; may be given again")
    parser.add_argument("--control", nargs="+", default=(), metavar="RUN", help="frozen, shuffled or static gates")
    parser.add_argument("--earlier", nargs="+", default=(), metavar="RUN", help="runs whose explored prompts count too")
    parser.add_argument(
        "--fail-if", action="append", default=[], metavar="RULE", help="such as 'delta<-0.05': exit 1 if it holds"
    )
    parser.add_argument("--min-coverage", type=float, default=0.95, metavar="SHARE", help="of the smaller run (0.95)")
    parser.add_argument("--strict", action="store_true", help="a dropped row, unknown target or bad gate is an error")
    parser.add_argument("--allow-incomplete", action="store_true", help="take runs that are not finished")
    return parser


if __name__ == "__main__":
    raise SystemExit(run_command(main))
