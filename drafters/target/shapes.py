"""The shapes of targets, without their weights: of known ones from a table, of others from a local config.json.

The table holds what the published config.json of each model says (huggingface.co/<id>/blob/main/config.json); that of
``smollm2`` is HuggingFaceTB/SmolLM2-135M-Instruct's, whose weights the embedded file has.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.errors import DataError

if TYPE_CHECKING:  # importing transformers' configurations takes a second
    from transformers import PreTrainedConfig

_QWEN3: dict[str, Any] = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 40960,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}
KNOWN: dict[str, Mapping[str, Any]] = {
    "Qwen/Qwen3-4B": _QWEN3 | {"hidden_size": 2560, "intermediate_size": 9728, "tie_word_embeddings": True},
    "Qwen/Qwen3-8B": _QWEN3 | {"hidden_size": 4096, "intermediate_size": 12288, "tie_word_embeddings": False},
    "smollm2": {
        "model_type": "llama",
        "num_hidden_layers": 30,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "vocab_size": 49152,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e5},
    },
}


def target_config(reference: str) -> PreTrainedConfig:
    """The text configuration of a known target, a model folder, or a hub model whose config.json was fetched before.

    Nothing is fetched. Raises DataError where the shapes are not known.
    """
    from transformers import AutoConfig

    if reference in KNOWN:
        fields = dict(KNOWN[reference])
        return AutoConfig.for_model(fields.pop("model_type"), **fields)
    try:
        return AutoConfig.from_pretrained(reference, local_files_only=True).get_text_config(decoder=True)
    except (OSError, ValueError) as error:
        what = "no config.json that can be read" if Path(reference).is_dir() else "no such folder or known model"
        raise DataError(
            f"target '{reference}': {what}; its shapes are read from a folder with a config.json, and known for "
            f"{', '.join(KNOWN)}"
        ) from error


def count_parameters(config: PreTrainedConfig) -> int:
    """Parameters of a target, tied ones once: the model is made without storage and counted."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())
