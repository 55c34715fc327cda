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
        flops, bandwidth = measure("cpu", torch.bfloat16 if precision == "bfloat16" else torch.float32)
        return Device("cpu", flops, bandwidth, None, "measured")
    half, full, bandwidth, held = PEAKS[name]
    peak = half if precision == "bfloat16" else full
    return Device(name, REACHED * peak, REACHED * bandwidth, held, "published")


def measure(
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    seconds: float = 0.3,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, float]:
    """Operations per second of matrix products, and bytes per second of doubling a tensor of 64 MB (1 GB on a GPU) into
    another: means over ``seconds`` each, so that what else runs there slows them as it slows a training.

    The product is [2048, 576] x [576, 1536], of a size that a small drafter has; on a GPU [8192, 4096] x [4096, 4096].
    """
    rows, inner, columns = (2048, 576, 1536) if device == "cpu" else (8192, 4096, 4096)
    left = torch.randn(rows, inner, dtype=dtype, device=device)
    right = torch.randn(inner, columns, dtype=dtype, device=device)
    large = torch.ones(2**24 if device == "cpu" else 2**28, device=device)
    into = torch.empty_like(large)

    def mean(act: Callable[[], object]) -> float:
        act()
        _wait(device)
        started, count = clock(), 0
        while (spent := clock() - started) < seconds:
            act()
            _wait(device)
            count += 1
        return spent / count

    product, added = mean(lambda: left @ right), mean(lambda: torch.add(large, large, out=into))
    return 2 * rows * inner * columns / product, 2 * 4 * large.numel() / added  # one operand twice is read once


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)
