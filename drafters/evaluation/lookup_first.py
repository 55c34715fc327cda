"""The arm of a trained drafter with prompt lookup in front of it (:mod:`drafters.decoding.lookup_first`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from analysis.errors import DataError
from analysis.runlog.reading import read_manifest
from drafters.decoding.lookup_first import LEAST, LONGEST
from drafters.evaluation.arms import NO_DRAFT, BlockArm, LookupArm, Passage, Ranked, Tokens
from drafters.evaluation.variants import variant_run
from drafters.model.fusion import Contributions

VARIANT = "lookup"


def lookup_first_run(parent: Path) -> Path:
    """The run folder of ``parent``'s drafter with prompt lookup in front, made beside it if it is not there yet.

    Raises DataError if the parent has no trained drafter.
    """
    manifest = read_manifest(str(parent))
    if manifest.drafter is None or manifest.drafter.config.get("kind") or manifest.variant:
        raise DataError(f"{parent}: --with-lookup requires a run of a trained drafter")
    return variant_run(parent, VARIANT, " + lookup")


class LookupFirstArm(BlockArm):
    """A trained drafter whose blocks give way to copies where the last tokens recur."""

    def propose(self, passages: Sequence[Passage]) -> list[Tokens]:
        """See :class:`~drafters.evaluation.arms.Arm`."""
        copier = LookupArm(self.block_size, LEAST, LONGEST)
        found = zip(copier.propose(passages), super().propose(passages), strict=True)
        return [np.where((copies != NO_DRAFT).any(axis=1, keepdims=True), copies, drafts) for copies, drafts in found]

    def propose_ranked(self, passages: Sequence[Passage]) -> list[Ranked]:
        """The same without ranks: a copy has none."""
        return [Ranked(drafts, None) for drafts in self.propose(passages)]

    def vocabulary(self, prompt: Sequence[int]) -> None:
        """None: any token may recur."""

    def contributions(self, features: torch.Tensor) -> Contributions | None:
        """None: its parent's log has them."""
        return None
