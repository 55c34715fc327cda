"""Spikes of a training's loss: steps far above what the steps before them had."""

from __future__ import annotations

import numpy as np

WINDOW = 50  # steps before
LEAST = 20  # of them with a loss
#: Standard deviations, estimated as 1.4826 MAD: of normal noise one in a billion is that far above.
DEVIATIONS = 6.0


def spikes(losses: np.ndarray) -> np.ndarray:
    """Bool [n]: which of a training's losses [n], in order of steps, are spikes. NaN: a step without a loss.

    A spike is above median + 6 x 1.4826 MAD of the 50 losses before it. None is where fewer than 20 of them are there,
    or half of them are equal (MAD 0). A loss that is not finite is no spike: a training stops there.
    """
    losses = np.asarray(losses, dtype=float)
    found = np.zeros(len(losses), dtype=bool)
    finite = np.where(np.isfinite(losses), losses, np.nan)
    before = np.lib.stride_tricks.sliding_window_view(np.r_[np.full(WINDOW, np.nan), finite], WINDOW)[:-1]
    known = np.isfinite(before).sum(1) >= LEAST
    if known.any():
        windows = before[known]
        middle = np.nanmedian(windows, axis=1)
        deviation = 1.4826 * np.nanmedian(np.abs(windows - middle[:, None]), axis=1)
        found[known] = (deviation > 0) & (finite[known] > middle + DEVIATIONS * deviation)
    return found
