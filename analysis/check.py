"""``python -m analysis.check``: see :mod:`analysis.commands.check`."""

from analysis.commands.check import main
from analysis.errors import run_command

if __name__ == "__main__":
    raise SystemExit(run_command(main))
