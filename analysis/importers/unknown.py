"""What a file is that no format knows, what it lacks, and what to give instead."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.importers.columns import Table
from analysis.importers.json_text import several_values
from analysis.importers.source import Source

_SHOWN = 15
_COUNTS = "accepted or emitted (a row per step) or steps with tokens (a row per response)"
_ANSWERS = "give answers of the server with its counts of drafts, or a row per response with acceptance_lengths"

#: Fields of objects of JSON that are known but hold no counts: (fields, what the object is and lacks).
_OBJECTS: tuple[tuple[frozenset[str], str], ...] = (
    (
        frozenset({"meta_info"}),
        "answers of SGLang whose meta_info has neither spec_verify_ct nor e2e_latency, so no steps and no time; ask a "
        "server that runs with speculative decoding",
    ),
    (
        frozenset({"timings"}),
        "answers of a server whose timings have no predicted_n, so no number of tokens; give the answers as the server "
        "sends them",
    ),
    (
        frozenset({"generation_tokens", "generation_tps"}),
        "timings of MLX without counts of drafts (timings with predicted_n, draft_n and draft_n_accepted)",
    ),
    (
        frozenset({"tokens_per_second", "acceptance_ratio"}),
        "timings of dflash-mlx with a mean acceptance alone, which no number of steps weighs; " + _ANSWERS,
    ),
    (
        frozenset({"object", "choices", "usage"}),
        "answers of an OpenAI-compatible server without counts of drafts; start vLLM with "
        "--per-request-spec-decode-metrics, or take llama.cpp's own endpoint, whose answers have timings",
    ),
    (
        frozenset({"generated_text", "details"}),
        "answers of text-generation-inference, which state no counts of drafts; " + _ANSWERS,
    ),
)
#: Lines of text that are known but hold no counts.
_LINES: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"Avg generation throughput: "),
        "a log of vLLM's server without a line of acceptance ('SpecDecoding metrics'); give the log of a server with a "
        "drafter, under load and with log statistics on",
    ),
    (
        re.compile(r"^(?:Gauge|Counter|Vector|Histogram)\(name='vllm:"),
        "vLLM's get_metrics(), printed, without both of vllm:spec_decode_num_drafts and "
        "vllm:spec_decode_num_accepted_tokens; print all counters of an engine with a drafter",
    ),
    (
        re.compile(r"^(?:# (?:TYPE|HELP) )?(?:vllm|llamacpp|sglang):\w+(?:[{ ])"),
        "metrics of a server without its counters of drafts (spec_decode_num_drafts and "
        "spec_decode_num_accepted_tokens); fetch /metrics of a server with a drafter, after the measurement",
    ),
    (
        re.compile(r"eval time\s*=.*\bms\b"),
        "timings of llama.cpp without a line of 'draft acceptance'; give the log of llama-server with a draft model",
    ),
    (
        re.compile(r"spec decode: .*(?:drafted|accepted)="),
        "lines of an unknown server about its drafts, without the number of verification steps; give its answers with "
        "counts of drafts",
    ),
    (re.compile(r"^\s*\|.*\|\s*$"), "a table in Markdown; save it as CSV or JSON lines"),
)


def described(source: Source, formats: Sequence[str]) -> str:
    """One line on a file that is none of ``formats``: what it is, which field is missing, what to do."""
    if not source.is_parquet and (why := _of_bytes(source) or _of_json(source, formats) or _of_text(source)):
        return why
    return _of_table(source, formats)


def _of_bytes(source: Source) -> str | None:
    head = source.head[:4096]
    if not head.strip():
        any(source.lines())  # reads on, to where a compressed file breaks off
        damage = next((problem.reason for problem in source.damage), None)
        return f"{damage}; copy or pack it again" if damage else "the file has blank lines alone"
    if "\x00" in head and sum((c < " " and c not in "\t\r\n") or c == "�" for c in head) > len(head) // 50:
        return "a binary file, not a log; give text (JSON lines, CSV, log lines) or Parquet"
    return None


def _of_json(source: Source, formats: Sequence[str]) -> str | None:
    """Of a file that is JSON, or looks like it."""
    if several_values(source.head) and not source.sample:
        return "several JSON values one after the other, each over several lines; write each on a line of its own"
    # a log line may begin with a date in brackets
    if re.match(r"\s*(\{|\[\s*([\[{\"]|$))", source.head) and source.document is None and not source.sample:
        return "looks like JSON, but is damaged or cut off"
    rows = source.sample
    if not rows:
        if isinstance(source.document, list):
            return "a JSON list without objects, so its numbers have no names; write objects, one a line"
        return None
    known = next((why for fields, why in _OBJECTS if fields <= rows[0].keys()), None)
    if known is not None:
        return known
    if str(rows[0].get("backend", "")).startswith("sglang"):
        return "a result of SGLang's bench_serving without accept_length and output_throughput; give its --output-file"
    if "prompt_id" in rows[0] or len(rows) > 1 or not _is_nested(rows[0]):
        return None  # a table, whose columns are told
    return (
        f"JSON, an object with the fields {_fields(rows[0])}, in which no record of a known tool is found; needed are "
        f"objects, one for each response or step, with prompt_id and {_COUNTS} (--map rows=PATH[] says where they "
        f"stand, --map FIELD=NAME what a field is called; known formats: {', '.join(formats)})"
    )


def _is_nested(row: Mapping[str, Any]) -> bool:
    """Whether most of an object is objects and lists: no row of a table."""
    return 2 * sum(isinstance(value, dict | list) for value in row.values()) >= len(row) > 0


def _fields(row: Mapping[str, Any]) -> str:
    names = list(row)
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _of_text(source: Source) -> str | None:
    """Of lines of prose, which are no table."""
    if source.sample or _columns(source):
        return None
    for line in source.opening():
        if why := next((why for shape, why in _LINES if shape.search(line)), None):
            return why
    return (
        "text of which no line states acceptance as vLLM, SGLang, llama.cpp or their benchmarks print it; give the log "
        "of a server with a drafter, its counters (/metrics), or a table (CSV, JSON lines or Parquet) with prompt_id "
        f"and {_COUNTS}"
    )


def _columns(source: Source) -> list[str]:
    """The names of the columns, if the file looks like a table."""
    names = list(Table.open(source, {}).names)
    is_table = len(names) > 1 and all(len(name) <= 40 and not re.search(r": |[%'=|]", name) for name in names)
    return names if is_table else []


def _of_table(source: Source, formats: Sequence[str]) -> str:
    names = _columns(source)
    seen = f"; it has {', '.join(names[:_SHOWN])}" if names else ""
    missing = [] if "prompt_id" in names else ["prompt_id"]
    if "steps" in names:
        missing.append("tokens or output_tokens")
    elif not {"accepted", "emitted", "acceptance_lengths"} & set(names):
        missing.append(_COUNTS)
    return (
        f"no log that is known{seen}; of a plain table are missing: {', '.join(missing)} (--map FIELD=COLUMN names its "
        "columns; analysis.compare --value COLUMN takes one number per prompt; --format names a format: "
        f"{', '.join(formats)})"
    )
