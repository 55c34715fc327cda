"""JSON values of a text: strict about repeated keys, and safe from deep nesting and halves of surrogate pairs."""

from __future__ import annotations

import json
from typing import Any


def parse(text: str) -> Any:
    """A JSON value. Raises ValueError for what is none, for one nested too deeply, and for a repeated key, whose
    value would depend on the reader."""
    try:
        value = _DECODER.decode(text)
        return _encodable(value) if "\\ud" in text or "\\uD" in text else value
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def several_values(text: str) -> bool:
    """Whether a text begins with two JSON objects or arrays, of which one begins where the other ends."""
    text = text.lstrip()
    try:
        _, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return text.startswith(("{", "[")) and text[end:].lstrip().startswith(("{", "["))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key '{next(n for n in names if names.count(n) > 1)}' is given twice")
    return value


#: Made once: json.loads would make one for every line.
_DECODER = json.JSONDecoder(object_pairs_hook=_object)


def _encodable(value: Any) -> Any:
    """The value with "?" for halves of surrogate pairs, which JSON can escape but no file can hold."""
    if isinstance(value, str):
        return value.encode("utf-8", errors="replace").decode()
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return value
