"""``python -m drafters.serve``: see :mod:`drafters.commands.serve`."""

from analysis.errors import run_command
from drafters.commands.serve import main

if __name__ == "__main__":
    raise SystemExit(run_command(main))
