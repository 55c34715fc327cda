"""``python -m analysis.compare``: see :mod:`analysis.commands.compare`."""

from analysis.commands.compare import main
from analysis.errors import run_command

if __name__ == "__main__":
    raise SystemExit(run_command(main))
