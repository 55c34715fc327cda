"""``python -m analysis.serving``: see :mod:`analysis.commands.serving`."""

from analysis.commands.serving import main
from analysis.errors import run_command

if __name__ == "__main__":
    raise SystemExit(run_command(main))
