"""Where a run was made: versions, threads, device, commit."""

from __future__ import annotations

import subprocess
from importlib import metadata
from pathlib import Path

import torch

from analysis.runlog.manifest import Environment

_PACKAGES = ("draftlab", "torch", "transformers", "tokenizers", "safetensors", "numpy", "pyarrow", "reasoning-gym")


def environment(device: str) -> Environment:
    """The environment of this process, for the manifest."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue  # an extra that is not installed was not used
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    return Environment(versions=versions, threads=torch.get_num_threads(), device=name, git_commit=_commit())


def _commit() -> str | None:
    root = Path(__file__).resolve().parent.parent
    try:
        found = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None  # not a checkout, or no git: provenance without a commit
    return found.stdout.strip()
