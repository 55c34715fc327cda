"""``python -m analysis.compare`` for tables with one number per prompt."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analysis.commands.folders import folder_of
from analysis.commands.show import show
from analysis.comparison.rules import Rule, exit_code, judge
from analysis.comparison.values import compare_values, direction_of
from analysis.importers.encodings import known_encoding
from analysis.importers.values import lone_value, parse_values_mapping, values_of
from analysis.report.sections import values as value_sections
from analysis.report.writing import write_values


def column_of(args: argparse.Namespace) -> str | None:
    """The column with one number per prompt: as requested, or the only one that both tables have."""
    if args.value:
        return str(args.value[0])
    if len(args.runs) != 2 or args.vs or not all(Path(run).is_file() for run in args.runs):
        return None
    encoding = known_encoding(args.encoding) if args.encoding else None
    found = {lone_value(run, encoding) for run in args.runs}
    return found.pop() if len(found) == 1 else None


def compare_tables(args: argparse.Namespace, column: str, rules: Sequence[Rule]) -> int:
    """Compare, write the report, print the summary; returns the exit code."""
    mapping = parse_values_mapping(args.map)
    encoding = known_encoding(args.encoding) if args.encoding else None
    references = [args.runs[0], args.runs[-1]]
    columns = list(args.value or (column,))
    a, b = (
        values_of(reference, name, side, mapping, encoding)
        for reference, name, side in zip(references, (columns[0], columns[-1]), "AB", strict=True)
    )
    if len(columns) == 2:
        # the arms share the rows of one table, so that their order is no guess
        a, b = (replace(arm, name=name, by_order=False) for arm, name in zip((a, b), columns, strict=True))
    metric = column if len(columns) == 1 else "value"
    direction = args.higher_is or (direction_of(metric, None) if len(columns) == 1 else None)
    comparison = compare_values(
        a,
        b,
        metric,
        unit=args.unit,
        higher_is=direction,
        labels=(args.label_a, args.label_b),
        margin=args.margin,
        datasets=args.dataset,
        min_coverage=args.min_coverage,
        strict=args.strict,
    )
    judgements = [judge(rule, comparison) for rule in rules]
    report = write_values(comparison, folder_of(args, f"{a.name}-vs-{b.name}"))
    show(args, report, [*value_sections.lines(comparison), *(judgement.sentence for judgement in judgements)])
    return exit_code(judgements)
