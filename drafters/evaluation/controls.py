"""How much of a gate's effect is *dynamic*: controls that take the movement away and keep the rest.

* ``frozen``: the gate at its mean over the training corpus, folded into the projection. An upper bound of the
  dynamics' share, since the projection adapted to a gate that moved.
* ``shuffled``: the gates of a prompt's tokens, dealt out among them at random: the same values, at wrong tokens.

(The third control, a *trained* static gate, is an arm of its own: ``gate_input: none``.) A control is a variant of the
gated run (drafters.evaluation.variants).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import torch

from analysis.errors import DataError
from analysis.runlog.reading import read_manifest
from drafters.checkpoints.mean_gate import MEAN_GATE
from drafters.evaluation.arms import BlockArm, Passage
from drafters.evaluation.variants import variant_run
from drafters.keyed import permutation
from drafters.model.drafter import Drafter
from drafters.model.folding import fold_constants
from drafters.model.fusion import GatedFusion
from drafters.target.frozen import Target

Control = Literal["frozen", "shuffled"]
CONTROLS: tuple[Control, ...] = ("frozen", "shuffled")


def control_run(parent: Path, control: Control) -> Path:
    """The run folder of a control, made beside its parent if it is not there yet.

    Raises DataError if the parent has no gate that moves.
    """
    manifest = read_manifest(str(parent))
    config = manifest.drafter.config if manifest.drafter else {}
    if config.get("fusion") != "gated" or config.get("gate_input") != "last":
        raise DataError(f"{parent}: --gate-control requires a drafter whose gate reads the token (fusion: gated)")
    return variant_run(parent, control, f", gate {control}")


def control_arm(variant: str, drafter: Drafter, final: Path, target: Target, device: str) -> BlockArm:
    """The arm of a control of ``drafter``, whose weights and mean gate are in ``final``."""
    if variant == "frozen":
        mean = json.loads((final / MEAN_GATE).read_text(encoding="utf-8"))["mean"]
        return BlockArm(fold_constants(drafter, torch.tensor(mean)), target, device)
    if variant == "shuffled":
        return ShuffledArm(drafter, target, device)
    raise DataError(f"{final.parent.parent}: unknown control '{variant}'; known: {', '.join(CONTROLS)}")


class ShuffledArm(BlockArm):
    """A gated drafter whose gates are dealt out among the tokens of a prompt, by a generator keyed by its length."""

    def __init__(self, drafter: Drafter, target: Target, device: str = "cpu"):
        super().__init__(drafter, target, device)
        fusion = self.drafter.fusion
        assert isinstance(fusion, GatedFusion)
        gate = fusion.gate

        def shuffled(features: torch.Tensor) -> torch.Tensor:
            tokens = features.shape[-3]
            order = torch.from_numpy(permutation(tokens, "shuffled gates", tokens)).to(features.device)
            return gate(features).index_select(-2, order)

        fusion.gate_values = shuffled  # type: ignore[method-assign]

    def _groups(self, passages: Sequence[Passage]) -> Iterator[list[Passage]]:
        """Passage by passage, so that no padding is dealt in.

        A token may get the gate of a later one: this control cannot be decoded.
        """
        return ([passage] for passage in passages)
