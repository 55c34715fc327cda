"""Runs as arms: the target that they share, and what proposes for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.errors import DataError
from analysis.runlog.reading import Run, read_manifest
from drafters.checkpoints.folder import load_drafter, weights_sha256
from drafters.checkpoints.run_files import FINAL
from drafters.evaluation.arms import Arm, BlockArm, LookupArm
from drafters.evaluation.baselines import LOOKUP, NEXT_TOKEN, load_next_token
from drafters.evaluation.controls import control_arm
from drafters.evaluation.lookup_first import VARIANT, LookupFirstArm
from drafters.evaluation.variants import weights_of
from drafters.target.frozen import Target


def common_target(folders: Sequence[Path], device: str) -> Target:
    """The one target that these runs were trained for. Raises DataError if there are several."""
    settings: dict[tuple[str, bool], dict[str, Any]] = {}
    for folder in folders:
        manifest = Run.open(folder, allow_incomplete=True).manifest
        if manifest.target is None or manifest.target.sha256 is None or manifest.training is None:
            raise DataError(f"{folder}: its manifest names no target; train it with drafters.train")
        trained = manifest.training.settings
        settings[manifest.target.sha256, trained.get("thinking", False)] = trained
    if len(settings) > 1:
        names = ", ".join(
            f"{s['target']} in {s.get('target_dtype', 'float32')}{', thinking' * s.get('thinking', False)}"
            for s in settings.values()
        )
        raise DataError(f"these runs have different targets ({names}); evaluate them apart")
    (trained,) = settings.values()
    return Target.of_run(trained, device)


def load_arm(folder: Path, target: Target, device: str) -> Arm:
    """The trained drafter, the variant, or the baseline of a run folder.

    Raises DataError if it has no weights, or others than it was trained to.
    """
    manifest = read_manifest(str(folder))
    checkpoints = weights_of(folder, manifest)
    if manifest.drafter and manifest.drafter.config.get("kind") == LOOKUP:
        return LookupArm(manifest.drafter.config["block_size"])
    if (checkpoints / NEXT_TOKEN).exists():
        return load_next_token(checkpoints / NEXT_TOKEN)
    final = checkpoints / FINAL
    if not final.is_dir():
        raise DataError(f"{folder}: no weights in {final}; train it, or copy its checkpoints there")
    drafter = load_drafter(final)
    recorded = manifest.drafter.checkpoint_sha256 if manifest.drafter else None
    if recorded and recorded != weights_sha256(drafter):
        raise DataError(
            f"{final}: not the weights whose logs {folder} holds (sha256 recorded: {recorded[:12]}); "
            "bring those back, or move the run away and train it again"
        )
    if manifest.variant == VARIANT:
        return LookupFirstArm(drafter, target, device)
    if manifest.variant:
        return control_arm(manifest.variant, drafter, final, target, device)
    return BlockArm(drafter, target, device)
