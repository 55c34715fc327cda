"""The plan of a serving experiment: arms, load, blocks, and in which order the arms take their turns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from drafters.config import PromptList
from drafters.settings import Settings

ENGINES = ("draftlab", "vllm", "sglang", "llama.cpp")


class ArmPlan(Settings):
    """One arm: what is served, by which engine, with which drafter.

    ``model``: for draftlab a run, checkpoint folder or target; for other engines the target's folder or id (default:
    the plan's target). ``drafter``: the exported drafter folder of another engine; a run of ours for vLLM is exported
    first. ``command``: in place of the engine's template, with the same placeholders. ``url``: a server that already
    runs; it is not stopped. ``offline``: the run whose drafter our own decoder runs on the same prompts, to count what
    the engine counted (default: ``model`` of draftlab, ``drafter`` where that is a run).
    """

    engine: Literal["draftlab", "vllm", "sglang", "llama.cpp"] = "draftlab"
    model: str | None = None
    drafter: str | None = None
    proposer: Literal["own", "both", "plain", "lookup"] = "own"
    block_size: int | None = Field(default=None, ge=2)
    confidence: float = Field(default=0.0, ge=0, lt=1)
    options: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    python: str | None = None
    command: tuple[str, ...] | None = None
    url: str | None = None
    offline: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.url and (self.command or self.options or self.drafter):
            raise ValueError("a server that already runs (url) takes no command, options or drafter")
        if self.engine != "draftlab" and (self.proposer != "own" or self.confidence):
            raise ValueError("proposer and confidence are for the draftlab engine; use options")
        if self.engine == "draftlab" and self.drafter:
            raise ValueError("the draftlab engine takes its drafter as model")
        return self


class ServingPlan(Settings):
    """A serving experiment (``python -m drafters.throughput``)."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    target: str
    prompts: PromptList = Field(min_length=1)
    arms: dict[str, ArmPlan] = Field(min_length=1)
    blocks: int = Field(ge=1)
    concurrency: tuple[int, ...] = Field(default=(8,), min_length=1)
    max_tokens: int = Field(default=64, ge=2)
    temperature: float = Field(default=0.0, ge=0)
    ignore_eos: bool = True
    seed: int = 0
    warm_up: int = Field(default=2, ge=0)  # requests before what is measured
    port: int = Field(default=0, ge=0, le=65535)  # 0: a free one
    start_timeout_s: float = Field(default=300, gt=0)
    request_timeout_s: float = Field(default=300, gt=0)
    check_offline: bool = True

    @model_validator(mode="after")
    def _check(self) -> Self:
        if list(self.concurrency) != sorted(set(self.concurrency)) or self.concurrency[0] < 1:
            raise ValueError("concurrency must ascend, from 1 or more, without duplicates")
        return self

    @property
    def balanced(self) -> bool:
        """Whether every arm stands in every place of the order equally often."""
        return self.blocks % len(self.arms) == 0


@dataclass(frozen=True)
class Visit:
    """One arm's turn in one block, on a fresh server: a trial per level of concurrency, numbered from ``first``."""

    block: int
    order: int
    arm: str
    first: int


def visits(plan: ServingPlan) -> list[Visit]:
    """All turns in order: block b is the list of arms rotated by b (over as many blocks as arms, a Latin square)."""
    arms = list(plan.arms)
    turns = [
        (block, order, arms[(block + order) % len(arms)]) for block in range(plan.blocks) for order in range(len(arms))
    ]
    levels = len(plan.concurrency)
    return [Visit(block, order, arm, number * levels) for number, (block, order, arm) in enumerate(turns)]


def resolved(path: str, beside: Path) -> str:
    """A path of the plan as it is, or beside the plan's file if it is there."""
    return str(beside / path) if not Path(path).is_absolute() and (beside / path).exists() else path
