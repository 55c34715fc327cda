"""``python -m drafters.evaluate``: see :mod:`drafters.commands.evaluate`."""

from analysis.errors import run_command
from drafters.commands.evaluate import main

if __name__ == "__main__":
    raise SystemExit(run_command(main, resumes=True))
