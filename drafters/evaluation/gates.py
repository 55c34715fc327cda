"""What the fusion of an arm does with each token: rows of the gates and gate_stats tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from analysis.runlog.schema import GATE_MOMENTS, GATE_QUANTITIES
from drafters.evaluation.arms import Arm
from drafters.keyed import permutation

GATE_TOKENS = 2  # tokens per prompt and role whose gates are kept one by one; all tokens enter the moments
GATE_SAMPLING = f"{GATE_TOKENS} tokens per prompt and role, drawn by a generator keyed by (prompt_id, role)"


def gate_rows(
    arm: Arm, features: torch.Tensor, first_position: int, role: str, key: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Sampled gate rows and moments over all tokens, for the tokens of one prompt and role.

    ``features`` [n, T, H] of the arm's layers. Both lists are empty for an arm without a projection.
    """
    found = arm.contributions(features)
    if found is None:
        return [], []
    values = {name: getattr(found, name).double().cpu().numpy() for name in GATE_QUANTITIES}  # each [n, T]
    gate = values["gate"]
    log_gate = np.log(gate, where=gate > 0, out=np.full_like(gate, np.nan))  # a gate may be 0 or negative
    values |= {"log_gate": log_gate, "log_ratio": log_gate - log_gate[:, -1:]}
    chosen = np.sort(permutation(len(features), "gates", key["prompt_id"], role)[:GATE_TOKENS])
    layers = [layer + 1 for layer in arm.layer_ids]  # as indices into hidden_states
    sampled = [
        {**key, "position": first_position + int(token), "role": role, "layer": layer}
        | {name: float(values[name][token, column]) for name in GATE_QUANTITIES}
        for token in chosen
        for column, layer in enumerate(layers)
    ]
    logs = {name: np.isfinite(values[name]) for name in ("log_gate", "log_ratio")}
    sums = {
        name: tuple(np.sum(x, axis=0, where=logs.get(name, True)) for x in (values[name], np.square(values[name])))
        for name in GATE_MOMENTS
    }
    moments = [
        {**key, "role": role, "layer": layer, "n": len(features)}
        | {"n_log": int(logs["log_ratio"][:, column].sum()), "n_log_gate": int(logs["log_gate"][:, column].sum())}
        | {f"{name}_sum": float(total[column]) for name, (total, _) in sums.items()}
        | {f"{name}_sumsq": float(square[column]) for name, (_, square) in sums.items()}
        for column, layer in enumerate(layers)
    ]
    return sampled, moments
