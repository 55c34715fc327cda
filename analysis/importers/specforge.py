"""Results of SpecForge: aggregates per benchmark and configuration, without rows per prompt.

* ``bench_eagle3.py``: one indented JSON object, often under a .jsonl name: {"model": ..., "gsm8k": [{"batch_size",
  "steps", "topk", "num_draft_tokens", "num_samples", "metrics": [{"accept_length", "output_throughput", ...}]}]}.
  accept_length is completion tokens over verification steps (1.0 where there was no verification).
* the published bundle ``data.json``: model -> benchmark -> {"benchmark_name", "results": [...]}.
* ``specforge benchmark sglang``: one object with "average_acceptance_length", a mean over requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from analysis.importers.model import (
    MOST_AT_ONCE,
    Aggregate,
    Found,
    Imported,
    RowError,
    optional_integer,
    optional_real,
    optional_total,
    problem,
)
from analysis.importers.source import Problem, Source
from analysis.runlog.counting import Counting

NAME = "SpecForge results"
#: How the bundle calls a server without a drafter, misspelt too.
_WITHOUT = re.compile(r"^\s*(none|base(line)?|wi(th|ht)out\b.*|no (draft|spec).*|vanilla)\s*$", re.IGNORECASE)
_COUNTING = Counting(prefill_token="inside", last_step="unknown", time="prefill and decode")


def recognise(source: Source) -> int:
    """1 for a SpecForge result."""
    document = source.first_value
    if not isinstance(document, dict):
        return 0
    return int("average_acceptance_length" in document or any(_results(document)) or any(_bundle(document)))


def read(source: Source) -> Found:
    """One run of aggregates per target, and per drafter of it where measurements name theirs."""
    document = source.first_value
    problems: list[Problem] = []
    bundle = False
    models: dict[tuple[str, str], list[Aggregate]] = {}
    if "average_acceptance_length" in document:
        rows = [(source.stem, str(document.get("dataset") or "all"), document)]
        name = "average_acceptance_length"
    else:
        rows = [(str(document.get("model") or source.stem), bench, row) for bench, row in _results(document)]
        bundle = not rows
        rows = rows or list(_bundle(document))
        name = "accept_length"
    for number, (model, bench, row) in enumerate(rows, 1):
        entries = row.get("metrics")
        for metrics in entries if isinstance(entries, list) else [row]:
            try:
                if not isinstance(metrics, dict):
                    raise RowError("metrics is not an object")
                drafter = str(metrics.get("Name") or "")
                models.setdefault((model, drafter), []).append(_aggregate(bench, row, metrics, name))
            except RowError as error:
                problems.append(problem(number, error, f"{bench}: "))
    targets = {model for model, _ in models}
    named = bundle or "model" in document
    runs = []
    for (model, drafter), aggregates in models.items():
        parts = [*([model] if len(targets) > 1 or not drafter else []), *([drafter] if drafter else [])]
        runs.append(
            Imported(
                format=NAME,
                label="/".join(parts),
                variant="/".join(parts) if len(models) > 1 else None,
                counting=_COUNTING,
                aggregates=aggregates,
                mode="plain" if _WITHOUT.search(drafter) else "draft",
                engine="sglang",
                target=model if named else None,
                unknown=["rows per prompt", "verification steps and drafted tokens", "block size"],
            )
        )
    return Found(runs, problems)


def _results(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(benchmark, configuration), all of them if one has the fields by which they are known."""
    found = [
        (str(bench), entry)
        for bench, entries in document.items()
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
    ]
    if any("metrics" in entry and "num_draft_tokens" in entry for _, entry in found):
        yield from found


def _bundle(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for model, benches in document.items():
        for bench, entry in benches.items() if isinstance(benches, dict) else ():
            results = entry.get("results") if isinstance(entry, dict) and "benchmark_name" in entry else None
            for row in results if isinstance(results, list) else ():
                if isinstance(row, dict):
                    yield str(model), str(bench), row


def _aggregate(bench: str, row: Mapping[str, Any], metrics: Mapping[str, Any], name: str) -> Aggregate:
    settings = [f"{key} {row[key]}" for key in ("batch_size", "steps", "topk", "num_draft_tokens") if key in row]
    tau = optional_real(metrics, name)
    if tau is not None and tau < 1:
        raise RowError(f"{name} is {tau:g}; with the bonus token it is 1 at least")
    throughput = optional_real(metrics, "output_throughput")
    if throughput is None:
        throughput = optional_real(metrics, "throughput_tokens_per_second")
    if tau is None and throughput is None:
        raise RowError(f"neither {name} nor a throughput")
    return Aggregate(
        subset=", ".join([bench, *settings]),
        tau=tau,
        mean_of="requests" if name == "average_acceptance_length" else None,
        drafts=optional_total(metrics, "spec_verify_count"),
        requests=optional_integer(metrics, "num_questions") or optional_integer(metrics, "samples"),
        output_tokens=optional_total(metrics, "output_tokens"),
        concurrency=optional_integer(row, "batch_size", most=MOST_AT_ONCE),
        duration_s=optional_real(metrics, "latency") or optional_real(metrics, "latency_seconds"),
        tokens_per_s=throughput,
    )
