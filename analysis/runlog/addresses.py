"""Locations of runs, logs and reports: names under ``runs/``, folders, fsspec addresses."""

from __future__ import annotations

import os
from pathlib import Path

import fsspec

from analysis.errors import DataError

MANIFEST = "run.json"  # a folder that holds one is a run


def resolve(reference: str) -> str:
    """Address of a run: an fsspec address (unchanged), a folder, or ``runs/<name>`` of this or a parent folder."""
    if "://" in reference:
        return reference.rstrip("/")
    if Path(reference).is_dir():
        return str(Path(reference))
    if Path(reference).is_file():
        raise DataError(
            f"{reference}: a file, not a run; to import a log: python -m analysis.importers {reference} --out runs/NAME"
        )
    if (runs := find_runs_folder()) is not None:
        if (runs / reference).is_dir():
            return str(runs / reference)
        known = sorted(p.parent.name for p in runs.glob(f"*/{MANIFEST}"))
        listing = ", ".join(known) if known else "none"
        raise DataError(f"unknown run '{reference}': not a folder, and not a name under {runs} (available: {listing})")
    raise DataError(f"unknown run '{reference}': not a folder, and there is no runs/ folder here or above")


def located(address: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """The filesystem of a path or fsspec address, and the path on it. Raises DataError for an unsupported address."""
    try:
        return fsspec.core.url_to_fs(address)
    except ImportError as error:
        raise DataError(f"{address}: {error} (for s3://: pip install 'draftlab[remote]')") from error
    except ValueError as error:
        raise DataError(f"{address}: {error}") from error


def find_runs_folder() -> Path | None:
    """The ``runs/`` folder of the working directory or of its nearest parent that has one."""
    here = Path.cwd()
    return next((p / "runs" for p in (here, *here.parents) if (p / "runs").is_dir()), None)


def default_reports() -> Path:
    """The ``reports/`` folder beside the nearest ``runs/`` folder, else of the working directory."""
    runs = find_runs_folder()
    return Path(os.path.relpath((runs.parent if runs else Path.cwd()) / "reports"))
