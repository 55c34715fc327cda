"""Sections of a configuration: checked when they are read, closed to unknown fields, errors that name the field."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from analysis.errors import DataError

Kind = TypeVar("Kind", bound=BaseModel)


class Settings(BaseModel):
    """A section of a configuration: immutable, and closed to unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def parse(kind: type[Kind], data: Any, where: str) -> Kind:
    """Validate settings; DataError names the first field that is wrong, and the nearest one for a misspelt name."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = [str(part) for part in first["loc"]]
        field = f"'{'.'.join(place)}': " if place else ""
        reason = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            known = _fields_at(kind, place[:-1])
            near = difflib.get_close_matches(place[-1], known, n=1)
            reason = f"no such field; did you mean {near[0]}?" if near else f"no such field; known: {', '.join(known)}"
        raise DataError(f"{where}: {field}{reason}") from error


def _fields_at(kind: type[BaseModel], place: Sequence[str]) -> list[str]:
    """Names of the fields of the section at ``place`` inside ``kind``; list positions lead to the section in them."""
    for name in place:
        if name in kind.model_fields:
            kind = next(_sections(kind.model_fields[name].annotation), kind)
    return list(kind.model_fields)


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _sections(part)
