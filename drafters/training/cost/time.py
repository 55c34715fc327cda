"""Seconds of an optimizer step: operations at the device's rate plus memory traffic at its bandwidth.

    step = micro-batches x (operations / rate + traffic / bandwidth) + 48 P / bandwidth

Matrix products are counted as 2 operations a multiplication. What is not a matrix product is bound by memory: each
pass over a tensor, read or written, is counted once. Nothing overlaps, and nothing stays in a cache; the ranks'
communication, which overlaps with the backward pass, and the reading of stored features from disk are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from drafters.axes import DrafterConfig
from drafters.model.drafter import SCORE_LIMIT
from drafters.training.cost.devices import Device
from drafters.training.cost.memory import attention_scores
from drafters.training.cost.shapes import Sizes, StepShape
from drafters.training.losses import LOGIT_ROWS


@dataclass(frozen=True)
class Work:
    """Of one forward and backward pass: operations of the drafter's layers, of the output head and of the target, and
    bytes of traffic beside the matrix products."""

    drafter: float
    head: float
    target: float
    traffic: float
    update: float  # bytes of traffic of the optimizer, once in a step

    @property
    def operations(self) -> float:
        """Of all matrix products."""
        return self.drafter + self.head + self.target


@dataclass(frozen=True)
class StepTime:
    """Seconds of an optimizer step of one rank."""

    products: float
    traffic: float

    @property
    def total(self) -> float:
        """Their sum."""
        return self.products + self.traffic


def work(
    config: DrafterConfig, size: Sizes, step: StepShape, *, width: int, target_bytes: int, online: bool, distill: str
) -> Work:
    """What a micro-batch takes. ``width``: bytes of a matrix product's inputs."""
    return Work(
        drafter=_layers(config, step) + _attention(config, step),
        head=_head(config, step, distill),
        target=_target(size, step) if online else 0.0,
        traffic=_traffic(config, size, step, width) + (target_bytes * size.target if online else 0.0),
        update=48.0 * size.drafter["total"],
    )


def step_time(done: Work, step: StepShape, device: Device) -> StepTime:
    """Seconds of an optimizer step of one rank on ``device``."""
    passes = step.micro_batches
    return StepTime(
        products=passes * done.operations / device.flops,
        traffic=(passes * done.traffic + done.update) / device.bandwidth,
    )


def _layers(config: DrafterConfig, step: StepShape) -> float:
    """6 operations a weight and token, forward and backward: 6 M (2 H h d + 2 H k d + 3 H I) and 6 R 2 H k d a layer.

    The projection of the fusion has 4 R T H H, since the states need no gradient (6 where they are gated, since the
    gate does), a layer-wise one 4 R D T H.
    """
    hidden, layers = config.hidden_size, config.num_layers
    heads, keys = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    slot = 2 * hidden * (heads + keys) + 3 * hidden * config.intermediate_size
    if config.mixing == "conv":
        slot += 2 * 2 * hidden * config.conv_kernel_size * hidden // config.conv_group_size
    sources = len(config.target_layer_ids)
    projected = config.fusion in ("concat", "gated")
    fusion = (6 if config.fusion == "gated" else 4) * step.rows * sources * hidden * (hidden if projected else layers)
    return 6.0 * layers * (step.slots * slot + step.rows * 2 * hidden * keys) + fusion


def _attention(config: DrafterConfig, step: StepShape) -> float:
    """12 M h (S + B) d a layer: two products forward, four backward; 16 where the scores are made again."""
    scores = attention_scores(config, step)
    return config.num_layers * (12.0 if scores <= SCORE_LIMIT else 16.0) * scores * config.head_dim


def _head(config: DrafterConfig, step: StepShape, distill: str) -> float:
    """4 n H V', since the head has no gradient; 6 where logits are made again, and 2 or 4 for the target's own.

    A Markov head has 6 n r V' (8), a path selector's projection 8 n H r, as it scores twice.
    """
    again = 0.0 if step.supervised <= LOGIT_ROWS else 2.0
    times = 4.0 + again
    if distill != "none" or config.confidence == "head":
        times += 2.0 + again
    found = times * step.supervised * config.hidden_size * step.vocabulary
    if config.selection.startswith("markov"):
        found += (6.0 + again) * step.supervised * config.selection_rank * step.vocabulary
    if config.selection == "path":
        found += 8.0 * step.supervised * config.hidden_size * config.selection_rank
    return found


def _target(size: Sizes, step: StepShape) -> float:
    """2 operations a weight of its layers and token; its attention's scores are left out."""
    return 2.0 * step.rows * (size.target - size.embedding - size.head)


def _traffic(config: DrafterConfig, size: Sizes, step: StepShape, width: int) -> float:
    """Passes over tensors, forward and backward together: 24 over the attention scores, 14 over the logits (20 where
    they are made again), 45 over M H in a layer and 45 over its queries and keys, 22 over M I, 30 over the context's
    keys, 12 over R T H features, 6 over R H of each fused view, 5 over the weights (and 1 more for their gradients)."""
    hidden, layers = config.hidden_size, config.num_layers
    heads, keys = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    logits = 14 if step.supervised <= LOGIT_ROWS else 20
    views = 1 if config.fusion in ("concat", "gated") else layers
    in_layer = 45 * 4 * step.slots * (hidden + heads + keys) + 22 * width * step.slots * config.intermediate_size
    in_layer += 24 * 4 * attention_scores(config, step) + 30 * 4 * step.rows * keys
    if config.mixing == "conv":
        in_layer += 4 * 4 * 8 * config.conv_kernel_size * step.slots * hidden
    found = layers * in_layer + logits * 4 * step.supervised * step.vocabulary
    found += 12 * 4 * step.rows * len(config.target_layer_ids) * hidden + 24 * 4 * views * step.rows * hidden
    return float(found + 6 * 4 * size.drafter["total"])
