"""The learning rate of a step, and the precision in which a device multiplies."""

from __future__ import annotations

import math

import torch


def learning_rate(step: int, steps: int, peak: float, warmup: float) -> float:
    """Linear warm-up over ``warmup`` of the steps to ``peak``, then cosine to 0; ``step`` from 0."""
    rising = round(warmup * steps)
    if step < rising:
        return peak * (step + 1) / rising
    return peak * 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))


def native_precision(device: str) -> str:
    """``bfloat16`` where the device multiplies it natively and so faster, else ``float32``.

    A CPU without AVX512-BF16 or AMX emulates it, several times slower than float32.
    """
    kind = torch.device(device).type
    if kind == "cpu":
        native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    else:
        native = kind == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if native else "float32"
