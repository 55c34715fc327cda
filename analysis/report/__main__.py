"""``python -m analysis.report``: see :mod:`analysis.commands.report`."""

from analysis.commands.report import main
from analysis.errors import run_command

if __name__ == "__main__":
    raise SystemExit(run_command(main))
