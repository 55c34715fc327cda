"""Drafter checkpoints, in the layout of the published DFlash drafters: ``config.json`` + safetensors.

A published checkpoint loads, and a ``concat`` drafter of ours is read by what reads those. Every other
fusion carries an architecture name of its own (starting with ``DFlash``): an engine that overlooked
``gate.weight`` would serve a different model without a word. Layer ids are stored and never recomputed.
A draft vocabulary is stored as ``d2t``, int64 *offsets*: target id of row i = i + d2t[i].
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from analysis.errors import DataError
from analysis.runlog import write_atomic
from drafters.config import DrafterConfig
from drafters.model import Drafter

ARCHITECTURES = {"concat": "DFlashDraftModel", "gated": "DFlashGatedDraftModel"}
# in config.json the published fields keep their published names; what only our fusions have is added
_SHAPES = (
    *("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("rms_norm_eps", "attention_bias", "vocab_size", "max_position_embeddings"),
)
_FUSION_FIELDS = ("fusion", "gate_activation", "gate_input")
_FUSION_PREFIX = "fusion."  # our module path; the published names are flat (fc.weight, hidden_norm.weight)


def published_config(config: DrafterConfig) -> dict[str, Any]:
    """``config.json`` of a drafter."""
    method: dict[str, Any] = {
        "mask_token_id": config.mask_token_id,
        "target_layer_ids": list(config.target_layer_ids),
    }
    if config.fusion != "concat":
        method |= {name: getattr(config, name) for name in _FUSION_FIELDS}
    data: dict[str, Any] = {
        "architectures": [ARCHITECTURES[config.fusion]],
        "model_type": "qwen3",
        "block_size": config.block_size,
        "dflash_config": method,
        "num_target_layers": config.num_target_layers,
        "num_hidden_layers": config.num_layers,
        "layer_types": ["full_attention"] * config.num_layers,
        **{name: getattr(config, name) for name in _SHAPES},
        "hidden_act": "silu",
        "rope_parameters": config.rope_parameters,
        "tie_word_embeddings": False,
        "dtype": "float32",
    }
    if "rope_theta" in config.rope_parameters:
        data["rope_theta"] = config.rope_parameters["rope_theta"]  # where older readers look
    if config.draft_vocab is not None:
        data["draft_vocab_size"] = len(config.draft_vocab)
    return data


def parse_config(data: dict[str, Any], where: str, draft_vocab: tuple[int, ...] | None = None) -> DrafterConfig:
    """A DrafterConfig from ``config.json``. Raises DataError naming what is missing or not supported."""
    method = data.get("dflash_config") or {}
    if (architecture := (data.get("architectures") or ["?"])[0]) not in ARCHITECTURES.values():
        raise DataError(f"{where}: architecture {architecture} is not one of {', '.join(ARCHITECTURES.values())}")
    if "target_layer_ids" not in method:
        raise DataError(f"{where}: no dflash_config.target_layer_ids; the layers it was trained on cannot be guessed")
    if any(kind != "full_attention" for kind in data.get("layer_types") or ()):
        raise DataError(f"{where}: sliding-window draft layers are not supported")
    fields = {name: data[name] for name in _SHAPES if name in data}
    fields |= {name: method[name] for name in _FUSION_FIELDS if name in method}
    rope = data.get("rope_parameters") or {"rope_type": "default", "rope_theta": data.get("rope_theta", 1e6)}
    if data.get("rope_scaling"):
        rope = {**data["rope_scaling"], "rope_theta": rope.get("rope_theta")}
    try:
        return DrafterConfig(
            **fields,
            num_layers=data["num_hidden_layers"],
            target_layer_ids=tuple(method["target_layer_ids"]),
            block_size=data.get("block_size") or method["block_size"],
            mask_token_id=method["mask_token_id"],
            num_target_layers=data["num_target_layers"],
            rope_parameters=rope,
            draft_vocab=draft_vocab,
        )
    except KeyError as error:
        raise DataError(f"{where}: no field {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def state_tensors(drafter: Drafter) -> dict[str, torch.Tensor]:
    """The weights under their published names, fp32 on the CPU, with ``d2t`` for a draft vocabulary."""
    tensors = {
        name.removeprefix(_FUSION_PREFIX): parameter.detach().float().cpu().contiguous()
        for name, parameter in drafter.named_parameters()
    }
    if (vocab := drafter.config.draft_vocab) is not None:
        tensors["d2t"] = torch.tensor(vocab) - torch.arange(len(vocab))
    return tensors


def weights_sha256(drafter: Drafter, *, backbone_only: bool = False) -> str:
    """sha256 over the weights, name by name. ``backbone_only``: the draft layers and final norm alone, which
    arms of one seed share whatever their fusion."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state_tensors(drafter).items()):
        if backbone_only and not name.startswith(("layers.", "norm.")):
            continue
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def save_drafter(drafter: Drafter, folder: Path) -> None:
    """Write ``config.json`` and ``model.safetensors`` into an existing folder."""
    write_atomic(folder / "config.json", json.dumps(published_config(drafter.config), indent=2) + "\n")
    save_file(state_tensors(drafter), folder / "model.safetensors", metadata={"format": "pt"})


def load_drafter(folder: Path | str) -> Drafter:
    """A drafter from a checkpoint folder (ours, or a published one), in eval mode.

    Raises DataError for missing files, unknown architectures and tensors that do not fit.
    """
    folder = Path(folder)
    try:
        data = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        tensors = load_file(folder / "model.safetensors")
    except FileNotFoundError as error:
        raise DataError(f"{folder}: no {Path(error.filename or 'model.safetensors').name}; not a checkpoint") from error
    except (json.JSONDecodeError, SafetensorError) as error:
        raise DataError(f"{folder}: damaged checkpoint ({error})") from error
    vocab = None
    if (offsets := tensors.pop("d2t", None)) is not None:
        vocab = tuple((offsets + torch.arange(len(offsets))).tolist())
    # copies of the target's frozen head and embedding, which some writers add; ours come from the target
    for extra in ("lm_head.weight", "embed_tokens.weight"):
        tensors.pop(extra, None)
    drafter = Drafter(parse_config(data, f"{folder}/config.json", vocab))
    wanted = {name.removeprefix(_FUSION_PREFIX): name for name, _ in drafter.named_parameters()}
    if tensors.keys() != wanted.keys():
        missing, unknown = sorted(wanted.keys() - tensors.keys()), sorted(tensors.keys() - wanted.keys())
        raise DataError(f"{folder}/model.safetensors: missing {missing or 'nothing'}, unknown {unknown or 'nothing'}")
    try:
        drafter.load_state_dict({wanted[name]: tensor.float() for name, tensor in tensors.items()})
    except RuntimeError as error:
        raise DataError(f"{folder}/model.safetensors: {' '.join(str(error).split())}") from error
    return drafter.eval()


def save_training_state(
    folder: Path, drafter: Drafter, optimizer: torch.optim.Optimizer, state: dict[str, Any]
) -> None:
    """Weights, optimizer moments and ``state`` (JSON) as ``folder``, which appears whole or not at all."""
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    save_drafter(drafter, temporary)
    moments = {
        f"{name}:{key}": value.detach().cpu().contiguous()
        for name, parameter in drafter.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }
    save_file(moments, temporary / "optimizer.safetensors")
    write_atomic(temporary / "state.json", json.dumps(state, indent=2) + "\n")
    temporary.rename(folder)


def load_training_state(folder: Path, drafter: Drafter, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Restore what :func:`save_training_state` wrote into ``drafter`` and ``optimizer``; returns its state."""
    drafter.load_state_dict(load_drafter(folder).state_dict())
    moments = load_file(folder / "optimizer.safetensors")
    parameters = dict(drafter.named_parameters())
    for key, value in moments.items():
        name, _, moment = key.rpartition(":")
        place = value if moment == "step" else value.to(parameters[name].device)
        optimizer.state[parameters[name]][moment] = place
    return json.loads((folder / "state.json").read_text(encoding="utf-8"))
