"""``python -m analysis.importers``: see :mod:`analysis.commands.importers`."""

from analysis.commands.importers import main
from analysis.errors import run_command

if __name__ == "__main__":
    raise SystemExit(run_command(main))
