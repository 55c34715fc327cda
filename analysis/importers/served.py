"""Times of single requests in the results of serving benchmarks (vLLM's ``bench serve --save-detailed``, SGLang's
``bench_serving --output-details``): lists side by side, an entry per request.

A failed request has an entry in ``errors`` and zeros for times. ``itls`` are the pauses between the pieces that came
in, so the time to the first piece and all pauses make the whole time, which newer versions also state (``latencies``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from analysis.importers.model import Request, RowError, integer, real
from analysis.importers.totals import require_close

_LENGTHS = {"random_input_len": "tokens in", "random_output_len": "tokens out"}
_LISTS = ("ttfts", "itls", "latencies", "output_lens", "errors", "generated_texts")


def load_of(row: Mapping[str, Any]) -> str:
    """Under which load a result was measured, as far as it says: a name by which two results may be set beside each
    other."""
    told = []
    if isinstance(row.get("dataset_name"), str):
        told.append(row["dataset_name"])
        if row["dataset_name"].startswith("random"):
            told += [f"{row[name]} {what}" for name, what in _LENGTHS.items() if isinstance(row.get(name), int)]
    if isinstance(row.get("max_concurrency"), int):
        told.append(f"concurrency {row['max_concurrency']}")
    if isinstance(row.get("request_rate"), int | float | str):
        told.append(f"request rate {row['request_rate']}")
    return ", ".join(told) or "load not stated"


#: Names of results that are measured, not set, beside those with the endings below. What else a result holds was set
#: by whoever ran the benchmark (vLLM's ``--metadata KEY=VALUE`` stands among the results).
_MEASURED = frozenset(
    [
        *("date", "completed", "failed", "duration", "accept_length", "rtfx", "concurrency", "num_requests"),
        *("max_concurrent_requests", "total_input_tokens", "total_output_tokens", "total_output_tokens_retokenized"),
        *("total_input", "total_output", "output_throughput", "request_throughput", "input_throughput"),
        "total_throughput",
    ]
)
#: Names of the load, which :func:`load_of` tells, and of the arm.
_TOLD = frozenset(["dataset_name", "max_concurrency", "request_rate", "label", "tag", "model_id", "tokenizer_id"])
_MEASURED_SHAPE = re.compile(
    r"(mean|median|std|min|max|avg|p\d+)_.*|.*_(ms|s|seconds|throughput|goodput|per_s)|spec_.*"
)
#: Settings that may have a fraction; other numbers with one are taken for measurements.
_REAL_SETTINGS = frozenset(["temperature", "top_p", "burstiness", "random_range_ratio", "request_rate"])


def settings_of(row: Mapping[str, Any]) -> dict[str, str]:
    """How a result was measured, by the names of the file: the scalars that are no measurement, and its input tokens,
    in which other prompts show."""
    found = {
        name: str(value)
        for name, value in row.items()
        if isinstance(value, str | int | bool) or (isinstance(value, float) and name in _REAL_SETTINGS)
        if name not in _MEASURED | _TOLD and not _MEASURED_SHAPE.fullmatch(name)
    }
    if isinstance(row.get("total_input_tokens"), int):
        found["total_input_tokens"] = str(row["total_input_tokens"])
    return found


def requests_of(row: Mapping[str, Any]) -> list[Request]:
    """The requests of a result, none if it has no times of them. Raises RowError for lists of different lengths, for
    times that are none, and where times or completed requests are not what the totals say."""
    lists = {name: row[name] for name in _LISTS if isinstance(row.get(name), list)}
    if not {"ttfts", "latencies"} & lists.keys():
        return []
    n = len(lists.get("ttfts", lists.get("latencies", [])))
    if odd := next((name for name, values in lists.items() if len(values) != n), None):
        raise RowError(f"{odd} has {len(lists[odd])} entries, ttfts or latencies {n}")
    found = [_request({name: values[i] for name, values in lists.items()}, i) for i in range(n)]
    completed = [request for request in found if request.ok]
    if row.get("completed") is not None and len(completed) != row["completed"]:
        if "errors" not in lists:
            return []  # some failed, and nothing says which
        raise RowError(f"completed is {row['completed']}, but {len(completed)} requests have no error")
    for name, times in (
        ("mean_ttft_ms", [r.ttft_s for r in completed]),
        ("mean_e2el_ms", [r.e2e_s for r in completed]),
    ):
        stated, known = row.get(name), [t for t in times if t is not None]
        if isinstance(stated, int | float) and known and len(known) == len(times):
            mean = 1000 * math.fsum(known) / len(known)
            require_close(float(stated), mean, name, 0.01 * mean + 1e-6)
    return found


def _request(entry: Mapping[str, Any], number: int) -> Request:
    ttft, whole, pauses = (entry.get(name) for name in ("ttfts", "latencies", "itls"))
    tokens = entry.get("output_lens")
    if entry.get("errors"):
        return Request(False, None, None, None, None)
    first = None if ttft is None else real(ttft, f"ttfts[{number}]")
    if whole is not None:
        e2e: float | None = real(whole, f"latencies[{number}]")
    elif first is not None and isinstance(pauses, list):
        e2e = first + math.fsum(real(pause, f"itls[{number}][{i}]") for i, pause in enumerate(pauses))
    else:
        e2e = None
    text = entry.get("generated_texts")
    return Request(
        ok=True,
        ttft_s=first,
        e2e_s=e2e,
        output_tokens=None if tokens is None else integer(tokens, f"output_lens[{number}]"),
        text=text if isinstance(text, str) else None,
    )
