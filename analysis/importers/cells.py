"""What the text of a CSV cell means, by the field that it stands for."""

from __future__ import annotations

import json
import re
from typing import Any

from analysis.importers.arms import PREFIX

#: Fields that are text whatever their cells look like: "007" is no 7, "12e4" no number, and 20 digits are an id.
NAMES = frozenset(["prompt_id", "dataset", "category"])
_TEXTS = frozenset(["question", "text"])
_LISTS = frozenset(["acceptance_lengths"])
_REALS = frozenset(["seconds", "prefill_s"])
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:[.,]\d{3})+")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")


def value_of(cell: str, field: str, delimiter: str) -> Any:
    """The value; None for a blank cell, and the text itself where it is not what the field wants.

    Numbers are ASCII, without underscores. A comma is a decimal one where it does not part cells. Digits grouped by
    thousands are no count, for 1.000 might be one or a thousand.
    """
    text = cell.strip()
    if not text or field in NAMES or field.startswith(PREFIX):
        return text or None
    if field in _TEXTS:
        return cell
    if field in _LISTS:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    if not text.isascii() or "_" in text:
        return text
    try:
        return int(text) if len(text) < 20 else float(text)
    except ValueError:
        return _real(text, field, delimiter)


def _real(text: str, field: str, delimiter: str) -> float | str:
    if field not in _REALS and _GROUPED.fullmatch(text):
        return text
    if delimiter != "," and _DECIMAL_COMMA.fullmatch(text):
        text = text.replace(",", ".")
    try:
        return float(text)
    except ValueError:
        return text
