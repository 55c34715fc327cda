"""The output folder of a report: never a report of the plan, unless --force is given."""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis.commands.report import default_plan, planned_folders, read_plan
from analysis.errors import UsageError
from analysis.report.writing import REPORT
from analysis.runlog.addresses import default_reports

_BESIDE = "-unplanned"


def folder_of(args: argparse.Namespace, name: str) -> Path:
    """The folder of the report ``name``: as requested, else under ``reports/``, with a suffix if the plan has a report
    of this name. Raises UsageError for a folder of the plan without ``--force``."""
    folder = args.out or default_reports() / name
    plan = default_plan()
    if args.force or not plan.exists() or not (folder / REPORT).exists():
        return Path(folder)
    planned = {(plan.parent / one).resolve() for one in planned_folders(read_plan(plan))}
    if folder.resolve() not in planned:
        return Path(folder)
    if args.out:
        raise UsageError(f"{folder} contains a report of {plan}; choose another --out, or replace it with --force")
    return folder.with_name(folder.name + _BESIDE)
