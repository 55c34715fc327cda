"""``python -m drafters.corpus``: see :mod:`drafters.commands.corpus`."""

from analysis.errors import run_command
from drafters.commands.corpus import main

if __name__ == "__main__":
    raise SystemExit(run_command(main, resumes=True))
