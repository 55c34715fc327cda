"""``python -m benchmarks.fuzz_importers [N]``."""

from __future__ import annotations

from benchmarks.fuzz_importers.everything import main

if __name__ == "__main__":
    raise SystemExit(main())
