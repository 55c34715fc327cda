"""From runs of speculative-decoding drafters to conclusions: ``from analysis import compare_runs``.

``compare_runs`` compares two runs, ``compare_many`` several with the first, ``compare_seeds`` several trainings of two
arms, ``compare_factorial`` all combinations of their axes, ``compare_scaling`` runs along one axis. Importing the
package is cheap: modules are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from analysis.display import Renderer, use_renderer

if TYPE_CHECKING:
    from analysis.comparison.entry import compare_runs
    from analysis.comparison.factorial import Factorial, compare_factorial
    from analysis.comparison.matrix import Matrix, compare_many
    from analysis.comparison.pairwise import Comparison
    from analysis.comparison.scaling import Scaling, compare_scaling
    from analysis.comparison.seed_study import SeedComparison, compare_seeds

__all__ = [
    "Comparison",
    "Factorial",
    "Matrix",
    "Scaling",
    "SeedComparison",
    "compare_factorial",
    "compare_many",
    "compare_runs",
    "compare_scaling",
    "compare_seeds",
]

_MODULES = {
    "Comparison": "comparison.pairwise",
    "compare_runs": "comparison.entry",
    "Factorial": "comparison.factorial",
    "compare_factorial": "comparison.factorial",
    "Matrix": "comparison.matrix",
    "compare_many": "comparison.matrix",
    "Scaling": "comparison.scaling",
    "compare_scaling": "comparison.scaling",
    "SeedComparison": "comparison.seed_study",
    "compare_seeds": "comparison.seed_study",
}

use_renderer(lambda: cast(Renderer, import_module("analysis.report.notebook")))


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"analysis.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'analysis' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
