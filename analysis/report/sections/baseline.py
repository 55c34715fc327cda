"""The report's section on a baseline run: speed-ups by convention, and outputs that differ."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.comparison.pairwise import Comparison
from analysis.measures.baseline import AgainstBaseline, SpeedUp
from analysis.report.markdown import table
from analysis.wording import counted, number, one_line, percent

_SHOWN = 10
_WEIGHS = {
    "ratio of means": "mean tokens/s over prompts, divided by the baseline's; prompts that decode fast weigh more",
    "mean of ratios": "every prompt has the same weight",
    "pooled": "all tokens divided by all seconds; long outputs weigh more",
}


def baseline_table(c: Comparison) -> str | None:
    """Speed-ups of both arms and their ratio, by convention."""
    if c.baseline is None or not c.baseline.speedups:
        return None
    rows = []
    for convention, weighs in _WEIGHS.items():
        speedups = [s for s in c.baseline.speedups if s.convention == convention]
        units = " / ".join(number(s.n_effective, 1) for s in speedups)
        rows.append((convention, weighs, *map(_times, speedups), units))
    headers = ["convention", "what it weighs", "A over baseline", "B over baseline", "B's speed-up over A's",
               "effective clusters, of the three"]  # fmt: skip
    return table(headers, rows, numeric=4)


def notes(c: Comparison) -> list[str]:
    """The data behind the speed-ups, and why another tool may report other numbers for the same files."""
    if c.baseline is None:
        return []
    sentences = []
    if c.baseline.speedups:
        first = c.baseline.speedups[0]
        sentences.append(
            f"Based on {counted(first.n_prompts, 'prompt')} that all three runs have; the turns of a prompt are "
            f"combined. 95% intervals over prompts. Times cover: {c.baseline.seconds}. Token counts come from the logs."
        )
    else:
        sentences.append("No speed-up: not all three runs have timings of the same prompts.")
    if c.baseline.speedups and (c.baseline.format or "").startswith("Spec-Bench"):
        ratio = {s.what: s.estimate for s in c.baseline.speedups if s.convention == "ratio of means"}
        sentences.append(
            f"Spec-Bench's own script takes the ratio of means ({number(ratio['A'])} and {number(ratio['B'])} here) "
            "but reports other numbers for the same files. It counts a method's tokens by new_tokens, and the "
            "baseline's by tokenising its text again and subtracting one. Here both sides use new_tokens."
        )
    return sentences


def output_lines(c: Comparison) -> list[str]:
    """Outputs of each arm compared with the baseline's."""
    if c.baseline is None:
        return []
    lines = []
    for arm in (c.a, c.b):
        outputs = c.baseline.outputs[arm.side]
        if outputs is None:
            lines.append(f"{arm.side}: no outputs that can be compared with the baseline's.")
            continue
        text = (
            f"{arm.side}: the same output on {outputs.same:,} of {counted(outputs.prompts, 'prompt')} "
            f"({percent(outputs.same / outputs.prompts)})"
        )
        if outputs.mean_tokens is not None and outputs.mean_tokens_baseline is not None:
            means = number(outputs.mean_tokens, 1), number(outputs.mean_tokens_baseline, 1)
            text += f"; {means[0]} tokens per turn, the baseline {means[1]}"
        first = [
            f"{row.prompt_id}{f' turn {row.turn}' if row.turn else ''} at {outputs.unit[:-1]} {row.position}"
            for row in outputs.turns.dropna(subset=["position"]).head(_SHOWN).itertuples()
        ]
        lines.append(text + (f". First differences: {', '.join(first)}." if first else "."))
    return lines


def speed_lines(speedups: Sequence[SpeedUp], label_a: str, label_b: str) -> list[str]:
    """B's speed over A's, for logs with times only."""
    lines = [
        f"A is {one_line(label_a)}, B is {one_line(label_b)}. At least one log has no verification steps, so only "
        "speed is compared."
    ]
    for s in speedups:
        lines.append(f"B is {_times(s)} times as fast as A, {s.convention} ({_WEIGHS[s.convention]}).")
    n, clusters = speedups[0].n_prompts, speedups[0].n_clusters
    return [*lines, f"95% intervals over {counted(n, 'prompt')}{f' in {clusters:,} clusters' if clusters < n else ''}."]


def _times(s: SpeedUp) -> str:
    return number(s.estimate) + ("" if s.lo is None or s.hi is None else f" ({s.lo:.3f} to {s.hi:.3f})")


def summary(baseline: AgainstBaseline) -> list[str]:
    """Speed-ups, a line per convention, for a terminal."""
    lines = []
    for convention in _WEIGHS:
        speedups = {s.what: s for s in baseline.speedups if s.convention == convention}
        if speedups:
            values = list(map(_times, speedups.values()))
            lines.append(
                f"speed-up over {baseline.label}, {convention}: A {values[0]}, B {values[1]}; B's over A's {values[2]}"
            )
    return lines
