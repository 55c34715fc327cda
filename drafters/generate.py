"""``python -m drafters.generate``: see :mod:`drafters.commands.generate`."""

from analysis.errors import run_command
from drafters.commands.generate import main

if __name__ == "__main__":
    raise SystemExit(run_command(main))
