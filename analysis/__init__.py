"""From runs of speculative-decoding drafters to conclusions: ``from analysis import compare_runs``.

Importing the package costs nothing: what it offers is loaded when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.comparison import Comparison, compare_runs

__all__ = ["Comparison", "compare_runs"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from analysis import comparison

        return getattr(comparison, name)
    raise AttributeError(f"module 'analysis' has no attribute '{name}'")
