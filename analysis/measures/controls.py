"""Does a gain come from the gate's dynamics or from its mean? Three controls of a gated arm, compared like any arm.

* *frozen*: the trained gate held at its mean over training prompts. It overstates the dynamics: the projection was
  trained with a moving gate, and would have adapted to a constant one.
* *shuffled*: each token gets the gate of another token: the right values at the wrong tokens.
* *static*: an arm trained with one constant per layer instead of a gate; the fairest of the three.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from analysis.runlog.load import Evaluated
from analysis.runlog.manifest import Manifest
from analysis.runlog.pairing import pair
from analysis.runlog.reading import Run
from analysis.runlog.schema import PAIR_KEY
from analysis.stats.cluster import cluster_t, partition
from analysis.stats.estimate import Estimate, joint, of_pairs, values_of, weights_of
from analysis.stats.families import adjust
from analysis.wording import Estimand, Verdict

Kind = Literal["frozen", "shuffled", "static", "other"]


@dataclass(frozen=True)
class Control:
    """One control. ``lost``: the gated arm B against it, p adjusted by Holm over the controls; ``kept``: it against
    A. ``share``, ``lo``, ``hi``: share of B's gain over A that the control lacks, (B - control) / (B - A), with a
    delta-method interval; None unless B - A is significantly above 0. ``of_b``: whether it has B's own weights."""

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
    share_n_effective: float | None


def compare_controls(
    a: Evaluated, b: Evaluated, controls: Sequence[Evaluated], estimand: Estimand, min_coverage: float, strict: bool
) -> tuple[Control, ...]:
    """Every control against B and against A, over the prompts in common. Raises DataError as :func:`pair` does."""
    if not controls:
        return ()
    with_b = [pair(control, b, min_coverage=min_coverage, strict=strict) for control in controls]
    with_a = [pair(a, control, min_coverage=min_coverage, strict=strict) for control in controls]
    gain = of_pairs(pair(a, b, min_coverage=min_coverage).frame, estimand)
    lost = adjust([of_pairs(pairs.frame, estimand) for pairs in with_b])
    compared = []
    for control, of_lost, pairs_a in zip(controls, lost, with_a, strict=True):
        share = _share(a, b, control, estimand) if gain.lo is not None and gain.lo > 0 else (None,) * 4
        manifest = control.run.manifest
        compared.append(
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
                share_n_effective=share[3],
            )
        )
    return tuple(compared)


def _label(run: Run) -> str:
    variant = run.manifest.variant
    return run.label if not variant or variant in run.label else f"{run.label} ({variant})"


def kind_of(manifest: Manifest) -> Kind:
    """The kind of control, from the run's variant or its drafter's configuration."""
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
) -> tuple[float, float | None, float | None, float | None]:
    """(B - control) / (B - A) over the prompts that all three have."""
    key = list(PAIR_KEY)
    third = pair(control, b, min_coverage=0).frame[[*key, "tokens_a", "steps_a"]]
    both = pair(a, b, min_coverage=0).frame.merge(third, on=key, suffixes=("", "_control"))
    value_a, value_b = values_of(both, estimand)
    as_control = both.assign(tokens_a=both["tokens_a_control"], steps_a=both["steps_a_control"])
    value_control, _ = values_of(as_control, estimand)
    top, bottom = (value_b - value_control).astype(float), (value_b - value_a).astype(float)
    ratio = top.mean() / bottom.mean()
    w = joint(weights_of(both, estimand))
    robust = cluster_t(ratio + (top - ratio * bottom) / bottom.mean(), partition(both["cluster_id"]), weights=w)
    return float(ratio), robust.lo, robust.hi, robust.effective if robust.se else None


def readings(controls: Sequence[Control]) -> tuple[str, ...]:
    """What the controls say together about the dynamics of B's gate, as codes; empty if they say nothing.

    ``SUBJECT-OUTCOME``. Subjects: ``frozen`` and ``shuffled`` change B's own gate and overstate its dynamics;
    ``static`` is another training, and fair. Outcomes describe B without its dynamics: ``worse``, ``better`` or
    ``unclear`` (not statistically distinguishable from B), and ``mixed`` where controls of one kind disagree; for
    B's own gate, ``own-mixed``. ``frozen-or-shuffled-OUTCOME`` and ``shuffled-worse-frozen-OUTCOME`` join two. Then
    ``conflict``: worse with a static gate, although B's own gate can be frozen or shuffled at no detectable cost;
    ``static-missing``: B needs its gate, but no static arm shows how much the dynamics contribute. Controls of
    another kind, or frozen and shuffled gates of other weights than B's, have no reading.
    """
    frozen, shuffled = (_outcome(c for c in controls if c.kind == kind and c.of_b) for kind in ("frozen", "shuffled"))
    static = _outcome(c for c in controls if c.kind == "static")
    if static == "worse" and {frozen, shuffled} != {""} and not {frozen, shuffled} & {"worse", "mixed"}:
        return ("conflict",)
    codes = [*_own_gate(frozen, shuffled), *([f"static-{static}"] if static else [])]
    return (*codes, "static-missing") if "worse" in (frozen, shuffled) and not static else tuple(codes)


def _own_gate(frozen: str, shuffled: str) -> list[str]:
    """The codes of B's own gate, from the outcomes of freezing and shuffling it."""
    outcomes = {"frozen": frozen, "shuffled": shuffled}
    if "mixed" in outcomes.values():
        return ["own-mixed"]
    if frozen == "worse":
        return ["frozen-worse"]
    if shuffled == "worse":
        return [f"shuffled-worse-frozen-{frozen}" if frozen else "shuffled-worse"]
    for outcome in ("better", "unclear"):
        if kinds := [kind for kind, of_kind in outcomes.items() if of_kind == outcome]:
            return [f"{'-or-'.join(kinds)}-{outcome}"]
    return []


def _outcome(controls: Iterable[Control]) -> str:
    """What becomes of B without its dynamics; "" without a control."""
    words = {Verdict.B_BETTER: "worse", Verdict.A_BETTER: "better"}
    outcomes = {words.get(control.lost.verdict, "unclear") for control in controls}
    return "mixed" if len(outcomes) > 1 else next(iter(outcomes), "")
