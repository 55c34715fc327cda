"""Drafter checkpoints, in the layout of the published DFlash drafters: ``config.json`` + safetensors.

A published checkpoint loads, and a ``concat`` drafter of ours is read by what reads those (drafters.checkpoints.layouts
has the layouts, drafters.export writes the others). A draft vocabulary is stored as ``d2t``, int64 *offsets*: target id
of row i = i + d2t[i].
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from analysis.errors import DataError
from analysis.runlog.writing import write_atomic
from drafters.checkpoints.family import own_predecessors
from drafters.checkpoints.layouts import parse_config, zlab_config
from drafters.model.drafter import Drafter

_FUSION_PREFIX = "fusion."  # our module path; the published names are flat (fc.weight, hidden_norm.weight)
# what other tools keep with a drafter: copies of the target's frozen parts, and the inverse of d2t
_OF_THE_TARGET = (
    *("lm_head.weight", "embed_tokens.weight", "verifier_lm_head.weight", "verifier_norm.weight"),
    *("d2t", "t2d"),
)


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
    """sha256 over the weights, name by name. ``backbone_only``: the draft layers and final norm alone, without
    projections of the context's own and convolutions: what arms of one seed share whatever their axes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state_tensors(drafter).items()):
        if backbone_only and ("_target." in name or "_conv." in name or not name.startswith(("layers.", "norm."))):
            continue
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def save_drafter(drafter: Drafter, folder: Path) -> None:
    """Write ``config.json`` and ``model.safetensors`` into an existing folder."""
    write_atomic(folder / "config.json", json.dumps(zlab_config(drafter.config), indent=2) + "\n")
    save_file(state_tensors(drafter), folder / "model.safetensors", metadata={"format": "pt"})


def load_drafter(folder: Path | str) -> Drafter:
    """A drafter from a checkpoint folder (ours, a published one, or one of speculators), in eval mode.

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
    vocab = _draft_vocab(data, tensors, f"{folder}/model.safetensors")
    for extra in _OF_THE_TARGET:  # ours come from the target
        tensors.pop(extra, None)
    own_predecessors(tensors, vocab, f"{folder}/model.safetensors")
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


def _draft_vocab(data: dict[str, Any], tensors: dict[str, torch.Tensor], where: str) -> tuple[int, ...] | None:
    """Target ids that the drafter predicts; None for all of them.

    ``d2t`` says them; the size in the configuration, ``t2d`` and the rows of ``lm_head`` must agree with it. Raises
    DataError otherwise: a wrong map loads, and every draft is rejected.
    """
    whole = (data.get("transformer_layer_config") or data).get("vocab_size")
    if whole is None:
        raise DataError(f"{where}: its config.json has no vocab_size")
    size = data.get("draft_vocab_size", whole)
    offsets, flags, head = (tensors.get(name) for name in ("d2t", "t2d", "lm_head.weight"))
    if (whole if offsets is None else len(offsets)) != size:
        said = "there is no d2t" if offsets is None else f"d2t has {len(offsets)} entries"
        raise DataError(
            f"{where}: draft_vocab_size is {size} of {whole}, but {said}: which tokens those are is unknown"
        )
    ids = torch.arange(size) if offsets is None else offsets.long() + torch.arange(len(offsets))
    if not (int(ids[0]) >= 0 and int(ids[-1]) < whole and bool((ids.diff() > 0).all())):
        raise DataError(f"{where}: d2t does not give ascending token ids within 0..{whole - 1}")
    if flags is not None and (len(flags) != whole or not torch.equal(flags.bool().nonzero()[:, 0], ids)):
        raise DataError(f"{where}: t2d and d2t name different tokens; write the checkpoint again with its own tool")
    if head is not None and len(head) != size:
        raise DataError(f"{where}: lm_head.weight has {len(head)} rows for a draft vocabulary of {size}")
    return None if offsets is None or size == whole else tuple(ids.tolist())


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
        # the step count too: a fused optimizer reads it where it computes
        optimizer.state[parameters[name]][moment] = value.to(parameters[name].device)
    return json.loads((folder / "state.json").read_text(encoding="utf-8"))
