"""Rotary position embedding: frequencies, and the rotation of queries and keys."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding


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
