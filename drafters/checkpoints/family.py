"""What DFlash2 and DSpark checkpoints say beyond DFlash, in the published fields and tensors.

Read in the public code (speculators 0.9, vLLM 0.32) and in published files: DFlash2 is local convolution with a path
selector over the whole vocabulary, DSpark a Markov head, a confidence head, or both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch

from analysis.errors import DataError
from drafters.axes import DrafterAxes

Family = Literal["dflash", "dflash2", "dspark"]
DFLASH2 = "DFlash2DraftModel"
#: Algorithm of the speculators layout to the name of its class.
SPECULATORS: dict[Family, str] = {"dflash": "DFlashSpeculator", "dflash2": DFLASH2, "dspark": "DSparkSpeculator"}
_HEADS = {"markov": "vanilla", "markov_gated": "gated"}
_W1 = "markov_head.markov_w1.weight"


def family_of(config: DrafterAxes) -> Family | None:
    """Which published drafter these axes are; None for one of our own."""
    if (config.fusion, config.kv) != ("concat", "shared"):
        return None
    if config.mixing == "none" and config.selection != "path":
        return "dflash" if config.selection == "argmax" and config.confidence == "none" else "dspark"
    return "dflash2" if (config.mixing, config.selection, config.confidence) == ("conv", "path", "none") else None


def dflash2_fields(config: DrafterAxes) -> dict[str, Any]:
    """The fields of DFlash2, as published."""
    return {
        "conv_kernel_size": config.conv_kernel_size,
        "conv_group_size": config.conv_group_size,
        "selector_rank": config.selection_rank,
        "selector_top_k": config.selection_top_k,
    }


def read_dflash2(data: Mapping[str, Any]) -> dict[str, Any]:
    """Axes from :func:`dflash2_fields`. Raises KeyError for a field that is missing."""
    return {
        "mixing": "conv",
        "selection": "path",
        "conv_kernel_size": data["conv_kernel_size"],
        "conv_group_size": data["conv_group_size"],
        "selection_rank": data["selector_rank"],
        "selection_top_k": data["selector_top_k"],
    }


def dspark_fields(config: DrafterAxes) -> dict[str, Any]:
    """The fields of DSpark, as speculators writes them."""
    markov = config.selection in _HEADS
    return {
        "markov_rank": config.selection_rank if markov else 0,
        "markov_head_type": _HEADS.get(config.selection, "vanilla"),
        "enable_confidence_head": config.confidence == "head",
        "confidence_head_with_markov": config.confidence == "head" and markov,
    }


def read_dspark(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Axes from :func:`dspark_fields`. Raises DataError for a head that is not supported."""
    rank, kind = data.get("markov_rank", 256), data.get("markov_head_type", "vanilla")
    names = {public: ours for ours, public in _HEADS.items()}
    if rank and kind not in names:
        raise DataError(f"{where}: markov_head_type {kind!r} is not supported; it must be {' or '.join(names)}")
    confidence = data.get("enable_confidence_head", True)
    if confidence and rank and not data.get("confidence_head_with_markov", True):
        raise DataError(f"{where}: confidence_head_with_markov: false beside a Markov head is not supported")
    return {
        "selection": names[kind] if rank else "argmax",
        "confidence": "head" if confidence else "none",
        **({"selection_rank": rank} if rank else {}),
    }


def whole_predecessors(tensors: dict[str, torch.Tensor], vocabulary: tuple[int, ...] | None, size: int) -> None:
    """Give the Markov head a row for each of the target's ``size`` tokens, as published: 0 outside the vocabulary."""
    if vocabulary is not None and _W1 in tensors:
        rows = tensors[_W1]
        tensors[_W1] = rows.new_zeros(size, rows.shape[1])
        tensors[_W1][list(vocabulary)] = rows


def own_predecessors(tensors: dict[str, torch.Tensor], vocabulary: tuple[int, ...] | None, where: str) -> None:
    """Keep of a published Markov head the rows of the draft vocabulary. Raises DataError if the others are not 0."""
    rows = tensors.get(_W1)
    if vocabulary is None or rows is None or len(rows) == len(vocabulary):
        return
    inside = torch.zeros(len(rows), dtype=torch.bool)
    inside[list(vocabulary)] = True
    if bool(rows[~inside].any()):
        raise DataError(f"{where}: its Markov head reads tokens outside the draft vocabulary, which is not supported")
    tensors[_W1] = rows[inside]
