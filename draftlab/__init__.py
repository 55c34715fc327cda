"""The notebook API of draftlab: ``import draftlab; draftlab.compare_runs("runs/a", "runs/b")``.

The work is done by the package ``analysis``. In a folder that has an ``analysis`` of its own Python would import that
one instead; importing draftlab then fails and says so.
"""

from __future__ import annotations

from pathlib import Path

import analysis

if not (Path(analysis.__file__ or "").parent / "runlog" / "schema.py").exists():
    raise ImportError(
        f"draftlab's package `analysis` is shadowed by {analysis.__file__ or list(analysis.__path__)}; "
        "start Python in another folder, or use the command `draftlab`"
    )

from analysis import *  # noqa: F403
from analysis import __all__ as __all__
