"""The mean of a gate over the training corpus, kept beside the weights for the control that freezes the gate."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import torch

from analysis.runlog.writing import write_atomic
from drafters.model.fusion import Fusion, GatedFusion

MEAN_GATE = "mean_gate.json"  # beside the final weights: the gate's mean over all tokens of the training corpus


def save_mean_gate(fusion: Fusion, features: Iterable[torch.Tensor], folder: Path) -> None:
    """Write the mean gate over all tokens of ``features`` ([n, T, H] each), if the fusion has one that moves."""
    if not (isinstance(fusion, GatedFusion) and fusion.gate.reads_state):
        return
    device = fusion.fc.weight.device
    total, tokens = torch.zeros(fusion.gate.weight.shape[0], dtype=torch.float64), 0
    with torch.no_grad():
        for batch in features:
            # the gate reads the last of the target layers alone
            total += fusion.gate(batch[:, -1:].float().to(device)).double().sum(0).cpu()
            tokens += len(batch)
    write_atomic(folder / MEAN_GATE, json.dumps({"mean": (total / tokens).tolist(), "tokens": tokens}) + "\n")
