"""Where runs and logs are: names under ``runs/``, folders, fsspec addresses."""

from __future__ import annotations

from pathlib import Path

import fsspec

from analysis.errors import DataError

MANIFEST = "run.json"  # a folder that holds one is a run


def resolve(reference: str) -> str:
    """Address of a run: an fsspec address as it is, a folder, or ``runs/<name>`` of this or a parent folder."""
    if "://" in reference:
        return reference.rstrip("/")
    if Path(reference).is_dir():
        return str(Path(reference))
    if (runs := find_runs_folder()) is not None:
        if (runs / reference).is_dir():
            return str(runs / reference)
        known = sorted(p.parent.name for p in runs.glob(f"*/{MANIFEST}"))
        listing = ", ".join(known) if known else "none"
        raise DataError(f"no run '{reference}': not a folder, and not a name under {runs} (there: {listing})")
    raise DataError(f"no run '{reference}': not a folder, and no runs/ folder here or above")


def located(address: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """The filesystem of a path or fsspec address, and the path on it. Raises DataError if there is none for it."""
    try:
        return fsspec.core.url_to_fs(address)
    except ImportError as error:
        raise DataError(f"{address}: {error} (for s3://: pip install 'draftlab[remote]')") from error
    except ValueError as error:
        raise DataError(f"{address}: {error}") from error


def find_runs_folder(start: Path | None = None) -> Path | None:
    """The ``runs/`` folder of ``start`` (default: the working directory) or of its nearest parent that has one."""
    start = (start or Path.cwd()).resolve()
    return next((p / "runs" for p in (start, *start.parents) if (p / "runs").is_dir()), None)
