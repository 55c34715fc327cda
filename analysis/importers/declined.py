"""Files that are known but hold no log that can be compared: summaries, diagnostics, prompts, means alone."""

from __future__ import annotations

import re
from typing import Any

from analysis.importers.source import Source

_OTHERS = {
    b"BZh": "packed with bzip2; unpack it, or pack it with gzip or zstd, which are read",
    b"\xfd7zXZ\x00": "packed with xz; unpack it, or pack it with gzip or zstd, which are read",
    b"PK\x03\x04": "a zip archive (or an Excel workbook); unpack it, or save its table as CSV",
    **dict.fromkeys(
        (b"\x80\x03", b"\x80\x04", b"\x80\x05"),
        "a Python pickle, which could run code when it is read; write its table as CSV, JSON lines or Parquet",
    ),
    b"\x93NUMPY": "a NumPy array, whose numbers have no names; write a table with columns as CSV or Parquet",
    b"SQLite format 3": "an SQLite database; export its table as CSV",
    b"ARROW1": "an Arrow (Feather) file; save its table as Parquet",
    b"version https://git-lfs": "a pointer of git-lfs, not the file itself; fetch it with: git lfs pull",
}


def foreign(source: Source) -> str | None:
    """Why a file cannot be a log, whatever the user calls it: how it begins; None for all others."""
    with source.path.open("rb") as file:
        start = file.read(1024)
    if start.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return "a web page, not a log; download the file itself (its raw form)"
    return next((why for magic, why in _OTHERS.items() if start.startswith(magic)), None)


def reason(source: Source) -> str | None:
    """Why a known file is declined, in one line; None for a file that is not known as such."""
    document = source.first_value
    if not isinstance(document, dict):
        return None
    if "comparisons" in document and ("conditions" in document or "compression" in document):
        return "a summary of CC-DFlash (means over prompts); import the *_raw.jsonl that it was made from"
    if _has_key(document, "exact_token_parity"):
        return "diagnostics of CC-DFlash (which outputs differ); import the *_raw.jsonl, the report finds them again"
    if {"schema_version", "created_by", "tables"} <= document.keys():
        return "the manifest of a run of draftlab; give the folder, which needs no importing"
    if "result_version" in document and "overall" in document:
        return "the result of a comparison by draftlab, not a log"
    if {"question_id", "turns"} <= document.keys() and "choices" not in document:
        return "prompts without answers; --questions takes them beside an answer file"
    if {"cells", "nbformat"} <= document.keys():
        return "a Jupyter notebook, not a log; write the table in it to a file: frame.to_csv or frame.to_parquet"
    if orient := _orient(document):
        return (
            f'a pandas table in the orient "{orient}"; write it with '
            'frame.to_json(path, orient="records", lines=True), to_csv or to_parquet'
        )
    return None


def _orient(document: dict[str, Any]) -> str | None:
    """Which orient of pandas' ``to_json`` an object is of, records apart."""
    data = document.get("data")
    if "columns" in document and isinstance(data, list) and data and all(isinstance(row, list) for row in data):
        return "split"
    schema = document.get("schema")
    if isinstance(schema, dict) and "fields" in schema and isinstance(document.get("data"), list):
        return "table"
    inner = [list(value) for value in document.values() if isinstance(value, dict)]
    if len(inner) < max(len(document), 1) or not inner[0] or any(keys != inner[0] for keys in inner):
        return None
    if all(key.isdecimal() for key in document):
        return "index"
    return "columns" if all(key.isdecimal() for key in inner[0]) else None


#: What programs print, and what to import instead; for files that are no log that is known.
_PRINTED = (
    (
        re.compile(r"Decode batch.*accept len: "),
        "lines of SGLang's server, of which each tells a mean and no steps to weigh it by; import answers with their "
        "meta_info, or the JSON lines of bench_serving",
    ),
    (
        re.compile(r"sglang:spec_accept_(?:length|rate)\b"),
        "metrics of SGLang, whose acceptance is a mean of the moment and no count; import answers with their "
        "meta_info, or the JSON lines of bench_serving",
    ),
    (
        re.compile(r"Average Acceptance length: "),
        "what DFlash's benchmark.py prints: means of an unknown number of steps; import a row per response with its "
        "acceptance_lengths",
    ),
    (
        re.compile(r"^n_drafted\s*= "),
        "what llama-speculative prints, which tells drafted and accepted tokens but not the number of drafts; import "
        "the log of llama-server",
    ),
    (
        re.compile(r"=+ Serving Benchmark Result =+"),
        "what a serving benchmark prints, without counts of drafts; import the JSON that vLLM writes with "
        "--save-result, SGLang with --output-file",
    ),
)


def reason_of_text(source: Source) -> str | None:
    """Why a text that no format knows is declined, in one line; None for one that is not known either."""
    if source.is_parquet:
        return None
    return next((why for line in source.opening() for shape, why in _PRINTED if shape.search(line)), None)


def _has_key(value: Any, key: str, depth: int = 5) -> bool:
    if depth and isinstance(value, dict):
        return key in value or any(_has_key(item, key, depth - 1) for item in value.values())
    return bool(depth and isinstance(value, list) and value and _has_key(value[0], key, depth - 1))
