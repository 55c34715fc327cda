"""Files that are known but hold no log: summaries, diagnostics, prompts."""

from __future__ import annotations

from typing import Any

from analysis.importers.source import Source


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
    return None


def _has_key(value: Any, key: str, depth: int = 5) -> bool:
    if depth and isinstance(value, dict):
        return key in value or any(_has_key(item, key, depth - 1) for item in value.values())
    return bool(depth and isinstance(value, list) and value and _has_key(value[0], key, depth - 1))
