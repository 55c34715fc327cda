"""Import logs of other tools: ``python -m analysis.importers FILE... --out runs/NAME``.

Several files make one run (parts of ranks, one file per data set). A file with several conditions gives one run each,
``NAME-<condition>``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analysis.commands.log_options import add_log_options, log_options
from analysis.errors import Parser, UsageError, out_folder
from analysis.importers.collect import collect
from analysis.importers.questions import read_questions, with_questions
from analysis.importers.registry import FORMATS
from analysis.importers.summary import describe
from analysis.importers.write import source_files, write_run
from analysis.runlog.addresses import MANIFEST
from analysis.wording import one_line

_LISTED = 20


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python -m analysis.importers", description="Import log files of other tools as a run.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument(
        "--out", type=out_folder, required=True, metavar="RUN", help="run folder to write, e.g. runs/NAME"
    )
    parser.add_argument("--format", default="auto", choices=["auto", *(f.key for f in FORMATS)])
    parser.add_argument("--questions", type=Path, metavar="FILE", help="JSONL rows with question_id, turns, category")
    parser.add_argument("--before", type=Path, metavar="FILE", help="Prometheus counters before the measurement")
    add_log_options(parser)
    parser.add_argument(
        "--prefill-token",
        default="unknown",
        choices=["inside", "outside", "unknown"],
        help="plain tables: whether the first token (from prefill) is counted in the steps",
    )
    parser.add_argument("--label", help="name of the arm in reports (default: from the file)")
    parser.add_argument("--strict", action="store_true", help="treat invalid rows as errors")
    args = parser.parse_args(argv)
    options = replace(log_options(args), format=args.format, before=args.before, prefill_token=args.prefill_token)
    questions = read_questions(args.questions) if args.questions else None
    collected = collect(args.files, options, strict=args.strict)
    folders = [args.out if len(collected.runs) == 1 else _beside(args.out, run.variant) for run in collected.runs]
    for folder in folders:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            there = "holds a run" if (folder / MANIFEST).exists() else "is not empty"
            raise UsageError(f"{folder} {there}; choose another --out, or remove it")
    runs = [with_questions(run, questions, args.questions) for run in collected.runs] if questions else collected.runs
    print(f"format: {collected.runs[0].format}")
    sources = source_files({str(path): path for path in args.files})
    for run, folder in zip(runs, folders, strict=True):
        labelled = replace(run, label=args.label) if args.label and len(runs) == 1 else run
        for line in describe(labelled):
            print(one_line(line) if not line.startswith("  ") else f"  {one_line(line)}")
        try:
            write_run(folder, labelled, name=folder.name, caveats=collected.caveats(), sources=sources)
        except OSError as error:
            raise UsageError(f"cannot write {folder}: {error.strerror}; choose another --out") from error
        print(f"written: {folder}")
    for name, problem in collected.problems[:_LISTED]:
        print(one_line(f"excluded: {name}, {problem}"))
    if len(collected.problems) > _LISTED:
        print(f"excluded: {len(collected.problems) - _LISTED:,} more rows")
    return 0


def _beside(out: Path, variant: str | None) -> Path:
    return out.with_name(f"{out.name}-{re.sub(r'[^A-Za-z0-9._-]+', '-', variant or 'run').strip('-') or 'run'}")
