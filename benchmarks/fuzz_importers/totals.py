"""Files of one total: the summary of a benchmark, counters of a server, printed numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.fuzz_importers.damage import bytes_of
from benchmarks.fuzz_importers.declared import REFUSED, SAME, Case, Cases, Counts, Mutated, tokens_and_steps


@dataclass(frozen=True)
class Totals:
    """``make``: the fields of one total, in order, and its (tokens, steps); ``essential``, ``optional``: those without
    which it is refused, or the same; ``rates``: a list that cannot be all zeros. ``line``: how a field is written, None
    for JSON."""

    name: str
    key: str
    make: Callable[[Random], tuple[dict[str, Any], Counts]]
    essential: Sequence[str]
    optional: Sequence[str]
    rates: str | None = None
    line: str | None = None


def _drafts(rng: Random) -> tuple[int, list[int]]:
    """(drafts, accepted tokens by position), falling, none of them 0."""
    drafts = rng.randint(30, 4000)
    first = rng.randint(10, drafts)
    second = rng.randint(5, first)
    return drafts, [first, second, rng.randint(1, second)]


def _bench(rng: Random) -> tuple[dict[str, Any], Counts]:
    drafts, at = _drafts(rng)
    accepted, prefix = sum(at), "spec_decode_"
    tokens = drafts + accepted + 2
    return {
        "model_id": "toy",
        "duration": 10.0,
        "completed": 2,
        "total_output_tokens": tokens,
        "output_throughput": tokens / 10,
        f"{prefix}acceptance_rate": 100 * accepted / (3 * drafts),
        f"{prefix}acceptance_length": 1 + accepted / drafts,
        f"{prefix}num_drafts": drafts,
        f"{prefix}draft_tokens": 3 * drafts,
        f"{prefix}accepted_tokens": accepted,
        f"{prefix}per_position_acceptance_rates": [n / drafts for n in at],
    }, (drafts + accepted, drafts)


def _counters(rng: Random) -> tuple[dict[str, Any], Counts]:
    drafts, at = _drafts(rng)
    name = "vllm:spec_decode_num_"
    label = 'engine="0",model_name="toy"'
    return {
        f"{name}drafts_total{{{label}}}": drafts,
        f"{name}draft_tokens_total{{{label}}}": 3 * drafts,
        f"{name}accepted_tokens_total{{{label}}}": sum(at),
        **{f'{name}accepted_tokens_per_pos_total{{{label},position="{i}"}}': n for i, n in enumerate(at)},
    }, (drafts + sum(at), drafts)


def _prints(rng: Random) -> tuple[dict[str, Any], Counts]:
    drafts, at = _drafts(rng)
    accepted = sum(at)
    mean = f"{1 + accepted / drafts:.2f}"
    return {"Drafts": drafts, "Draft tokens": 3 * drafts, "Accepted tokens": accepted, "Acceptance length": mean}, (
        drafts + accepted,
        drafts,
    )


_OF_VLLM = "spec_decode_"
TOTALS = (
    Totals("vLLM bench serve", "vllm", _bench, [f"{_OF_VLLM}num_drafts", f"{_OF_VLLM}accepted_tokens"],
           ["model_id", f"{_OF_VLLM}acceptance_rate", f"{_OF_VLLM}acceptance_length", f"{_OF_VLLM}draft_tokens",
            f"{_OF_VLLM}per_position_acceptance_rates", "total_output_tokens"],
           f"{_OF_VLLM}per_position_acceptance_rates"),
    Totals("Prometheus", "prometheus", _counters,
           ["drafts_total", "num_accepted_tokens_total", 'position="0"', 'position="1"'],
           ["draft_tokens_total"], None, "{} {}.0"),
    Totals("printed totals", "printed", _prints, ["Drafts", "Accepted tokens"],
           ["Draft tokens", "Acceptance length"], None, "{}:    {}"),
)  # fmt: skip


def cases_of(form: Totals, rng: Random) -> Cases:
    """Each mutation of one total: the value is the same, or the log is refused."""
    for what in ("untouched", "drop a field", "rename a field", "repeat a column", "cut a line", "swap the order",
                 "zero a list"):  # fmt: skip
        fields, counts = form.make(rng)
        right: tuple[str, ...] = (SAME,)
        wanted = rng.choice([*form.essential, *form.optional])
        name = next(field for field in fields if wanted in field)
        if what in ("drop a field", "rename a field"):
            value = fields.pop(name)
            if what == "rename a field":
                fields[f"x_{name}"] = value
            right = (REFUSED,) if wanted in form.essential else (SAME,)
        elif what == "swap the order":
            names = list(fields)
            rng.shuffle(names)
            fields = {n: fields[n] for n in names}
        elif what == "zero a list":
            if form.rates is None:
                continue
            fields[form.rates] = [0.0] * 3
            right = (REFUSED,)
        lines = [json.dumps(fields)] if form.line is None else [form.line.format(n, v) for n, v in fields.items()]
        if what == "repeat a column":
            if form.line is not None:
                continue  # a counter that is there twice is a later state of it
            lines[0] = lines[0][:-1] + f', "{name}": {json.dumps(fields[name])}}}'
            right = (REFUSED,)
        elif what == "cut a line":
            place = 0 if form.line is None else list(fields).index(name)
            lines[place] = lines[place][: rng.randrange(1, len(lines[place]) - 1 if form.line is None else len(name))]
            right = (REFUSED,) if form.line is None or wanted in form.essential else (SAME,)
        yield Case(form.name, form.key, what, Mutated(bytes_of(lines), right), [counts], tokens_and_steps)
