"""``python -m analysis.scaling``: see :mod:`analysis.commands.scaling`."""

from analysis.commands.scaling import main
from analysis.errors import run_command

if __name__ == "__main__":
    raise SystemExit(run_command(main))
