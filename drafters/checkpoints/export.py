"""A drafter in a layout that others read: a folder that appears whole or not at all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from analysis.errors import DataError, UsageError
from analysis.runlog.addresses import MANIFEST, resolve
from analysis.runlog.reading import read_manifest
from analysis.runlog.writing import write_atomic
from drafters.axes import DrafterConfig
from drafters.checkpoints.family import whole_predecessors
from drafters.checkpoints.folder import load_drafter, state_tensors
from drafters.checkpoints.layouts import Layout, angelslim_config, speculators_config, zlab_config
from drafters.checkpoints.readers import check_reader, readme
from drafters.checkpoints.run_files import FINAL
from drafters.model.drafter import Drafter
from drafters.model.folding import fold_constants
from drafters.model.fusion import GatedFusion
from drafters.model.head import Head
from drafters.target import smollm2
from drafters.target.frozen import Target


def fold_gate(drafter: Drafter) -> Drafter:
    """The ``concat`` drafter that is the same function: W_c^(l) g_l instead of W_c^(l) and g_l.

    Raises DataError for a gate that reads the token, which no constant can stand for, and for no gate at all.
    """
    fusion, config = drafter.fusion, drafter.config
    if not isinstance(fusion, GatedFusion):
        raise DataError(f"--fold-gate: a {config.fusion} drafter has no gate before a projection")
    if fusion.gate.reads_state:
        raise DataError(
            "--fold-gate: this gate changes from token to token, and no projection can take its place; "
            "train with gate_input: none, or export it as it is"
        )
    shape = len(config.target_layer_ids), config.hidden_size
    return fold_constants(drafter, fusion.gate(torch.zeros(shape, device=fusion.fc.weight.device)).detach())


def without_draft_vocabulary(drafter: Drafter) -> Drafter:
    """The same weights, drafting from the target's whole vocabulary."""
    if drafter.config.selection != "argmax":
        raise DataError(
            f"--full-head: the tables of selection {drafter.config.selection} have the draft vocabulary alone"
        )
    whole = Drafter(drafter.config.model_copy(update={"draft_vocab": None}))
    whole.load_state_dict(drafter.state_dict())
    return whole.eval()


def export(
    drafter: Drafter,
    folder: Path,
    layout: Layout,
    target: Target | None = None,
    verifier: str | None = None,
    *,
    dtype: str = "float32",
) -> None:
    """Write ``drafter`` to ``folder``, which appears whole or not at all; its tensors in ``dtype``.

    ``target`` gives what the layout keeps of it (see :func:`wants_target`); ``verifier`` says where it is to be
    found (default: its id). Raises DataError for a folder that holds something, a target of other shapes, and a
    drafter that the layout has no place for.
    """
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise DataError(f"{folder}: not empty; choose another folder")
    config, tensors = drafter.config, state_tensors(drafter)
    if config.prompt_tokens:
        raise DataError(
            f"{folder}: this drafter also predicts the tokens of each prompt (prompt_tokens), which no map of a draft "
            "vocabulary can say; train one with a larger draft_vocab instead"
        )
    if target is not None:
        shapes = (config.vocab_size, config.hidden_size, config.num_target_layers or target.num_layers)
        if (target.vocab_size, target.hidden_size, target.num_layers) != shapes:
            raise DataError(f"target '{target.id}' has other shapes than this drafter's target")
        config = config.model_copy(update={"num_target_layers": target.num_layers})
        if layout == "speculators" or config.draft_vocab is not None:
            tensors["lm_head.weight"] = _plain(Head(target, config).weight)
    if layout == "zlab":
        data = zlab_config(config, dtype)
    elif layout == "angelslim":
        data = angelslim_config(config, dtype)
    else:
        assert target is not None, "see wants_target"
        data = speculators_config(config, verifier or target.id, [type(target.model).__name__], dtype)
        whole_predecessors(tensors, config.draft_vocab, config.vocab_size)
        tensors["embed_tokens.weight"] = _plain(target.embed(torch.arange(config.vocab_size, device=target.device)))
        if config.draft_vocab is not None:
            tensors["t2d"] = torch.zeros(config.vocab_size, dtype=torch.bool)
            tensors["t2d"][list(config.draft_vocab)] = True
    typed = {name: t.to(getattr(torch, dtype)) if t.is_floating_point() else t for name, t in tensors.items()}
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    write_atomic(temporary / "config.json", json.dumps(data, indent=2) + "\n")
    write_atomic(temporary / "README.md", readme(layout, config, target.id if target else None))
    save_file(typed, temporary / "model.safetensors", metadata={"format": "pt"})
    if folder.is_dir():
        folder.rmdir()
    temporary.rename(folder)


def wants_target(config: DrafterConfig, layout: Layout) -> bool:
    """Whether an export holds something of the target: its embedding and head, the rows of a draft vocabulary, or the
    number of its layers, where the checkpoint does not say that."""
    return layout == "speculators" or config.draft_vocab is not None or config.num_target_layers is None


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().float().cpu().contiguous()


def _checkpoint(reference: str) -> tuple[Path, Any]:
    """Checkpoint folder of a run, with the run's manifest; or the folder itself and None."""
    folder = Path(resolve(reference))
    if (folder / MANIFEST).exists():
        return folder / "checkpoints" / FINAL, read_manifest(str(folder))
    return folder, None


def _find_target(reference: str | None, manifest: Any) -> tuple[Target, str]:
    """The target and how it is found. Raises UsageError if nothing names it, DataError if it is another one."""
    trained = manifest.training.settings if manifest and manifest.training else {}
    reference = reference or trained.get("target")
    if reference is None:
        raise UsageError("this export holds parts of the target; name it with --target")
    target = Target.of_run({**trained, "target": reference})
    known = manifest.target.sha256 if manifest and manifest.target else None
    if known is not None and target.info().sha256 != known:
        raise DataError(f"target '{reference}' is not the one that this run was trained for: its weights differ")
    return target, _resolvable(reference)


def _resolvable(reference: str) -> str:
    """A path or hub id that other tools find too."""
    if reference == smollm2.NAME:
        return str(smollm2.converted_folder())
    return str(Path(reference).resolve()) if Path(reference).is_dir() else reference


def export_run(
    reference: str,
    folder: Path,
    layout: Layout,
    *,
    target: str | None = None,
    fold: bool = False,
    full_head: bool = False,
    reader: str | None = None,
) -> Drafter:
    """Export the drafter of a run or checkpoint folder (see :func:`main`); returns what was written."""
    checkpoint, manifest = _checkpoint(reference)
    drafter = load_drafter(checkpoint)
    if fold:
        drafter = fold_gate(drafter)
    if full_head:
        drafter = without_draft_vocabulary(drafter)
    # refused before the target is loaded, if it must be
    if layout == "speculators":
        speculators_config(drafter.config, "", [])
    elif layout == "angelslim":
        angelslim_config(drafter.config)
    if reader is not None:
        check_reader(reader, layout, drafter.config)
    trained = manifest.training.settings if manifest and manifest.training else {}
    found = _find_target(target, manifest) if wants_target(drafter.config, layout) else ()
    export(drafter, folder, layout, *found, dtype=trained.get("target_dtype", "float32"))
    return drafter
