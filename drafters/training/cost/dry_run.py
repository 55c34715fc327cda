"""What a training would take on a device, from its configuration alone: no weights, no prompts, no network."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from analysis.errors import UsageError
from drafters.axes import shaped
from drafters.config import RunConfig
from drafters.corpus.build import estimate_bytes
from drafters.target.shapes import target_config
from drafters.training.cost.devices import Device, named_device
from drafters.training.cost.memory import Memory, memory
from drafters.training.cost.shapes import Sizes, StepShape, sizes, step_shape
from drafters.training.cost.time import StepTime, Work, step_time, work
from drafters.training.schedule import native_precision

#: Tokens of a prompt where nothing is said: a word problem in a chat template has 60 to 200.
PROMPT_TOKENS = 128


@dataclass(frozen=True)
class Given:
    """What the configuration does not say. ``answer_tokens`` None: the most that it allows; ``examples`` None: not
    known, so that a training without ``training.steps`` has no length. ``flops`` and ``bandwidth`` replace the
    device's.
    """

    hardware: str = "cpu"
    ranks: int = 1
    prompt_tokens: int = PROMPT_TOKENS
    answer_tokens: int | None = None
    examples: int | None = None
    flops: float | None = None
    bandwidth: float | None = None


@dataclass(frozen=True)
class DryRun:
    """The cost of a training, of one rank where nothing else is said."""

    name: str
    target: str
    precision: str
    device: Device
    sizes: Sizes
    step: StepShape
    memory: Memory
    work: Work
    time: StepTime
    corpus_bytes: int  # on disk, of an example; features only where they are stored
    steps: int | None
    examples: int | None

    @property
    def hours(self) -> float | None:
        """Of all steps, without validation and without the corpus."""
        return None if self.steps is None else self.steps * self.time.total / 3600

    @property
    def device_hours(self) -> float | None:
        """Hours of all ranks together."""
        return None if self.hours is None else self.hours * self.step.ranks

    def data(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            **asdict(self),
            "memory": {**asdict(self.memory), "peak": self.memory.peak},
            "time": {**asdict(self.time), "total": self.time.total},
            "hours": self.hours,
            "device_hours": self.device_hours,
        }


def dry_run(config: RunConfig, given: Given = Given()) -> DryRun:
    """The cost of ``config``. Raises DataError for a target whose shapes are not known offline, UsageError for more
    ranks than micro-batches, or a precision that a GPU's data sheet does not give."""
    if given.ranks > config.training.accumulate:
        raise UsageError(f"--ranks {given.ranks}: more than training.accumulate {config.training.accumulate}")
    shape = target_config(config.target)
    count = config.drafter.draft_vocab
    drafter = shaped(
        config.drafter, shape, config.target, num_layers=shape.num_hidden_layers, vocab_size=shape.vocab_size,
        vocab=tuple(range(count)) if count else None,  # which tokens they are changes no cost
    )  # fmt: skip
    asked = config.training.precision
    precision = asked if asked != "auto" else native_precision("cpu") if given.hardware == "cpu" else "bfloat16"
    device = _device(given, precision)
    size = sizes(config.target, drafter)
    answers = given.answer_tokens or config.corpus.max_new_tokens
    step = step_shape(config, drafter.vocab_size, given.prompt_tokens, answers, given.ranks)
    online, target_bytes = config.corpus.features == "online", 2 if config.target_dtype == "bfloat16" else 4
    width = 2 if precision == "bfloat16" else 4
    done = work(drafter, size, step, width=width, target_bytes=target_bytes, online=online, distill=config.loss.distill)
    layers = 0 if online else len(drafter.target_layer_ids) + config.reads_final_state
    return DryRun(
        name=config.name,
        target=config.target,
        precision=precision,
        device=device,
        sizes=size,
        step=step,
        memory=memory(
            drafter, size, step, precision=precision, target_bytes=target_bytes, online=online,
            target_intermediate=shape.intermediate_size, final_state=config.reads_final_state,
            distill=config.loss.distill, sharded=config.training.sharding == "fsdp2",
        ),
        work=done,
        time=step_time(done, step, device),
        corpus_bytes=estimate_bytes(step.length, layers, drafter.hidden_size),
        steps=_steps(config, given.examples),
        examples=given.examples,
    )  # fmt: skip


def _device(given: Given, precision: str) -> Device:
    if given.flops is not None and given.bandwidth is not None:
        return Device(given.hardware, given.flops, given.bandwidth, None, "given")
    if precision == "float64" and given.hardware != "cpu":
        raise UsageError("the rate of float64 products is not in the table: give --device-flops and --device-bandwidth")
    found = named_device(given.hardware, precision)
    if given.flops is None and given.bandwidth is None:
        return found
    flops, bandwidth = given.flops or found.flops, given.bandwidth or found.bandwidth
    return Device(found.name, flops, bandwidth, found.memory, "given")


def _steps(config: RunConfig, examples: int | None) -> int | None:
    settings = config.training
    if settings.steps is not None:
        return settings.steps
    if examples is None:
        return None
    return math.ceil(settings.epochs * math.ceil(settings.share * examples) / (settings.batch * settings.accumulate))
