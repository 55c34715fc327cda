"""Start a drafter from the weights of another, where it can be the same function at first.

From DFlash (``concat``, shared projections) that is: the same; a gate that starts at 1; the context's projections as
copies of the block's; local convolutions and a selection, which start as nothing; a confidence head, which changes no
token; and all of these.
A layer-wise fusion cannot start from ``concat``: D x T scalars cannot stand for a
projection that mixes coordinates. It starts from ``layerwise``.
"""

from __future__ import annotations

import torch

from analysis.errors import DataError
from drafters.axes import DrafterAxes
from drafters.model.drafter import HEADS, Drafter
from drafters.model.fusion import GatedFusion

# what may differ: axes, which are asked tensor by tensor, and what no weight depends on
_FREE = {*DrafterAxes.model_fields, "block_size", "draft_vocab", "num_target_layers", "max_position_embeddings"}


def warm_start(drafter: Drafter, source: Drafter) -> None:
    """Copy the weights of ``source`` into ``drafter``, which is the same function afterwards.

    Raises DataError if it could not be, naming what stands in the way.
    """
    ours, theirs = drafter.config, source.config
    differ = [n for n in type(ours).model_fields if n not in _FREE and getattr(ours, n) != getattr(theirs, n)]
    layerwise = ours.fusion.startswith("layerwise") and theirs.fusion.startswith("layerwise")
    if layerwise and ours.fusion_norm != theirs.fusion_norm:
        differ.append("fusion_norm")
    if theirs.selection != "argmax":  # its tables have a row for each token of the vocabulary
        differ += [n for n in ("selection", "draft_vocab") if getattr(ours, n) != getattr(theirs, n)]
    if ours.fusion == theirs.fusion == "gated":
        differ += [n for n in ("gate_activation", "gate_input") if getattr(ours, n) != getattr(theirs, n)]
    if differ:
        raise DataError(f"init_from: the checkpoint has another {', '.join(differ)}, so its weights cannot be used")
    given = dict(source.named_parameters())
    taken, made = {}, []
    for name, _ in drafter.named_parameters():
        origin = name if name in given else name.replace("_target.", ".")
        if origin in given:
            taken[name] = origin
        else:
            made.append(name)
    fusion = drafter.fusion
    if not (isinstance(fusion, GatedFusion) and not fusion.gate.starts_at_zero):
        made = [name for name in made if not name.startswith("fusion.gate.")]  # 0 at the start: changes nothing
    made = [name for name in made if "_conv." not in name and not name.startswith(HEADS)]  # nor do these
    unused = sorted(given.keys() - taken.values())
    if made or unused:
        lacks = f"has no {', '.join(made)}" if made else f"has {', '.join(unused)}, for which there is no place"
        raise DataError(
            f"init_from: a {ours.fusion} drafter with {ours.kv} kv cannot start as the checkpoint's {theirs.fusion} "
            f"drafter with {theirs.kv} kv: the checkpoint {lacks}"
        )
    if odd := [name for name, origin in taken.items() if drafter.get_parameter(name).shape != given[origin].shape]:
        raise DataError(f"init_from: {odd[0]} has another shape in the checkpoint")
    with torch.no_grad():
        for name, parameter in drafter.named_parameters():
            if name in taken:
                parameter.copy_(given[taken[name]])
