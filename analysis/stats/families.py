"""Several tests at once: Holm's adjustment within a family."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.stats.estimate import Estimate, conclude


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjusted p-values, in the order given; undefined ones (None) are not counted in the family."""
    defined = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    reached = 0.0
    for rank, (p, i) in enumerate(defined):
        reached = max(reached, min(1.0, (len(defined) - rank) * p))
        adjusted[i] = reached
    return adjusted


def adjust(estimates: Sequence[Estimate]) -> tuple[Estimate, ...]:
    """The estimates as one family: p-values adjusted by Holm, equivalence tests as a separate family, and new
    verdicts."""
    size = sum(estimate.p is not None for estimate in estimates)
    differences = holm([estimate.p for estimate in estimates])
    equivalences = holm([estimate.equivalence.p if estimate.equivalence else None for estimate in estimates])
    return tuple(
        conclude(estimate, p, size, p_equivalence) if p is not None else estimate
        for estimate, p, p_equivalence in zip(estimates, differences, equivalences, strict=True)
    )
