"""Rows that stand under a key of one JSON object: ``{"config": ..., "per_sample": [{...}, ...]}``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_DEEPEST = 4


def lists_of_records(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of lists of objects below a JSON object, through objects alone."""
    if not isinstance(value, dict) or len(path) == _DEEPEST:
        return
    for name, inner in value.items():
        if isinstance(inner, list) and inner and all(isinstance(item, dict) for item in inner):
            yield (*path, name)
        else:
            yield from lists_of_records(inner, (*path, name))


def parse_path(text: str) -> tuple[str, ...]:
    """The keys of ``a.b[]``."""
    return tuple(text.removesuffix("[]").split("."))


def at(value: Any, path: tuple[str, ...]) -> Any:
    """The value under the keys; None if there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
