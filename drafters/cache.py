"""Where converted targets and corpora live, outside any run: ``$DRAFTLAB_CACHE``."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """``$DRAFTLAB_CACHE``, else ``draftlab`` in the user's cache folder (``$XDG_CACHE_HOME`` or ``~/.cache``)."""
    if chosen := os.environ.get("DRAFTLAB_CACHE"):
        return Path(chosen).expanduser().absolute()
    # the XDG rules: a relative path there is to be ignored
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "draftlab"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold ``folder`` (made if absent) for one process; others wait. A killed process lets go of it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
