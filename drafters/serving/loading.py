"""What is served: a target, and what proposes tokens for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from analysis.errors import DataError, UsageError
from analysis.runlog.addresses import MANIFEST, find_runs_folder
from drafters.axes import DrafterConfig
from drafters.checkpoints.folder import load_drafter
from drafters.decoding.proposers import Proposer
from drafters.evaluation.arms import Arm, BlockArm, LookupArm
from drafters.evaluation.loading import common_target, load_arm
from drafters.evaluation.lookup_first import LookupFirstArm
from drafters.evaluation.proposing import proposer_of
from drafters.target.frozen import Target

#: ``own``: what the run or checkpoint was made for. ``both``: its drafter with prompt lookup in front. The others leave
#: its drafter aside.
Choice = Literal["own", "both", "plain", "lookup"]


LOOKUP_BLOCK = 8


@dataclass(frozen=True)
class Served:
    """A target, what proposes tokens for it (None: nothing does), and a name."""

    target: Target
    proposer: Proposer | None
    name: str

    @property
    def positions(self) -> int:
        """Most tokens drafted in a step."""
        return self.proposer.block_size - 1 if self.proposer else 0


def load_served(
    reference: str,
    choice: Choice = "own",
    *,
    target: str | None = None,
    block_size: int | None = None,
    confidence: float = 0.0,
    device: str = "cpu",
    dtype: str = "float32",
) -> Served:
    """Load what ``reference`` names (see the module's description).

    Raises UsageError for options that do not fit, DataError for a drafter that does not fit the target.
    """
    folder = _run_folder(reference)
    arm: Arm | None = None
    if folder is not None:
        loaded, name = common_target([folder], device), folder.name
        if choice in ("own", "both"):
            arm = load_arm(folder, loaded, device)
    elif target is not None:
        loaded, name = Target.load(target, dtype=dtype, device=device), Path(reference).name
        if choice in ("own", "both"):
            drafter = load_drafter(reference)
            _check_fits(drafter.config, loaded, reference)
            arm = BlockArm(drafter, loaded, device)
    else:
        loaded = Target.load(reference, dtype=dtype, device=device)
        name = loaded.id
    return Served(loaded, _proposer(arm, loaded, choice, reference, block_size, confidence), name)


def _proposer(
    arm: Arm | None, target: Target, choice: Choice, reference: str, block_size: int | None, confidence: float
) -> Proposer | None:
    if choice == "lookup":
        arm = LookupArm(block_size or LOOKUP_BLOCK)
    if choice == "both":
        if not isinstance(arm, BlockArm):
            raise UsageError(f"{reference}: --with-lookup requires a trained drafter")
        arm = LookupFirstArm(arm.drafter, target, str(target.device))
    try:
        if arm is not None:
            return proposer_of(arm, target, block_size, confidence)
        if confidence or block_size is not None:
            raise ValueError("--block-size and --confidence require something that drafts; this is plain decoding")
    except ValueError as error:
        raise UsageError(f"{reference}: {error}") from error
    return None


def _run_folder(reference: str) -> Path | None:
    """The run folder of that path or name; None if there is no such run."""
    runs = find_runs_folder()
    places = [Path(reference), *([runs / reference] if runs else [])]
    return next((place for place in places if (place / MANIFEST).is_file()), None)


def _check_fits(config: DrafterConfig, target: Target, reference: str) -> None:
    theirs = (config.vocab_size, config.hidden_size, config.num_target_layers or target.num_layers)
    ours = (target.vocab_size, target.hidden_size, target.num_layers)
    if theirs != ours:
        raise DataError(
            f"{reference}: a drafter for a target with (vocabulary, width, layers) {theirs}; "
            f"target '{target.id}' has {ours}"
        )
