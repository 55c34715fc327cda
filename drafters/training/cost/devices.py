"""How fast a device is: published peaks of GPUs, or this CPU as a quick measurement finds it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

#: Share of the published peaks that training reaches: an assumption, not a measurement.
REACHED = 0.5
#: Of NVIDIA's data sheets, SXM versions: dense bfloat16 tensor cores, float32 without them, bytes per second, bytes.
PEAKS: dict[str, tuple[float, float, float, float]] = {
    "a100": (312e12, 19.5e12, 2.039e12, 80e9),
    "h100": (989e12, 67e12, 3.35e12, 80e9),
    "h200": (989e12, 67e12, 4.8e12, 141e9),
}
NAMES = ("cpu", *PEAKS)


@dataclass(frozen=True)
class Device:
    """Operations per second of matrix products, bytes per second of memory, bytes of it (None: not known), and where
    these numbers are from: ``measured``, ``published`` or ``given``."""

    name: str
    flops: float
    bandwidth: float
    memory: float | None
    source: str


def named_device(name: str, precision: str) -> Device:
    """A device of :data:`NAMES` for matrix products in ``precision``; ``cpu`` is measured, in about a second."""
    if name == "cpu":
        flops, bandwidth = measure_cpu(torch.bfloat16 if precision == "bfloat16" else torch.float32)
        return Device("cpu", flops, bandwidth, None, "measured")
    half, full, bandwidth, held = PEAKS[name]
    peak = half if precision == "bfloat16" else full
    return Device(name, REACHED * peak, REACHED * bandwidth, held, "published")


def measure_cpu(
    dtype: torch.dtype = torch.float32, seconds: float = 0.3, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, float]:
    """Operations per second of a product [2048, 576] x [576, 1536], and bytes per second of doubling a tensor of 64 MB
    into another: means over ``seconds`` each, so that what else runs here slows them as it slows a training."""
    left, right = torch.randn(2048, 576, dtype=dtype), torch.randn(576, 1536, dtype=dtype)
    large = torch.ones(2**24)
    into = torch.empty_like(large)
    product = _mean(lambda: left @ right, seconds, clock)
    added = _mean(lambda: torch.add(large, large, out=into), seconds, clock)
    return 2 * 2048 * 576 * 1536 / product, 2 * 4 * 2**24 / added  # one operand twice is read once


def _mean(act: Callable[[], object], seconds: float, clock: Callable[[], float]) -> float:
    act()
    started, count = clock(), 0
    while (spent := clock() - started) < seconds:
        act()
        count += 1
    return spent / count
