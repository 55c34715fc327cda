"""``python -m draftlab`` is the console command."""

from draftlab.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
