"""Markdown with escaped names, tables and templates. Names come from files and may contain anything."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import jinja2

from analysis.wording import one_line

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$&!])")


def escape(text: object) -> str:
    """``text`` as literal Markdown on one line: nothing in it starts markup, HTML, maths or a new cell."""
    return _SPECIAL.sub(r"\\\1", one_line(text))


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], numeric: int = 0) -> str:
    """A Markdown table with escaped cells; None becomes a dash; the last ``numeric`` columns are right-aligned."""
    lines = [list(map(escape, headers))]
    lines.append(["---" if i < len(headers) - numeric else "---:" for i in range(len(headers))])
    lines += [["—" if cell is None else escape(cell) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def anchor(heading: str) -> str:
    """The anchor of a heading, by GitHub's rule: lower case, hyphens for spaces, no punctuation."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def fill(template: str, **values: Any) -> str:
    """A template of ``templates/`` with these values; its filter ``md`` escapes."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("analysis.report"),
        autoescape=False,  # Markdown; escape() is applied to every name
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["md"] = escape
    text = environment.get_template(template).render(**values)
    return re.sub(r"\n{3,}", "\n\n", text)  # omitted sections leave no gap
