"""``config.json`` in the layouts that other tools read and write, to and from a DrafterConfig.

* *z-lab*, that of the published DFlash and DFlash2 drafters, is our own: one flat file with a ``dflash_config``. What
  only our drafters have is added there, under an architecture name of its own (starting with ``DFlash``): an engine
  that overlooked ``gate.weight`` or ``k_proj_target`` would serve a different model without a word.
* *speculators* (vllm-project/speculators): the layer's shapes nested, and layer ids counted as indices into
  transformers' ``hidden_states``, which is our 0-based id + 1. It has DFlash, DFlash2 and DSpark (see family).

Layer ids are stored and never recomputed. A public DFlare checkpoint (AngelSlim) is read as well.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ValidationError

from analysis.errors import DataError
from drafters.axes import DrafterAxes, DrafterConfig
from drafters.checkpoints.family import (
    DFLASH2,
    SPECULATORS,
    dflash2_fields,
    dspark_fields,
    family_of,
    read_dflash2,
    read_dspark,
)
from drafters.checkpoints.layer_fields import (
    DRAFTER_MUST_BE,
    MUST_BE,
    read_rope,
    refuse_others,
    refuse_windows,
    write_rope,
)

_SHAPES = (
    *("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("rms_norm_eps", "attention_bias", "vocab_size", "max_position_embeddings"),
)
_AXES = tuple(DrafterAxes.model_fields)
Layout = Literal["zlab", "speculators", "angelslim"]
PLAIN = "DFlashDraftModel"
_FUSION_NAMES = {"concat": "", "gated": "Gated", "layerwise": "Layerwise", "layerwise_gated": "LayerwiseGated"}
_SELECTION_NAMES = {"argmax": "", "path": "Path", "markov": "Markov", "markov_gated": "MarkovGated"}
_DFLARE = "QwenDFlareDraftModel"  # AngelSlim's; it states no fusion, being of one kind
_METHOD = {"mask_token_id", "target_layer_ids", "block_size", "prompt_tokens", *_AXES, *DRAFTER_MUST_BE}


def architecture(config: DrafterConfig) -> str:
    """The architecture name of a drafter: the published one for DFlash and DFlash2, which have the whole vocabulary."""
    published = family_of(config) == "dflash2" and config.draft_vocab is None
    return DFLASH2 if published else _name_of(config)


def _name_of(axes: DrafterAxes) -> str:
    parts = (
        _FUSION_NAMES[axes.fusion],
        "SeparateKV" if axes.kv == "separate" else "",
        "Conv" if axes.mixing == "conv" else "",
        _SELECTION_NAMES[axes.selection],
        "Confidence" if axes.confidence == "head" else "",
    )
    return f"DFlash{''.join(parts)}DraftModel"


def zlab_config(config: DrafterConfig, dtype: str = "float32") -> dict[str, Any]:
    """``config.json`` in the z-lab layout; ``dtype``: of the tensors beside it."""
    method: dict[str, Any] = {
        "mask_token_id": config.mask_token_id,
        "target_layer_ids": list(config.target_layer_ids),
    }
    if config.prompt_tokens:
        method["prompt_tokens"] = True
    if (name := architecture(config)) == DFLASH2:
        method |= dflash2_fields(config)
    elif name != PLAIN:
        method |= {axis: getattr(config, axis) for axis in _AXES}
    data = {
        "architectures": [architecture(config)],
        "block_size": config.block_size,
        "dflash_config": method,
        "num_target_layers": config.num_target_layers,
        **_layers(config, dtype),
    }
    if config.draft_vocab is not None:
        data["draft_vocab_size"] = len(config.draft_vocab)
    return data


def angelslim_config(config: DrafterConfig, dtype: str = "float32") -> dict[str, Any]:
    """``config.json`` as AngelSlim writes that of a DFlare drafter.

    Raises DataError for any other drafter, and for a draft vocabulary: the layout has no place for them.
    """
    meant = {"fusion": "layerwise", "kv": "separate", "kv_norm": "shared", "fusion_norm": "after"}
    if other := [name for name, value in meant.items() if getattr(config, name) != value]:
        raise DataError(f"the angelslim layout is for DFlare; this drafter has {other[0]} {getattr(config, other[0])}")
    if config.draft_vocab is not None:
        raise DataError("the angelslim layout has no draft vocabulary; --full-head leaves it out")
    method = {"mask_token_id": config.mask_token_id, "target_layer_ids": list(config.target_layer_ids)}
    return zlab_config(config, dtype) | {"architectures": [_DFLARE], "dflash_config": method}


def speculators_config(
    config: DrafterConfig, verifier: str, verifier_architectures: list[str], dtype: str = "float32"
) -> dict[str, Any]:
    """``config.json`` in the speculators layout, for the target ``verifier`` (hub id or path).

    Raises DataError for a drafter that is not DFlash, DFlash2 or DSpark: the layout has no place for anything else.
    """
    algorithm = family_of(config)
    if algorithm is None:
        static = config.fusion == "gated" and config.gate_input == "none" and config.kv == "shared"
        cure = "--fold-gate folds its gate into the projection" if static else "export it as zlab"
        raise DataError(f"the speculators layout does not support {architecture(config)}; {cure}")
    if algorithm == "dflash2" and config.draft_vocab is not None:
        raise DataError("the speculators layout has no DFlash2 with a draft vocabulary; export it as zlab")
    proposal = {"proposal_type": "greedy", "speculative_tokens": config.block_size - 1, "verifier_accept_k": 1}
    return {
        "architectures": [SPECULATORS[algorithm]],
        "speculators_model_type": algorithm,
        **(dflash2_fields(config) if algorithm == "dflash2" else {}),
        **(dspark_fields(config) if algorithm == "dspark" else {}),
        "aux_hidden_state_layer_ids": [layer + 1 for layer in config.target_layer_ids],
        "block_size": config.block_size,
        "draft_vocab_size": config.vocab_size if config.draft_vocab is None else len(config.draft_vocab),
        "mask_token_id": config.mask_token_id,
        "sample_from_anchor": False,
        # read by vLLM 0.32 as the opposite of "every layer is causal", whatever the layers' windows
        "sliding_window_non_causal": True,
        "num_target_layers": config.num_target_layers,  # not of the layout, which keeps fields that it does not know
        "transformer_layer_config": _layers(config, dtype),
        "speculators_config": {
            "algorithm": algorithm,
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": {"name_or_path": verifier, "architectures": verifier_architectures},
        },
        "tie_word_embeddings": False,
        "dtype": dtype,
    }


def _layers(config: DrafterConfig, dtype: str) -> dict[str, Any]:
    return {
        "model_type": "qwen3",
        "num_hidden_layers": config.num_layers,
        "layer_types": ["full_attention"] * config.num_layers,
        **{name: getattr(config, name) for name in _SHAPES},
        "hidden_act": "silu",
        **write_rope(config.rope_parameters),
        "tie_word_embeddings": False,
        "dtype": dtype,
    }


def parse_config(data: dict[str, Any], where: str, draft_vocab: tuple[int, ...] | None = None) -> DrafterConfig:
    """A DrafterConfig from ``config.json`` of either layout.

    Raises DataError naming what is missing or not supported.
    """
    try:
        if "speculators_model_type" in data:
            layers, fields = _read_speculators(data, where)
        else:
            layers, fields = data, _read_zlab(data, where)
        refuse_others(layers, MUST_BE | DRAFTER_MUST_BE, where)
        refuse_others(data, DRAFTER_MUST_BE, where)
        refuse_windows(layers, where)
        config = DrafterConfig(
            **{name: layers[name] for name in _SHAPES if name in layers},
            **fields,
            num_layers=layers["num_hidden_layers"],
            num_target_layers=data.get("num_target_layers"),
            rope_parameters=read_rope(layers, where),
            draft_vocab=draft_vocab,
        )
    except KeyError as error:
        raise DataError(f"{where}: no field {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    return config


def _read_zlab(data: dict[str, Any], where: str) -> dict[str, Any]:
    method = data.get("dflash_config") or {}
    if "target_layer_ids" not in method:
        raise DataError(f"{where}: no dflash_config.target_layer_ids; the target layers of its training are unknown")
    name = (data.get("architectures") or ["?"])[0]
    axes: dict[str, Any] = {"fusion": "layerwise", "kv": "separate"} if name == _DFLARE else {}
    axes |= read_dflash2(method) if name == DFLASH2 else {key: method[key] for key in _AXES if key in method}
    if name not in (_DFLARE, DFLASH2, _name_of(DrafterAxes.model_validate(axes))):
        raise DataError(f"{where}: architecture {name} is unknown, or contradicts its dflash_config")
    refuse_others(method, DRAFTER_MUST_BE, f"{where}: dflash_config")
    # what a later drafter adds to the method, we would leave out
    known = {*_METHOD, *dflash2_fields(DrafterAxes())} if name == DFLASH2 else _METHOD
    if unknown := sorted(key for key, value in method.items() if value and key not in known):
        raise DataError(f"{where}: dflash_config.{unknown[0]} {method[unknown[0]]!r} is not supported")
    return axes | {
        "prompt_tokens": method.get("prompt_tokens", False),
        "target_layer_ids": tuple(method["target_layer_ids"]),
        "block_size": data.get("block_size") or method["block_size"],
        "mask_token_id": method["mask_token_id"],
    }


def _read_speculators(data: dict[str, Any], where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    kind = data["speculators_model_type"]
    if kind not in SPECULATORS:
        raise DataError(f"{where}: a {kind} speculator; supported are {', '.join(SPECULATORS)}")
    if data.get("sample_from_anchor", kind == "dspark"):
        raise DataError(f"{where}: this drafter samples from the anchor, which is not supported")
    axes = read_dflash2(data) if kind == "dflash2" else read_dspark(data, where) if kind == "dspark" else {}
    if data.get("aux_hidden_state_layer_ids") is None:
        raise DataError(f"{where}: no aux_hidden_state_layer_ids; the target layers of its training are unknown")
    if data.get("mask_token_id") is None:
        raise DataError(f"{where}: no mask_token_id")
    return data["transformer_layer_config"], {
        **axes,
        "target_layer_ids": tuple(layer - 1 for layer in data["aux_hidden_state_layer_ids"]),
        "block_size": data["block_size"],
        "mask_token_id": data["mask_token_id"],
    }
