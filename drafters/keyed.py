"""Random numbers keyed by names instead of drawn from a shared stream.

What a key selects never depends on what was drawn before it: the same anchors, order and initial weights
whatever the batch size, accumulation, ranks, architecture or resume point. Only the raw bits of numpy's
Philox generator are used, which its authors keep stable over versions (the derived distributions they do not).
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def _digest(parts: tuple[object, ...], size: int) -> int:
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=size).digest(), "little")


def raw_words(count: int, *key: object) -> np.ndarray:
    """``count`` uint64 words of the counter-based stream of this key."""
    return np.random.Philox(key=_digest(key, 16)).random_raw(count)


def permutation(count: int, *key: object) -> np.ndarray:
    """A permutation of ``range(count)``, int64: the ranks of the key's words (ties, at 2^-64, by index)."""
    return np.argsort(raw_words(count, *key), kind="stable")


def torch_generator(*key: object, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator for torch's own distributions on ``device``, seeded by the key; another kind of device has other
    numbers for it."""
    return torch.Generator(device).manual_seed(_digest(key, 8) & (2**63 - 1))
