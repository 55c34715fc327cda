"""``python -m drafters.export``: see :mod:`drafters.commands.export`."""

from analysis.errors import run_command
from drafters.commands.export import main

if __name__ == "__main__":
    raise SystemExit(run_command(main))
