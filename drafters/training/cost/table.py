"""A dry run for people."""

from __future__ import annotations

from drafters.training.cost.devices import REACHED
from drafters.training.cost.dry_run import DryRun

_SOURCES = {
    "measured": "measured now, and shared with whatever else runs here",
    "published": f"{REACHED:.0%} of the published peaks: an assumption",
    "given": "as given",
}


def table(found: DryRun) -> str:
    """Parameters, memory and time, one line each."""
    size, step, memory, device = found.sizes, found.step, found.memory, found.device
    parts = ", ".join(f"{name} {count:,}" for name, count in size.drafter.items() if name != "total")
    lines = [
        f"{found.name}: a drafter for {found.target}, {found.precision}, {step.ranks} rank(s) on {device.name}",
        f"a step: {step.micro_batches} pass(es) a rank of {step.batch} x {step.length} tokens, {step.blocks} blocks of "
        f"{step.block_size}",
        "",
        "parameters",
        f"  {'trained':<26}{size.drafter['total']:>16,}  {parts}",
        f"  {'frozen target':<26}{size.target:>16,}  embedding {size.embedding:,}, "
        + (f"head {size.head:,}" if size.head else "head tied to it"),
        "",
        "memory of a rank at the peak of a step",
        *(f"  {name.replace('_', ' '):<26}{_bytes(value):>16}" for name, value in vars(memory).items() if value),
        f"  {'peak':<26}{_bytes(memory.peak):>16}" + _fits(found),
        f"  {'corpus on disk':<26}{_bytes(found.corpus_bytes):>16}  an example" + _corpus(found),
        "",
        f"time ({device.flops / 1e12:.3g} TFLOP/s, {device.bandwidth / 1e9:.4g} GB/s, {_SOURCES[device.source]})",
        f"  {'matrix products':<26}{_seconds(found.time.products):>16}"
        f"  drafter {_share(found.work.drafter, found)}, head {_share(found.work.head, found)}, "
        f"target {_share(found.work.target, found)}",
        f"  {'memory traffic':<26}{_seconds(found.time.traffic):>16}",
        f"  {'a step':<26}{_seconds(found.time.total):>16}",
    ]
    if found.hours is None:
        lines.append("  the whole training: its steps follow from the number of examples; give --examples")
    else:
        lines.append(
            f"  {f'{found.steps:,} steps':<26}{f'{found.hours:.3g} h':>16}  {found.device_hours:.3g} device hours"
        )
    return "\n".join(lines)


def _fits(found: DryRun) -> str:
    held = found.device.memory
    if held is None:
        return ""
    return f"  {'fits' if found.memory.peak < held else 'DOES NOT FIT'} {found.device.name}'s {held / 1e9:.0f} GB"


def _corpus(found: DryRun) -> str:
    return "" if found.examples is None else f", {_bytes(found.corpus_bytes * found.examples)} of all"


def _share(part: float, found: DryRun) -> str:
    return f"{part / found.work.operations:.0%}"


def _bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"
