"""``python -m drafters.study``: see :mod:`drafters.commands.study`."""

from analysis.errors import run_command
from drafters.commands.study import main

if __name__ == "__main__":
    raise SystemExit(run_command(main, resumes=True))
