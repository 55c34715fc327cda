"""``python -m drafters.train``: see :mod:`drafters.commands.train`."""

from analysis.errors import run_command
from drafters.commands.train import main

if __name__ == "__main__":
    raise SystemExit(run_command(main, resumes=True))
