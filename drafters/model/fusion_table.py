"""What a trained layer-wise fusion does with each target layer, as rows of ``fusion.parquet``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from drafters.model.fusion import Fusion
from drafters.model.layerwise import LayerwiseFusion

EXAMPLES = 64  # the first of the training corpus: a few thousand tokens, of which all count


def fusion_rows(fusion: Fusion, layer_ids: Sequence[int], features: Iterable[torch.Tensor]) -> list[dict[str, Any]]:
    """One row per (draft layer, from 0; target layer, as index into hidden_states): means over all tokens of
    ``features``, [n, T, H] each, of weight, norm of the state and contribution share. Empty for another fusion."""
    if not isinstance(fusion, LayerwiseFusion):
        return []
    device = fusion.layer_fusion_weights.device
    shape = fusion.layer_fusion_weights.shape
    weights, shares = torch.zeros(2, *shape, dtype=torch.float64, device=device)
    norms, tokens = torch.zeros(shape[1], dtype=torch.float64, device=device), 0
    with torch.no_grad():
        for batch in features:
            states = batch.float().to(device)
            weights += fusion.weights(states).double().sum(0)
            shares += fusion.contribution_shares(states).double().sum(0)
            norms += states.norm(dim=-1).double().sum(0)
            tokens += len(states)
    return [
        {
            "draft_layer": draft,
            "target_layer": layer + 1,
            "weight": float(weights[draft, place] / tokens),
            "mean_feature_norm": float(norms[place] / tokens),
            "contribution_share": float(shares[draft, place] / tokens),
        }
        for draft in range(shape[0])
        for place, layer in enumerate(layer_ids)
    ]
