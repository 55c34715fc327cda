"""The processes that share a command, as torchrun starts them."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from analysis.errors import UsageError


@dataclass(frozen=True)
class Rank:
    """This process among those that torchrun started."""

    number: int = 0
    world: int = 1

    @classmethod
    def of_environment(cls) -> Rank:
        """RANK and WORLD_SIZE; a single process without them."""
        return cls(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))


def refuse_several_ranks(command: str) -> None:
    """Raise UsageError under torchrun with more than one process.

    Each process would do the whole work, and all would write the same files.
    """
    if (world := Rank.of_environment().world) > 1:
        raise UsageError(f"{command} runs in one process, but torchrun started {world}: start it without torchrun")


def default_device() -> str:
    """The GPU if there is one; under torchrun each rank's own."""
    if not torch.cuda.is_available():
        return "cpu"
    return f"cuda:{os.environ['LOCAL_RANK']}" if "LOCAL_RANK" in os.environ else "cuda"
