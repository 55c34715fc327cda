"""What a user says about log files, wherever a command takes one in place of a run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from analysis.errors import finite

if TYPE_CHECKING:
    from analysis.importers.registry import Options


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """``--map``, ``--encoding`` and ``--max-bad``."""
    parser.add_argument("--map", action="append", default=[], metavar="FIELD=COLUMN", help="columns of a plain table")
    parser.add_argument("--encoding", metavar="NAME", help="encoding of log files that are not UTF-8, such as cp1252")
    parser.add_argument(
        "--max-bad",
        type=_share,
        metavar="SHARE",
        help="reject a log file if more than this share of its records is invalid (default 0.05)",
    )


def log_options(args: argparse.Namespace) -> Options:
    """Raises UsageError for a mapping or an encoding that is none."""
    from analysis.importers.encodings import known_encoding  # importers take a while to load, which --help need not
    from analysis.importers.plain import parse_mapping
    from analysis.importers.registry import MOST_INVALID, Options

    return Options(
        mapping=parse_mapping(args.map) or None,
        encoding=known_encoding(args.encoding) if args.encoding else None,
        most_invalid=MOST_INVALID if args.max_bad is None else args.max_bad,
    )


def _share(text: str) -> float:
    share = finite(text)
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not between 0 and 1")
    return share
