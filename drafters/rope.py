"""Rotary position embedding: which rotations a drafter can have, and their frequencies.

A drafter rotates as its target does: the same base, scaling and rotated part of each head. Scalings whose
frequencies depend on the length of the text (``dynamic``, ``longrope``) are refused, since a context key is rotated
once and kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

TYPES = ("default", "linear", "yarn", "llama3")
_FIELDS = {
    *("rope_type", "rope_theta", "partial_rotary_factor", "factor", "original_max_position_embeddings"),
    *("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),  # yarn
    *("low_freq_factor", "high_freq_factor"),  # llama3
}
# of models that see images: on text all sections have the same position, and the rotation is the ordinary one
_NOTHING_ON_TEXT = {"mrope_section", "mrope_interleaved"}


def rope_of(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Rope parameters in the present spelling, those of full attention where a model has several."""
    found = dict(parameters or {})
    if isinstance(found.get("full_attention"), Mapping):
        found = dict(found["full_attention"])
    kind = found.pop("type", None)  # older spelling
    found["rope_type"] = found.get("rope_type") or kind or "default"
    found.setdefault("rope_theta", 1e6)
    return {name: value for name, value in found.items() if value is not None and name not in _NOTHING_ON_TEXT}


def check_rope(parameters: Mapping[str, Any], head_dim: int) -> None:
    """Raise ValueError for a rotation that a drafter cannot have."""
    if (kind := parameters["rope_type"]) not in TYPES:
        raise ValueError(f"rope_type {kind} is not supported; supported: {', '.join(TYPES)}")
    if unknown := sorted(parameters.keys() - _FIELDS):
        raise ValueError(f"rope parameter {unknown[0]} is not supported")
    rotated = head_dim * parameters.get("partial_rotary_factor", 1.0)
    if not 2 <= rotated <= head_dim or int(rotated) % 2:
        raise ValueError(
            f"partial_rotary_factor {parameters['partial_rotary_factor']} rotates {rotated:g} of {head_dim} dimensions "
            f"of a head; an even number from 2 to {head_dim} is possible"
        )


def frequencies(config: Qwen3Config) -> tuple[torch.Tensor, float]:
    """Angular frequencies, fp32 [rotated dimensions / 2], and the factor on cos and sin."""
    parameters: dict[str, Any] = dict(config.rope_parameters or {})
    if parameters["rope_type"] == "default":
        assert config.head_dim is not None
        size = int(config.head_dim * parameters.get("partial_rotary_factor", 1.0))
        return 1.0 / (parameters["rope_theta"] ** (torch.arange(0, size, 2, dtype=torch.float) / size)), 1.0
    rope = Qwen3RotaryEmbedding(config)  # transformers knows the scalings
    return rope.inv_freq, rope.attention_scaling


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the first dimensions of x [..., head dim], as many as cos and sin have, in the half-split convention."""
    size = cos.shape[-1]
    rotated, rest = x[..., :size], x[..., size:]
    first, second = rotated.chunk(2, dim=-1)
    turned = (rotated * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)
    return torch.cat((turned, rest), dim=-1) if rest.shape[-1] else turned
