"""The report's sections on speed, serving throughput and losslessness."""

from __future__ import annotations

import pandas as pd

from analysis.comparison.pairwise import Comparison
from analysis.measures.speed import TimesFaster
from analysis.measures.throughput import ThroughputRatio
from analysis.report.markdown import table
from analysis.wording import counted, number, one_line, p_value, percent

MISMATCHES_SHOWN = 10


def speed_table(c: Comparison) -> str | None:
    """Speed-ups over plain decoding and of B over A, over all prompts."""
    if c.speed is None or not c.speed.ratios:
        return None
    names = {"A": c.a.label, "B": c.b.label, "plain": "plain decoding"}
    rows = [
        (names.get(r.what, r.what), names.get(r.against, r.against), r.estimand.name, number(r.estimate, 2), _range(r),
         p_value(r.p), f"{r.n_pairs:,}", number(r.n_effective, 1), r.design, r.verdict)
        for r in c.speed.ratios if r.subset is None
    ]  # fmt: skip
    headers = ["faster", "than", "metric", "times", "95% interval", "p", "prompts", "effective", "timed",
               "verdict"]  # fmt: skip
    return table(headers, rows, numeric=7)


def speed_by_dataset(c: Comparison) -> str | None:
    """Pooled speed-ups per data set."""
    if c.speed is None or len(c.by_dataset) < 2:
        return None
    kinds = [c.speed.pooled(*kind) for kind in (("A", "plain"), ("B", "plain"), ("B", "A"))]
    rows = []
    for name in c.by_dataset:
        ratios = [kind.get(name) for kind in kinds]
        if any(ratios):
            cells = [f"{number(r.estimate, 2)} ({_range(r)})" if r else None for r in ratios]
            last = ratios[-1]
            units = " / ".join(number(r.n_effective if r else None, 1) for r in ratios)
            rows.append((name, *cells, units, p_value(last.p) if last else None, last.verdict if last else None))
    headers = ["data set", "A over plain", "B over plain", "B over A", "effective, of the three", "p, Holm", "verdict"]
    return table(headers, rows, numeric=6) if rows else None


def _range(r: TimesFaster | ThroughputRatio) -> str:
    return "—" if r.lo is None or r.hi is None else f"{r.lo:.2f} to {r.hi:.2f}"


def cost_table(c: Comparison) -> str | None:
    """Cost of a step in units of a plain token's time, and the speed-up that it allows."""
    if c.speed is None or not c.speed.costs:
        return None
    headers = ["arm", "tau", "plain token, ms", "drafting", "verifying", "other", "a step, in plain tokens",
               "tau / step", "if drafting were free"]  # fmt: skip
    labels = {"A": c.a.label, "B": c.b.label}
    rows = [
        (f"{side}: {labels[side]}", number(x.tau, 2), number(1000 * x.plain_s, 2),
         *(number(part / x.plain_s, 2) for part in (x.draft_s, x.verify_s, x.other_s)),
         number(x.step_in_tokens, 2), number(x.allowed, 2), number(x.free_drafting, 2))
        for side, x in c.speed.costs.items()
    ]  # fmt: skip
    return table(headers, rows, numeric=8)


def answers_told(c: Comparison, n: int | None = None) -> str:
    """``24 answers of at most 48 tokens (21 cut there)``: all that both runs have, or ``n`` of them."""
    o = c.outputs
    total = sum(o.answers.values())
    limits, cuts = {o.a.limit, o.b.limit}, (o.a.cut, o.b.cut)
    text, there = counted(total if n is None else n, "answer"), "at the length limit"
    if len(limits) == 1 and o.a.limit is not None:
        text, there = f"{text} of at most {o.a.limit:,} tokens", "there"
    if n not in (None, total) or None in cuts or not any(cuts):
        return text
    counts = f"{cuts[0]:,}" if cuts[0] == cuts[1] else f"{cuts[0]:,} of A and {cuts[1]:,} of B"
    return f"{text} ({counts} cut {there})"


def answers_by_dataset(c: Comparison) -> str | None:
    """The answers on which tau, speed and outputs are based; None without answers in both runs."""
    if not c.outputs.answers:
        return None
    of = ", ".join(f"{count:,} of {one_line(name)}" for name, count in c.outputs.answers.items())
    return f"Tau is based on {answers_told(c)}: {of}."


def timing_notes(c: Comparison) -> list[str]:
    """The data behind the timings."""
    if c.speed is None:
        return []
    other = f"Timed on {answers_told(c)}, not on the first blocks of the headline."
    notes = [
        f"{side}: {counted(c.speed.timed[side], 'prompt')} timed, up to {counted(c.speed.repeats[side], 'repeat')} per "
        f"mode; {c.speed.left_out[side]} excluded (one token, or no time recorded)."
        for side in "AB"
    ]
    return [other, *notes] if c.protocol == "prefix" and c.outputs.answers else notes


def throughput_tables(c: Comparison) -> tuple[str, str] | None:
    """Ratios per concurrency, and every trial."""
    if c.throughput is None:
        return None
    ratios = table(
        ["concurrency", "B / A per block", "geometric mean", "95% interval", "p", "blocks", "verdict"],
        [
            (r.concurrency, ", ".join(f"{x:.3f}" for x in r.ratios), number(r.estimate, 3),
             _range(r), p_value(r.p) if r.verdict else None, len(r.blocks), r.verdict or "too few blocks")
            for r in c.throughput.ratios
        ],
        numeric=5,
    )  # fmt: skip
    headers = ["arm", "concurrency", "block", "trial", "order", "status", "reason", "tokens/s"]
    columns = ["side", "concurrency", "block", "trial", "order", "status", "reason", "tokens_per_s"]
    trials = [
        [None if pd.isna(cell) else f"{cell:.2f}" if isinstance(cell, float) else cell for cell in row]
        for row in c.throughput.trials[columns].itertuples(index=False)
    ]
    return ratios, table(headers, trials, numeric=1)


def lossless_table(c: Comparison) -> str | None:
    """Outputs against plain decoding, and against each other."""
    o = c.outputs
    if not (o.a.checked or o.b.checked):
        return None
    rows = [
        (f"{arm.side}: {arm.label}", f"{x.checked:,}", f"{x.matches:,}", percent(x.matches / x.checked),
         int(x.mismatches["explained"].sum()), number(x.mean_tokens, 1))
        for arm, x in ((c.a, o.a), (c.b, o.b)) if x.checked
    ]  # fmt: skip
    headers = ["arm", "outputs checked", "equal to plain decoding", "share", "differ at a near-tie", "mean tokens"]
    return table(headers, rows, numeric=5)


def unstable_baseline(c: Comparison) -> str | None:
    """Prompts on which repeated plain decoding gave different outputs: no arm can match an unstable target."""
    counts = {
        arm.side: [d.get("baseline_differs") for e in arm.manifest.evaluations.values() for d in e.datasets.values()]
        for arm in (c.a, c.b)
    }  # fmt: skip
    unstable = [
        f"{n} prompts of {side}" for side, per_dataset in counts.items() if (n := sum(x or 0 for x in per_dataset))
    ]
    return f"Repeated plain decoding gave different outputs on {', '.join(unstable)}." if unstable else None


def mismatches(c: Comparison) -> list[str]:
    """The first outputs that differ from plain decoding."""
    lines = []
    for arm, outputs in ((c.a, c.outputs.a), (c.b, c.outputs.b)):
        for row in outputs.mismatches.head(MISMATCHES_SHOWN).itertuples():
            at = "—" if pd.isna(row.first_mismatch) else int(row.first_mismatch)
            margin = "not logged" if pd.isna(row.mismatch_margin) else f"{row.mismatch_margin:.2g}"
            lines.append(f"{arm.side}, {row.prompt_id} (turn {row.turn}): differs at token {at}, logit margin {margin}")
    return lines


def published_table(c: Comparison) -> str | None:
    """Published drafters of the same target."""
    if c.published.empty:
        return None
    speedups = {side: c.speed.pooled(side, "plain") if c.speed else {} for side in "AB"}
    rows = []
    for row in c.published.itertuples():
        e = c.by_dataset.get(row.dataset)
        faster = [speedups[side].get(row.dataset) for side in "AB"]
        taus = (e.mean_a, e.mean_b) if e is not None and e.estimand.key == "tau_pooled" else (None, None)
        theirs = [None if pd.isna(x) else f"{x:.2f}" for x in (row.tau, row.speedup)]
        ours = [*(number(x, 2) for x in taus), *(number(x.estimate, 2) if x else "—" for x in faster)]
        hardware = None if pd.isna(row.hardware) else row.hardware
        rows.append((row.dataset, row.method, *theirs, *ours, hardware, row.source))
    headers = ["data set", "published drafter", "its tau", "its speed-up", "tau, A", "B", "speed-up, A", "B",
               "its hardware", "source"]  # fmt: skip
    return table(headers, rows)
