"""The hook between results and their rendering, so that results do not depend on reports.

The package registers the renderer (``analysis/__init__.py``). It is loaded when a result is first shown: comparing in a
script needs neither templates nor matplotlib.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol


class Renderer(Protocol):
    """The ways to show a result (:mod:`analysis.report.notebook`)."""

    def headline(self, result: Any) -> str: ...
    def summary(self, result: Any) -> str: ...
    def report(self, result: Any) -> str: ...
    def figures(self, result: Any) -> list[Any]: ...
    def save(self, result: Any, folder: Path) -> Path: ...
    def latex(self, result: Any) -> str: ...
    def html(self, result: Any) -> str: ...


_load: Callable[[], Renderer] | None = None


def use_renderer(load: Callable[[], Renderer]) -> None:
    """Show results with the renderer that ``load`` returns; it is called when a result is first shown."""
    global _load
    _load = load


def _renderer() -> Renderer:
    if _load is None:
        raise RuntimeError("no renderer is registered; import the package `analysis` first")
    return _load()


class Shown:
    """A result that shows itself: in a terminal, in a notebook, as Markdown and as figures."""

    def to_markdown(self) -> str:
        """The report as Markdown, with figures by name (``figures/<name>.png``)."""
        return _renderer().report(self)

    def figures(self) -> list[Any]:
        """All figures with data, as :class:`analysis.report.plots.style.Plot`; notebooks display them."""
        return _renderer().figures(self)

    def save(self, folder: str | Path) -> Path:
        """Write the report into ``folder``, as the command does; returns the path of report.md."""
        return _renderer().save(self, Path(folder))

    def to_latex(self) -> str:
        """The table of estimates for a paper (``booktabs``)."""
        return _renderer().latex(self)

    def _repr_html_(self) -> str:
        return _renderer().html(self)

    def __repr__(self) -> str:
        return _renderer().headline(self)

    def _repr_markdown_(self) -> str:
        return _renderer().summary(self)
