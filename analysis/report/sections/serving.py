"""The report of a serving experiment: the table of arms, every trial, acceptance, latency, concurrency."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analysis.measures.serving import PERCENTILES, TIMES, ServedArm, Serving
from analysis.report.markdown import escape, table
from analysis.report.plots.style import Plot
from analysis.wording import counted, number, p_value, percent

_NAMES = {"ttft_s": "time to first token", "tpot_s": "time per output token", "e2e_s": "whole request"}


def report(s: Serving, plots: Sequence[Plot], *, title: str | None = None, question: str | None = None) -> str:
    """The whole report.md."""
    parts = [f"# {escape(title or f'Serving throughput: {s.label}')}"]
    if question:
        parts.append(f"*{escape(question)}*")
    parts += [f"**{escape(headline(s))}**", escape(load(s)), arms(s)]
    parts += [f"Change is against {escape(s.baseline)}, block by block; its interval is a t interval over blocks."]
    for plot in plots:
        parts.append(f"![{plot.name}](figures/{plot.name}.png)")
        parts.append(f"{escape(plot.caption)} Data: [{plot.name}.csv](figures/{plot.name}.csv).")
    if s.crossovers:
        parts += ["## Concurrency", crossovers(s)]
    if s.acceptance:
        parts += ["## Accepted tokens", acceptance(s), escape(ACCEPTANCE_NOTE)]
    if s.latencies:
        parts += ["## Latency", latency(s), "Seconds; all requests of finished trials together."]
        if s.bounds:
            parts += [goodput(s)]
    parts += ["## Every trial", trials(s), "## Cautions"]
    parts += ["\n".join(f"* {escape(text)}" for text in s.cautions) or "None."]
    return "\n\n".join(parts) + "\n"


ACCEPTANCE_NOTE = (
    "Tau is 1 + accepted / drafts over the steps in which tokens were drafted. 'Ours' is this project's decoder on the "
    "same prompts and checkpoint, counted as the engine counts: vLLM counts the last step of an answer whole, although "
    "the answer is cut within it. Where outputs are equal and counts are not, a draft token differed at a near tie."
)


def headline(s: Serving) -> str:
    """The arm with the largest mean throughput, and by how much."""
    best = max((c for c in s.changes if c.ratio is not None), key=lambda c: c.ratio or 0.0, default=None)
    if best is None:
        return f"No arm can be compared with {s.baseline}: no block has finished trials of both."
    return (
        f"{best.arm} at {best.concurrency} concurrent requests: {best.tokens_per_s:.1f} output tokens/s, "
        f"{best.ratio:.2f} times {s.baseline}."
    )


def load(s: Serving) -> str:
    """What was asked of the servers."""
    blocks = s.trials["block"].nunique()
    requests = s.trials["requests"].dropna()
    words = [counted(int(requests.iloc[0]), "prompt")] if len(requests) else []
    if tokens := s.settings.get("max_tokens"):
        exact = "exactly" if s.settings.get("ignore_eos") else "at most"
        words.append(f"{exact} {tokens} tokens each")
    if (temperature := s.settings.get("temperature")) is not None:
        words.append("greedy" if temperature == 0 else f"temperature {temperature}")
    return f"{', '.join(words)}; {counted(blocks, 'block')}, every arm on a fresh server in each.".lstrip(" ;,")


def arms(s: Serving) -> str:
    """The table of the write-up: arm, output tokens per second, change."""
    rows = [
        (c.arm, c.concurrency, number(c.tokens_per_s, 1), change(c, s), interval(c), p_value(c.p) if c.p else None,
         c.trials, c.verdict)
        for c in s.changes
    ]  # fmt: skip
    headers = ["arm", "concurrency", "output tokens/s", "change", "95% interval", "p", "trials", "verdict"]
    return table(headers, rows, numeric=7)


def change(c: ServedArm, s: Serving) -> str | None:
    """``+12.3%``; None without a block that both finished."""
    if c.arm == s.baseline:
        return "baseline"
    return None if c.ratio is None else f"{100 * (c.ratio - 1):+.1f}%"


def interval(c: ServedArm) -> str | None:
    """The same for the interval."""
    if c.lo is None or c.hi is None:
        return None
    return f"{100 * (c.lo - 1):+.1f}% to {100 * (c.hi - 1):+.1f}%"


def acceptance(s: Serving) -> str:
    """Tau in the engine beside our decoder's, counts per trial, acceptance by slot."""
    rows = []
    for a in s.acceptance:
        same = None if a.exact is None else "yes, to the token" if a.exact else "no"
        ours = None if a.offline_accepted is None else f"{a.offline_accepted:,} / {a.offline_drafts:,}"
        engine = f"{a.accepted / a.trials:,.6g} / {a.drafts / a.trials:,.6g}"
        slots = " ".join(f"{100 * share:.0f}" for share in a.per_position)
        rows.append((a.arm, number(a.tau, 3), number(a.offline_tau, 3), engine, ours, same, slots))
    headers = ["arm", "tau, engine", "tau, ours", "accepted / drafts a trial", "ours", "equal", "accepted by slot, %"]
    return table(headers, rows, numeric=6)


def latency(s: Serving) -> str:
    """Percentiles of the three times, per arm and concurrency."""
    rows = [
        (of.arm, of.concurrency, of.requests, *(" / ".join(f"{x:.3f}" for x in of.seconds[name]) for name in TIMES))
        for of in s.latencies
    ]
    which = " / ".join(f"p{p}" for p in PERCENTILES)
    headers = ["arm", "concurrency", "requests", *(f"{_NAMES[name]}, {which}" for name in TIMES)]
    return table(headers, rows, numeric=5)


def goodput(s: Serving) -> str:
    """Requests per second within the bounds."""
    bounds = " and ".join(f"{_NAMES[name]} at most {most:g} s" for name, most in s.bounds.items())
    rows = [
        (of.arm, of.concurrency, number(of.goodput, 3), percent(of.within) if of.within is not None else None)
        for of in s.latencies
    ]
    return f"Goodput: requests with {bounds}.\n\n" + table(
        ["arm", "concurrency", "requests/s within", "share"], rows, numeric=3
    )


def crossovers(s: Serving) -> str:
    """Where each arm stops paying."""
    rows = [(c.arm, number(c.concurrency, 1) if c.concurrency else None, c.pays) for c in s.crossovers]
    return table(["arm", f"as fast as {s.baseline} at", "faster"], rows, numeric=1)


def trials(s: Serving) -> str:
    """Every trial, failed ones with their reason."""
    shared = ["trial", "block", "order", "arm", "engine", "concurrency", "status"]
    columns = [*shared, "tokens_per_s", "output_hash", "reason"]
    rows = [
        [None if pd.isna(cell) else f"{cell:.2f}" if isinstance(cell, float) else cell for cell in row]
        for row in s.trials[columns].itertuples(index=False)
    ]
    return table([*shared, "tokens/s", "output", "reason"], rows)
