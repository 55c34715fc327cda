"""``python -m drafters.prompts``: see :mod:`drafters.commands.prompts`."""

from analysis.errors import run_command
from drafters.commands.prompts import main

if __name__ == "__main__":
    raise SystemExit(run_command(main))
