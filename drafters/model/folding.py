"""Folding constant gates into the projection: W_c^(l) g_l instead of W_c^(l) and g_l."""

from __future__ import annotations

import torch

from drafters.model.drafter import Drafter


def fold_constants(drafter: Drafter, gate: torch.Tensor) -> Drafter:
    """The ``concat`` drafter in which target layer l's part of the projection of a gated ``drafter`` is scaled by
    gate[l] ([T]), in eval mode."""
    config = drafter.config
    folded = Drafter(config.model_copy(update={"fusion": "concat"}))
    weights = dict(drafter.named_parameters())
    shape = len(config.target_layer_ids), config.hidden_size
    with torch.no_grad():
        for name, parameter in folded.named_parameters():
            parameter.copy_(weights[name])
        folded.fusion.get_parameter("fc.weight").unflatten(1, shape).mul_(gate[:, None])
    return folded.eval()
