"""What an importer tells about a run: rows, numbers by name, how it counts, and what it could not know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analysis.importers.model import PER_DRAFT, Aggregate, Imported
from analysis.wording import counted


@dataclass(frozen=True)
class Lengths:
    """Tokens per step of a run's responses, three ways; None without a step.

    ``pooled``: all tokens over all steps. ``over_prompts``: mean of the ratios of prompts, the turns of a prompt
    together. ``over_responses``: mean of the ratios of responses, each the answer to one turn.
    """

    tokens: int
    steps: int
    pooled: float | None
    over_prompts: float | None
    over_responses: float | None


def lengths(run: Imported) -> Lengths:
    """The three means of a run with responses."""
    turns = [(r.key, r.tokens or 0, r.steps) for r in run.responses if r.steps]
    tokens, steps = sum(t for _, t, _ in turns), sum(s for _, _, s in turns)
    if not steps:
        return Lengths(tokens, steps, None, None, None)
    prompts: dict[tuple[str, int], list[int]] = {}
    for (prompt, _, sample), t, s in turns:
        total = prompts.setdefault((prompt, sample), [0, 0])
        total[0] += t
        total[1] += s
    over_prompts = sum(t / s for t, s in prompts.values()) / len(prompts)
    return Lengths(tokens, steps, tokens / steps, over_prompts, sum(t / s for _, t, s in turns) / len(turns))


def describe(run: Imported) -> Iterator[str]:
    """Lines about one run."""
    title = run.label if run.variant in (None, run.label) else f"{run.variant}, {run.label}"
    settings = [f"target {run.target}"] if run.target else []
    settings += [f"temperature {run.temperature:g}"] if run.temperature is not None else []
    settings += ["no drafter: plain decoding"] if run.mode == "plain" else []
    yield f"arm: {title}" + (f" ({', '.join(settings)})" if settings else "")
    yield from _responses(run) if run.responses else _aggregates(run.aggregates)
    yield f"counting: {run.counting}"
    yield from (f"note: {note}" for note in run.notes)
    if run.unknown:
        yield f"not known: {', '.join(run.unknown)}"


def _responses(run: Imported) -> Iterator[str]:
    prompts = {(r.prompt_id, r.dataset) for r in run.responses}
    datasets = Counter(dataset for _, dataset in prompts if dataset)
    n, found = len(run.responses), lengths(run)
    steps = counted(found.steps, "verification step")
    yield f"found: {counted(n, 'response')} to {counted(len(prompts), 'prompt')}, {steps}"
    named = ", ".join(f"{name} {count:,}" for name, count in sorted(datasets.items()))
    yield f"data sets: {named or 'not named'}"
    if found.pooled is None:
        yield "tokens per step: no response has a step"
        return
    several = f"; mean over prompts {found.over_prompts:.4f}" if n > len(prompts) else ""
    yield f"tau (tokens per step): pooled {found.pooled:.4f}; mean over responses {found.over_responses:.4f}{several}"
    if none := sum(not r.steps for r in run.responses):
        yield f"responses without a step, outside these means: {none:,}"


def _aggregates(aggregates: Sequence[Aggregate]) -> Iterator[str]:
    yield f"found: totals only ({len(aggregates):,}), no rows per prompt"
    for a in aggregates[:20]:
        unit = "draft" if a.mean_of == PER_DRAFT else "step"
        mean_of = f" (mean over {a.mean_of})" if a.mean_of else ""
        parts = [] if a.tau is None else [f"tokens per {unit} {a.tau:.4f}{mean_of}"]
        parts += [] if a.drafts is None else [counted(a.drafts, unit)]
        parts += [] if a.tokens_per_s is None else [f"{a.tokens_per_s:,.1f} tokens/s"]
        parts += [f"times of {counted(len(a.served), 'request')}"] if a.served else []
        yield f"  {a.subset}: {', '.join(parts) or 'nothing that can be compared'}"
    if len(aggregates) > 20:
        yield f"  and {len(aggregates) - 20:,} more"
