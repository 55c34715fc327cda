"""The console command ``draftlab``: every command of both packages under one name.

``draftlab compare A B`` is ``python -m analysis.compare A B``, ``draftlab train CONFIG`` is
``python -m drafters.train CONFIG``. A command is imported only when it is called.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version


@dataclass(frozen=True)
class Command:
    """``module``: has ``main(argv) -> int``; ``resumes``: whether the same command again goes on where it stopped."""

    module: str
    what: str
    resumes: bool = False


COMMANDS = {
    "compare": Command("analysis.commands.compare", "compare runs or log files, and write a report"),
    "report": Command("analysis.commands.report", "write the reports that a plan lists"),
    "check": Command("analysis.commands.check", "check a run or a log file"),
    "power": Command("analysis.commands.power", "how many prompts would show a difference"),
    "scaling": Command("analysis.commands.scaling", "the headline against depth, target layers, examples or compute"),
    "serving": Command("analysis.commands.serving", "report on a serving experiment"),
    "import": Command("analysis.commands.importers", "import logs of other tools as a run"),
    "corpus": Command("drafters.commands.corpus", "ask an engine for the answers of a corpus", resumes=True),
    "train": Command("drafters.commands.train", "train a drafter", resumes=True),
    "evaluate": Command("drafters.commands.evaluate", "evaluate trained drafters", resumes=True),
    "generate": Command("drafters.commands.generate", "decode prompts with a drafter"),
    "study": Command("drafters.commands.study", "train, evaluate and compare the arms of a study", resumes=True),
    "baseline": Command("drafters.commands.baseline", "the most frequent next token as a drafter"),
    "serve": Command("drafters.commands.serve", "serve a model over the OpenAI API"),
    "throughput": Command("drafters.commands.throughput", "measure the throughput of serving arms", resumes=True),
    "export": Command("drafters.commands.export", "write a checkpoint in a published layout"),
    "prompts": Command("drafters.commands.prompts", "show what prompt sources hold"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the subcommand that ``argv`` names; its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0 if arguments else 64
    name, *rest = arguments
    if name == "--version":
        print(f"draftlab {_version()}")
        return 0
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"commands: {', '.join(COMMANDS)}"
        print(f"draftlab: unknown command '{name}'; {hint}", file=sys.stderr)
        return 64
    from analysis.errors import run_command

    command = COMMANDS[name]
    try:
        module = import_module(command.module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] in ("analysis", "drafters"):
            raise
        print(
            f"draftlab: '{name}' requires the module {error.name}; install draftlab with its extra: "
            "pip install 'draftlab[train,prompts]'",
            file=sys.stderr,
        )
        return 64
    return run_command(module.main, rest, resumes=command.resumes)


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.what}" for name, command in COMMANDS.items()]
    return "\n".join(["usage: draftlab COMMAND ...", "", *lines, "", "draftlab COMMAND --help shows its options."])


def _version() -> str:
    try:
        return version("draftlab")
    except PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    raise SystemExit(main())
