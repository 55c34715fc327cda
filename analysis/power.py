"""``python -m analysis.power``: see :mod:`analysis.commands.power`."""

from analysis.commands.power import main
from analysis.errors import run_command

if __name__ == "__main__":
    raise SystemExit(run_command(main))
