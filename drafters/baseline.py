"""``python -m drafters.baseline``: see :mod:`drafters.commands.baseline`."""

from analysis.errors import run_command
from drafters.commands.baseline import main

if __name__ == "__main__":
    raise SystemExit(run_command(main))
