"""Summaries that are one document: SpecForge, CAST and ModelOpt (JSON), and the table of speculators (CSV)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from analysis.importers.model import Imported
from benchmarks.fuzz_importers.damage import Format, Record, csv_lines
from benchmarks.fuzz_importers.declared import UNKNOWN, Counts
from benchmarks.fuzz_importers.formats import step_lengths


def _entry(rng: Random, number: int) -> tuple[Record, Counts]:
    """A configuration of a benchmark, as SpecForge measures it."""
    tau = rng.uniform(1.2, 6)
    row = {"batch_size": number + 1, "steps": 3, "topk": 1, "num_draft_tokens": 4, "num_samples": 2}
    return {**row, "metrics": [{"latency": 2.0, "accept_length": tau, "num_questions": 2}]}, (tau,)


def _specforge(records: Sequence[Record]) -> list[str]:
    return [json.dumps({"model": "toy", "gsm8k": records[:10], "mtbench": records[10:]})]


def _sum_of_taus(runs: Sequence[Imported]) -> Counts:
    return (sum(a.tau or 0.0 for run in runs for a in run.aggregates),)


def _domain(rng: Random, number: int) -> tuple[Record, Counts]:
    """A domain of CAST: times of the same prompts under two arms."""
    times = [[rng.uniform(2, 20) for _ in range(5)] for _ in range(2)]
    row = {"name": f"domain {number}", "dflash_ms": times[0], "cast_ms": times[1], "n": 5}
    return row, (10, sum(map(sum, times)))


def _cast(records: Sequence[Record]) -> list[str]:
    domains = {r["name"]: {k: v for k, v in r.items() if k != "name"} for r in records}
    return [json.dumps({"toy": {"target": "toy-8b", "seeds": 3, "domains": domains}})]


def _times(runs: Sequence[Imported]) -> Counts | None:
    """Of both arms; None where one of them is not there."""
    if len(runs) < 2:
        return None
    responses = [r for run in runs for r in run.responses]
    return len(responses), sum(1000 * (r.seconds or 0.0) for r in responses)


def _histogram(rng: Random, number: int) -> tuple[Record, Counts]:
    """A measurement of ModelOpt; the tool appends each to a list."""
    requests = {str(i): {"0": step_lengths(rng)} for i in range(3)}
    lengths = [n for turns in requests.values() for n in turns["0"]]
    means = {i: {"0": sum(of["0"]) / len(of["0"])} for i, of in requests.items()}
    fields: dict[str, Any] = {
        "Request_AL": means,
        "Average_AL": sum(of["0"] for of in means.values()) / 3,
        "Acceptance_Length_Histogram": {str(k): n for k, n in sorted(Counter(lengths).items())},
        "Conditional_Acceptance_Rate": {"1": 1.0},
    }
    return {"acceptance_rate": fields}, (sum(lengths), len(lengths))


def _subset(rng: Random, number: int) -> tuple[Record, Counts]:
    """A row of speculators: drafts of 2 tokens."""
    drafts = rng.randint(20, 400)
    first = rng.randint(1, drafts)
    at = [first, rng.randint(0, first)]
    row = {"subset": f"s{number}", "num_drafts": drafts, "num_draft_tokens": 2 * drafts}
    row |= {"num_accepted_tokens": sum(at), "acceptance_length": 1 + sum(at) / drafts}
    return {**row, **{f"acceptance_at_pos_{i}": n / drafts for i, n in enumerate(at)}}, (drafts + sum(at), drafts)


_MODELOPT = [("acceptance_rate", name) for name in ("Request_AL", "Average_AL", "Acceptance_Length_Histogram")]
FORMATS = (
    Format("SpecForge", "specforge", _entry, [("metrics", 0, "accept_length"), ("metrics",)],
           [("metrics", 0, "latency"), ("topk",), ("num_draft_tokens",)], whole=True,
           only_once=[("num_draft_tokens",)], render=_specforge, measure=_sum_of_taus),
    Format("CAST", "cast", _domain, [("dflash_ms",), ("cast_ms",)], [("n",)], [("dflash_ms",), ("cast_ms",)],
           whole=True, render=_cast, measure=_times, also=(UNKNOWN,)),
    Format("ModelOpt", "modelopt", _histogram, _MODELOPT, [("acceptance_rate", "Conditional_Acceptance_Rate")],
           whole=True, render=lambda records: [json.dumps(list(records))]),
    Format("speculators", "speculators", _subset, [("num_drafts",), ("num_draft_tokens",), ("num_accepted_tokens",)],
           [("acceptance_length",)], csv=True, render=csv_lines),
)  # fmt: skip
