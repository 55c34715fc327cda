"""Small drafter configurations for tests."""

from typing import Any

from drafters.axes import DrafterConfig


def drafter_config(**changes: Any) -> DrafterConfig:
    """Two layers, three target layers, grouped heads, block of 6."""
    fields: dict[str, Any] = {
        "num_layers": 2,
        "target_layer_ids": (1, 3, 4),
        "block_size": 6,
        "mask_token_id": 50,
        "num_target_layers": 8,
        "vocab_size": 53,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }
    return DrafterConfig(**(fields | changes))
