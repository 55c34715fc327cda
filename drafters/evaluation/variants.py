"""Runs with another run's weights: a control of its gate, or its drafter with prompt lookup in front.

A variant is a run beside its parent, ``runs/<parent>-<variant>``, with the change named in the manifest, and is
compared like any other.
"""

from __future__ import annotations

from pathlib import Path

from analysis.runlog.addresses import MANIFEST
from analysis.runlog.manifest import Manifest
from analysis.runlog.reading import read_manifest
from analysis.runlog.writing import RunWriter


def variant_folder(parent: Path, variant: str) -> Path:
    """Where the run of a variant lives: beside its parent."""
    return parent.with_name(f"{parent.name}-{variant}")


def variant_run(parent: Path, variant: str, change: str) -> Path:
    """The run folder of a variant, made beside its parent if it is not there yet; ``change``: what its label adds."""
    manifest = read_manifest(str(parent))
    folder = variant_folder(parent, variant)
    if not (folder / MANIFEST).exists():
        fresh = {
            "name": folder.name,
            "label": f"{manifest.label or manifest.name}{change}",
            "parent": parent.name,
            "variant": variant,
            "evaluations": {},
            "tables": {},
            "timings": {},
        }
        RunWriter(folder, manifest.model_copy(update=fresh)).save()
    return folder


def weights_of(folder: Path, manifest: Manifest) -> Path:
    """Folder of the checkpoints that a run evaluates: its own, or its parent's."""
    return (folder.parent / manifest.parent if manifest.parent else folder) / "checkpoints"
