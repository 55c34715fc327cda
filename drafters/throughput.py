"""``python -m drafters.throughput``: see :mod:`drafters.commands.throughput`."""

from analysis.errors import run_command
from drafters.commands.throughput import main

if __name__ == "__main__":
    raise SystemExit(run_command(main, resumes=True))
