"""The work of ``python -m analysis.compare``, after the arguments are parsed."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis import wording
from analysis.commands import values
from analysis.commands.folders import folder_of
from analysis.commands.log_options import log_options
from analysis.commands.show import show
from analysis.comparison.factorial import compare_factorial
from analysis.comparison.matrix import compare_many
from analysis.comparison.pairwise import compare_runs
from analysis.comparison.question import margin_of, of_evaluation, require_coverage
from analysis.comparison.rules import Rule, exit_code, judge, parse_rule
from analysis.comparison.seed_study import compare_seeds
from analysis.errors import UsageError
from analysis.importers.direct import open_references
from analysis.measures.aggregate import compare_totals, has_totals_alone
from analysis.measures.baseline import has_times_alone
from analysis.measures.times_alone import compare_times
from analysis.report.answers import headline
from analysis.report.sections import baseline as baseline_sections
from analysis.report.sections import factorial as factorial_sections
from analysis.report.sections import seeds as seed_sections
from analysis.report.sections import times as times_sections
from analysis.report.sections import totals as totals_sections
from analysis.report.sections.overview import monitoring
from analysis.report.sections.study import matrix_headline, pair_folder
from analysis.report.terminal import summarise, terminal
from analysis.report.writing import (
    factorial_folder,
    matrix_folder,
    seeds_folder,
    write_factorial,
    write_matrix,
    write_report,
    write_seeds,
    write_times,
    write_totals,
)
from analysis.runlog.manifest import Target
from analysis.runlog.reading import Run


@dataclass(frozen=True)
class _Opened:
    """The runs that the arguments name."""

    runs: list[Run]
    vs: list[Run]
    baseline: list[Run]
    controls: list[Run]
    earlier: list[Run]
    sessions_a: list[Run]
    sessions_b: list[Run]


def carry_out(args: argparse.Namespace) -> int:
    """Compare, write the report, print the summary; the exit code."""
    rules = [parse_rule(text) for text in args.fail_if]
    margin_of(args.margin)  # report invalid arguments before large logs are read
    require_coverage(args.min_coverage)
    if (column := values.column_of(args)) is not None:
        if args.evaluation is not None:
            raise UsageError("--evaluation is for runs; tables with one number per prompt hold no evaluations")
        return values.compare_tables(args, column, rules)
    with tempfile.TemporaryDirectory() as folder:
        opened = _open(args, Path(folder))
        options = {"protocol": args.protocol, "metric": args.metric, "min_coverage": args.min_coverage}
        options |= {"strict": args.strict, "allow_incomplete": args.allow_incomplete, "margin": args.margin}
        if args.factorial:
            return _factorial(args, opened.runs)
        if args.vs:
            return _seeds(args, opened, options, rules)
        options |= {"hypothesis": args.hypothesis, "datasets": args.dataset}
        options |= {"controls": opened.controls, "earlier": opened.earlier}
        return _arms(args, opened, options) if len(opened.runs) > 2 else _pair(args, opened, options, rules)


def _open(args: argparse.Namespace, folder: Path) -> _Opened:
    """All runs, log files among them imported into ``folder``."""
    named = [args.runs, args.vs or (), [args.baseline] if args.baseline else (), args.control, args.earlier]
    named += [args.sessions_a, args.sessions_b]
    references = [reference for group in named for reference in group]
    opened = open_references(
        references, folder, strict=args.strict, allow_incomplete=args.allow_incomplete, options=log_options(args)
    )
    if args.target:
        opened = [_with_target(run, args.target) for run in opened]
    for number, label in enumerate((args.label_a, args.label_b)):
        if label and len(args.runs) == 2:
            opened[number] = _changed(opened[number], label=label)
    runs = iter(opened)
    groups = [[next(runs) for _ in group] for group in named]
    if args.evaluation is not None:
        groups, args.protocol = of_evaluation(groups, args.evaluation, args.protocol)
    return _Opened(*groups)


def _with_target(run: Run, name: str) -> Run:
    """The run with the target that the user names, where its log does not. Raises UsageError where it names another."""
    if run.manifest.target is None:
        return _changed(run, target=Target(id=name))
    if run.manifest.target.id != name:
        raise UsageError(f"{run.address}: its target is {run.manifest.target.id}, not {name} (--target)")
    return run


def _changed(run: Run, **fields: Any) -> Run:
    return replace(run, manifest=run.manifest.model_copy(update=fields))


def _pair(args: argparse.Namespace, opened: _Opened, options: dict[str, Any], rules: Sequence[Rule]) -> int:
    a, b = opened.runs
    if any(map(has_totals_alone, (a, b))) or _speed_only(a, b):
        return _without_steps(a, b, args)
    options |= {"sessions_a": opened.sessions_a, "sessions_b": opened.sessions_b, "sequential": args.sequential}
    comparison = compare_runs(a, b, baseline=next(iter(opened.baseline), None), **options)
    judgements = [judge(rule, comparison) for rule in rules]
    report = write_report(comparison, folder_of(args, pair_folder(comparison)))
    if not args.quiet and not args.json:
        summarise(comparison, terminal())
    lines = baseline_sections.summary(comparison.baseline) if comparison.baseline else []
    lines += [text] if (text := monitoring(comparison)) else []
    show(args, report, [*map(wording.one_line, lines), *(judgement.sentence for judgement in judgements)])
    return exit_code(judgements)


def _speed_only(a: Run, b: Run) -> bool:
    """Whether a run has times but no verification steps, and both have times."""
    return any(map(has_times_alone, (a, b))) and all(run.has("timings") for run in (a, b))


def _arms(args: argparse.Namespace, opened: _Opened, options: dict[str, Any]) -> int:
    matrix = compare_many(opened.runs, **options)
    report = write_matrix(matrix, folder_of(args, matrix_folder(matrix)))
    lines = [matrix_headline(matrix), *(f"  {headline(c)}" for c in matrix.comparisons)]
    show(args, report, map(wording.one_line, lines))
    return 0


def _factorial(args: argparse.Namespace, runs: Sequence[Run]) -> int:
    found = compare_factorial(runs, protocol=args.protocol, metric=args.metric)
    report = write_factorial(found, folder_of(args, factorial_folder(found)))
    lines = [factorial_sections.headline(found), factorial_sections.conclusion(found)]
    lines += [f"caution: {what}: {text}" for what, text in factorial_sections.cautions(found)]
    show(args, report, map(wording.one_line, lines))
    return 0


def _seeds(args: argparse.Namespace, opened: _Opened, options: dict[str, Any], rules: Sequence[Rule]) -> int:
    study = compare_seeds(opened.runs, opened.vs, **options)
    judgements = [judge(rule, study) for rule in rules]
    report = write_seeds(study, folder_of(args, seeds_folder(study)))
    notes = [seed_sections.interval_made_of(study), seed_sections.seeds_that_would_do(study)]
    lines = [seed_sections.headline(study), seed_sections.meaning(study), *(line for line in notes if line)]
    lines += [f"caution: {text}" for text in seed_sections.cautions(study)]
    show(args, report, [*map(wording.one_line, lines), *(judgement.sentence for judgement in judgements)])
    return exit_code(judgements)


def _without_steps(a: Run, b: Run, args: argparse.Namespace) -> int:
    """Compare totals or times only. Such logs have no intervals over prompts, so rules cannot be judged."""
    if args.fail_if or args.baseline:
        raise UsageError("--fail-if and --baseline require logs with verification steps per prompt")
    folder = folder_of(args, f"{a.name}-vs-{b.name}")
    if any(map(has_totals_alone, (a, b))):
        totals = compare_totals(a, b, strict=args.strict)
        lines, notes, report = totals_sections.lines(totals), totals.notes, write_totals(totals, folder)
    else:
        times = compare_times(a, b, min_coverage=args.min_coverage, strict=args.strict)
        lines, notes, report = times_sections.lines(times), times.notes, write_times(times, folder)
    show(args, report, [*lines, *(f"caution: {wording.one_line(note)}" for note in notes)])
    return 0
