"""Exceptions that carry an exit code, and the wrapper in which every command runs.

A message is one line: what is wrong, where, and how to fix it. Exit codes are the same for all
commands (see :class:`Exit`), so CI can distinguish a bad file from a failed rule.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import NoReturn


class Exit(IntEnum):
    """Process exit codes; the data and usage codes are those of BSD ``sysexits``."""

    OK = 0
    RULE_FAILED = 1
    INCONCLUSIVE = 2
    USAGE = 64
    DATA = 65
    INTERNAL = 70
    INTERRUPTED = 130


class DraftlabError(Exception):
    """A failure that the user can fix: shown as one line, never as a traceback."""

    exit_code = Exit.INTERNAL


class UsageError(DraftlabError):
    """The command line is wrong, or a required package is not installed."""

    exit_code = Exit.USAGE


class DataError(DraftlabError):
    """A file, run or configuration is invalid."""

    exit_code = Exit.DATA


class Parser(argparse.ArgumentParser):
    """argparse with exit code 64 for usage errors; its default, 2, means *inconclusive* here."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(Exit.USAGE, f"{self.prog}: {message}\n")


def finite(text: str) -> float:
    """Argument type: a finite number."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"'{text}' is not a finite number")
    return number


def out_folder(text: str) -> Path:
    """Argument type: a folder. An empty name is an error: an unset shell variable would mean the working directory."""
    if not text:
        raise argparse.ArgumentTypeError("the folder name is empty")
    return Path(text)


def run_command(
    main: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None = None, *, resumes: bool = False
) -> int:
    """Run a command's ``main`` and turn every failure into one line on stderr and an exit code.

    ``resumes``: whether repeating the command continues where it stopped. ``DRAFTLAB_TRACEBACK=1`` shows the
    traceback of an internal error.
    """
    try:
        return int(main(argv))
    except DraftlabError as error:
        _complain(" ".join(str(error).split()))
        return int(error.exit_code)
    except KeyboardInterrupt:
        _complain("interrupted" + ("; repeat the command to continue from the last saved state" if resumes else ""))
        return int(Exit.INTERRUPTED)
    except BrokenPipeError:  # `... | head`: the reader closed the pipe
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - keeps the interpreter's last flush quiet
        return int(Exit.OK)
    except Exception as error:
        if os.environ.get("DRAFTLAB_TRACEBACK"):
            traceback.print_exc()
        summary = " ".join(f"{type(error).__name__}: {error}".split())
        _complain(f"internal error: {summary} (DRAFTLAB_TRACEBACK=1 shows where)")
        return int(Exit.INTERNAL)


def _complain(message: str) -> None:
    print(f"draftlab: {message}", file=sys.stderr)
