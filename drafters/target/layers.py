"""Ids of the target layers whose hidden states a drafter reads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from analysis.errors import DataError


def default_layer_ids(num_layers: int, count: int) -> list[int]:
    """``count`` layer ids spread evenly from 1 to L-3, as published DFlash checkpoints choose them.

    ids[i] = round(1 + i (L-4)/(count-1)), halves to the even number; a single id is L//2.
    """
    steps = count - 1
    ids = [round(1 + i * (num_layers - 4) / steps) for i in range(count)] if steps else [num_layers // 2]
    check_layer_ids(ids, num_layers)
    return ids


def check_layer_ids(layer_ids: Sequence[int], num_layers: int) -> None:
    """Raise DataError unless the 0-based ids ascend without duplicates within 0..L-2."""
    shown = f"target layer ids {list(layer_ids)}"
    if any(later <= earlier for earlier, later in pairwise(layer_ids)):
        raise DataError(f"{shown}: they must ascend, without duplicates (the last one feeds the gate)")
    for layer in layer_ids:
        if layer == num_layers - 1:
            raise DataError(
                f"{shown}: {layer} is the last of {num_layers} layers, and what transformers calls its hidden state "
                f"is taken after the final norm, unlike all others; the last usable id is {num_layers - 2}"
            )
        if not 0 <= layer < num_layers:
            raise DataError(f"{shown}: {layer} is outside 0..{num_layers - 2} (the target has {num_layers} layers)")
