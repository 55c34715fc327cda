"""The report's sections on the fusion of target layers."""

from __future__ import annotations

import pandas as pd

from analysis import wording
from analysis.comparison.facts import ArmSummary
from analysis.comparison.pairwise import Comparison
from analysis.measures.gates import NOT_POSITIVE
from analysis.report.markdown import table
from analysis.report.sections.overview import effective
from analysis.runlog.schema import GATE_QUANTITIES
from analysis.wording import interval, number, p_value, percent, signed


def gate_table(arm: ArmSummary) -> str:
    """Means with intervals per role and target layer."""
    assert arm.gates is not None
    headers = ["tokens", "layer", *(q.replace("_", " ") for q in GATE_QUANTITIES)]
    rows = []
    for (role, layer), of_layer in arm.gates.table.groupby(["role", "layer"]):
        by_quantity = of_layer.set_index("quantity")
        cells = [_with_interval(*by_quantity.loc[q, ["mean", "lo", "hi"]]) for q in GATE_QUANTITIES]
        least = by_quantity.loc[list(GATE_QUANTITIES), "n_effective"].min()
        rows.append((role, layer, *cells, "—" if pd.isna(least) else number(least, 1)))
    return table([*headers, "effective, at least"], rows, numeric=2 + len(GATE_QUANTITIES))


def spread_table(arm: ArmSummary) -> str | None:
    """Variation of the gate from token to token: absolute, and relative to the last layer (which is identified)."""
    if arm.gates is None or not arm.gates.moving:
        return None
    headers = ["tokens", "layer", "SD of gate", "within prompts", "between prompts", "SD of log(gate / last layer's)"]
    rows = []
    last = arm.gates.table["layer"].max()
    for (role, layer), of_layer in arm.gates.table.groupby(["role", "layer"]):
        by_quantity = of_layer.set_index("quantity")
        parts = [number(x) for x in by_quantity.loc["gate", ["sd", "sd_within", "sd_between"]]]
        identified = ["—"] * 4
        if "log_ratio" in by_quantity.index and layer != last:
            log = by_quantity.loc["log_ratio"]
            identified = [_with_interval(log["sd"], log["sd_lo"], log["sd_hi"])]
            identified += [number(log["sd_within"]), number(log["sd_between"])]
            identified += ["—" if pd.isna(log["sd_n_effective"]) else number(log["sd_n_effective"], 1)]
        lacking = by_quantity.loc[NOT_POSITIVE, "mean"] if NOT_POSITIVE in by_quantity.index else 0.0
        rows.append((role, layer, *parts, *identified, percent(lacking, 1)))
    headers += ["within prompts", "between prompts", "effective"]
    if NOT_POSITIVE in arm.gates.table["quantity"].to_numpy():
        return table([*headers, "gate <= 0 (not in the logs)"], rows, numeric=9)
    return table(headers, [row[:-1] for row in rows], numeric=8)


def _with_interval(value: float, lo: float, hi: float) -> str:
    digits = 3 if abs(value) < 10 else 1
    if pd.isna(lo):
        return number(value, digits)
    return f"{number(value, digits)} ({number(lo, digits)} to {number(hi, digits)})"


def gain_sentence(c: Comparison) -> str | None:
    """The association between gate variation and gain, as a sentence."""
    if (g := c.gain) is None:
        return None
    gated = c.b.label if g.side == "B" else c.a.label
    return (
        f"The gain of {gated} on a prompt changes by {signed(g.slope)} tokens per standard deviation of its gate's "
        f"variation on that prompt, within data sets (95% interval {interval(g.lo, g.hi)}; {wording.equals_p(g.p)}; "
        f"correlation {number(g.correlation, 2)}; {g.n_pairs:,} prompts in {g.n_clusters:,} clusters, "
        f"about {g.n_effective:.0f} effective). "
        "This is an association, not an effect: the variation was not assigned at random, and other properties of the "
        "prompts may affect both."
    )


def control_table(c: Comparison) -> str | None:
    """B against its controls, and the controls against A."""
    if not c.controls:
        return None
    headers = ["control", "kind", "mean", "B - control", "95% interval", "p, Holm", "verdict, B over control",
               "control - A", "95% interval", "share of B's gain lost", "effective, of the three"]  # fmt: skip
    rows = [
        (x.label, x.kind, number(x.mean), signed(x.lost.estimate), interval(x.lost.lo, x.lost.hi),
         p_value(x.lost.p_adjusted), x.lost.verdict, signed(x.kept.estimate), interval(x.kept.lo, x.kept.hi),
         percent(x.share, 0) + (f" ({percent(x.lo, 0)} to {percent(x.hi, 0)})" if x.lo is not None else ""),
         " / ".join((effective(x.lost), effective(x.kept), number(x.share_n_effective, 1))))
        for x in c.controls
    ]  # fmt: skip
    return table(headers, rows, numeric=9)


def strangers(c: Comparison) -> list[str]:
    """Frozen and shuffled controls that are not recorded as variants of B."""
    return [
        f"{x.label} is not recorded as a variant of {c.b.name}, so it counts as a different drafter, not as B with a "
        "changed gate."
        for x in c.controls
        if x.kind in ("frozen", "shuffled") and not x.of_b
    ]
