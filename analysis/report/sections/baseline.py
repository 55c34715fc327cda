"""The part of a report about a baseline run: speed-ups by their conventions, and outputs that differ."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.comparison.pairwise import Comparison
from analysis.measures.baseline import AgainstBaseline, SpeedUp
from analysis.report.markdown import table
from analysis.wording import counted, number, one_line, percent

_SHOWN = 10
_WEIGHS = {
    "ratio of means": "mean tokens/s over prompts, over the baseline's; prompts that decode fast weigh more",
    "mean of ratios": "every prompt weighs the same",
    "pooled": "all tokens over all seconds; long outputs weigh more",
}


def baseline_table(c: Comparison) -> str | None:
    """Speed-ups of both arms and their ratio, by convention."""
    if c.baseline is None or not c.baseline.speedups:
        return None
    rows = []
    for convention, weighs in _WEIGHS.items():
        found = [s for s in c.baseline.speedups if s.convention == convention]
        rows.append((convention, weighs, *map(_times, found)))
    headers = ["convention", "what it weighs", "A over baseline", "B over baseline", "B's speed-up over A's"]
    return table(headers, rows, numeric=3)


def notes(c: Comparison) -> list[str]:
    """What the speed-ups rest on, and why another tool's number for the same files may differ."""
    if c.baseline is None:
        return []
    told = []
    if c.baseline.speedups:
        first = c.baseline.speedups[0]
        told.append(
            f"Over {counted(first.n_prompts, 'prompt')} that all three have, turns of a prompt together, with 95% "
            f"intervals over prompts. Seconds: {c.baseline.seconds}. Tokens are those that the logs state."
        )
    else:
        told.append("No speed-up: not all three runs have timings of the same prompts.")
    if c.baseline.speedups and (c.baseline.format or "").startswith("Spec-Bench"):
        ratio = {s.what: s.estimate for s in c.baseline.speedups if s.convention == "ratio of means"}
        told.append(
            f"Spec-Bench's own script takes the ratio of means ({number(ratio['A'])} and {number(ratio['B'])} here) "
            "but gives other numbers for the same files: it counts a method's tokens by new_tokens and the baseline's "
            "by tokenising its text anew, less one, so its two sides use different counters. Here both sides use "
            "new_tokens, as the engine counted them."
        )
    return told


def output_lines(c: Comparison) -> list[str]:
    """Outputs against the baseline's, per arm."""
    if c.baseline is None:
        return []
    told = []
    for arm in (c.a, c.b):
        found = c.baseline.outputs[arm.side]
        if found is None:
            told.append(f"{arm.side}: no outputs to hold against the baseline's.")
            continue
        text = (
            f"{arm.side}: the same output on {found.same:,} of {counted(found.prompts, 'prompt')} "
            f"({percent(found.same / found.prompts)})"
        )
        if found.mean_tokens is not None and found.mean_tokens_baseline is not None:
            text += (
                f"; {number(found.mean_tokens, 1)} tokens a turn, the baseline {number(found.mean_tokens_baseline, 1)}"
            )
        first = [
            f"{row.prompt_id}{f' turn {row.turn}' if row.turn else ''} at {found.unit[:-1]} {row.position}"
            for row in found.turns.dropna(subset=["position"]).head(_SHOWN).itertuples()
        ]
        told.append(text + (f". First differences: {', '.join(first)}." if first else "."))
    return told


def speed_lines(found: Sequence[SpeedUp], label_a: str, label_b: str) -> list[str]:
    """What logs of times alone say: B's speed over A's, and nothing about acceptance."""
    told = [
        f"A is {one_line(label_a)}, B is {one_line(label_b)}. Not both logs record verification steps, so only speed "
        "is compared."
    ]
    for s in found:
        told.append(f"B is {_times(s)} times as fast as A, {s.convention} ({_WEIGHS[s.convention]}).")
    n, clusters = found[0].n_prompts, found[0].n_clusters
    return [*told, f"95% intervals over {counted(n, 'prompt')}{f' in {clusters:,} clusters' if clusters < n else ''}."]


def _times(s: SpeedUp) -> str:
    return number(s.estimate) + ("" if s.lo is None or s.hi is None else f" ({s.lo:.3f} to {s.hi:.3f})")


def summary(baseline: AgainstBaseline) -> list[str]:
    """Speed-ups, a line per convention, for a terminal."""
    told = []
    for convention in _WEIGHS:
        found = {s.what: s for s in baseline.speedups if s.convention == convention}
        if found:
            values = list(map(_times, found.values()))
            told.append(
                f"speed-up over {baseline.label}, {convention}: A {values[0]}, B {values[1]}; B's over A's {values[2]}"
            )
    return told
