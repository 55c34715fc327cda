"""Is a gain the gate's dynamics, or only its mean? Three controls of a gated arm, compared like any other arm.

* *frozen*: the trained gate held at its mean over training prompts. It overstates the dynamics: the projection was
  trained with a moving gate, and would have adapted to a constant one.
* *shuffled*: the trained gate of other tokens: right values, wrong moments.
* *static*: an arm trained with one constant per layer instead of a gate; the fairest of the three.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from analysis.runlog.load import Evaluated
from analysis.runlog.manifest import Manifest
from analysis.runlog.pairing import pair
from analysis.runlog.reading import Run
from analysis.runlog.schema import PAIR_KEY
from analysis.stats.cluster import cluster_t, partition
from analysis.stats.estimate import Estimate, of_pairs, values_of
from analysis.stats.families import adjust
from analysis.wording import Estimand

Kind = Literal["frozen", "shuffled", "static", "other"]


@dataclass(frozen=True)
class Control:
    """One control. ``lost``: the gated arm B against it, p adjusted by Holm over the controls; ``kept``: it against
    A. ``share``, ``lo``, ``hi``: part of the gain of B over A that it does not have, (B - control) / (B - A), with a
    delta-method interval; None unless B - A is told from 0. ``of_b``: whether it is made of B's own weights."""

    name: str
    label: str
    kind: Kind
    of_b: bool
    mean: float | None
    lost: Estimate
    kept: Estimate
    share: float | None
    lo: float | None
    hi: float | None


def compare_controls(
    a: Evaluated, b: Evaluated, controls: Sequence[Evaluated], estimand: Estimand, min_coverage: float, strict: bool
) -> tuple[Control, ...]:
    """Every control over the prompts that it shares with B, and with A. Raises DataError as :func:`pair` does."""
    if not controls:
        return ()
    with_b = [pair(control, b, min_coverage=min_coverage, strict=strict) for control in controls]
    with_a = [pair(a, control, min_coverage=min_coverage, strict=strict) for control in controls]
    gain = of_pairs(pair(a, b, min_coverage=min_coverage).frame, estimand)
    lost = adjust([of_pairs(pairs.frame, estimand) for pairs in with_b])
    found = []
    for control, of_lost, pairs_a in zip(controls, lost, with_a, strict=True):
        share = _share(a, b, control, estimand) if gain.lo is not None and gain.lo > 0 else (None, None, None)
        manifest = control.run.manifest
        found.append(
            Control(
                name=control.run.name,
                label=_label(control.run),
                kind=kind_of(manifest),
                of_b=manifest.parent == b.run.name,
                mean=of_lost.mean_a,
                lost=of_lost,
                kept=of_pairs(pairs_a.frame, estimand),
                share=share[0],
                lo=share[1],
                hi=share[2],
            )
        )
    return tuple(found)


def _label(run: Run) -> str:
    variant = run.manifest.variant
    return run.label if not variant or variant in run.label else f"{run.label} ({variant})"


def kind_of(manifest: Manifest) -> Kind:
    """What control a run is, by its variant or its drafter's configuration."""
    variant = (manifest.variant or "").lower()
    if "frozen" in variant:
        return "frozen"
    if "shuffled" in variant:
        return "shuffled"
    config = manifest.drafter.config if manifest.drafter else {}
    if "gated" in str(config.get("fusion")) and config.get("gate_input") == "none":
        return "static"
    return "other"


def _share(
    a: Evaluated, b: Evaluated, control: Evaluated, estimand: Estimand
) -> tuple[float, float | None, float | None]:
    """(B - control) / (B - A) over the prompts that all three have."""
    key = list(PAIR_KEY)
    third = pair(control, b, min_coverage=0).frame[[*key, "tokens_a", "steps_a"]]
    both = pair(a, b, min_coverage=0).frame.merge(third, on=key, suffixes=("", "_control"))
    value_a, value_b = values_of(both, estimand)
    as_control = both.assign(tokens_a=both["tokens_a_control"], steps_a=both["steps_a_control"])
    value_control, _ = values_of(as_control, estimand)
    top, bottom = (value_b - value_control).astype(float), (value_b - value_a).astype(float)
    ratio = top.mean() / bottom.mean()
    robust = cluster_t(ratio + (top - ratio * bottom) / bottom.mean(), partition(both["cluster_id"]))
    return float(ratio), robust.lo, robust.hi
