"""The JSON Schema of ``result.json``, from the dataclasses that it is written from.

The published file is ``analysis/report/result.schema.json``; ``python -m analysis.report.result_schema`` prints what
it should hold.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pandas as pd

from analysis.cautions import Caution
from analysis.comparison.factorial import Factorial
from analysis.comparison.facts import DatasetFacts
from analysis.comparison.scaling import Scaling
from analysis.comparison.seed_study import SeedComparison
from analysis.comparison.values import ValueComparison
from analysis.errors import run_command
from analysis.measures.aggregate import Total, TotalsComparison
from analysis.measures.anchors import Anchors
from analysis.measures.baseline import AgainstBaseline
from analysis.measures.benchmark_table import BenchmarkTable
from analysis.measures.changes import Change
from analysis.measures.controls import Control
from analysis.measures.explained import Explained
from analysis.measures.exploration import Declaration
from analysis.measures.fairness import ArmDifference, FairnessRow
from analysis.measures.gain import GainBySpread
from analysis.measures.headroom import Headroom
from analysis.measures.lossless import Outputs
from analysis.measures.missing import Bounds, Missing
from analysis.measures.positions import Positions
from analysis.measures.serving import Serving
from analysis.measures.speed import Speed
from analysis.measures.throughput import Throughput
from analysis.measures.times_alone import TimesComparison
from analysis.report.result import RESULT_VERSION
from analysis.stats.datasets import Heterogeneity, Interaction
from analysis.stats.estimate import Estimate
from analysis.stats.ranking import Ranking
from analysis.stats.sequential import Sequential
from analysis.stats.shift import Shift
from analysis.wording import Estimand

_Schema = dict[str, Any]
_ROWS = {"type": "array", "items": {"type": "object"}}
_ARM = {"name": str, "label": str}

#: What the members of each kind of result are.
_COMPARISON: dict[str, Any] = {
    "protocol": Literal["replay", "generate", "prefix"],
    "declaration": Declaration,
    "overall": Estimate,
    "others": tuple[Estimate, ...],
    "by_dataset": Mapping[str, Estimate],
    "by_seen": Mapping[str, Estimate],
    "heterogeneity": Heterogeneity | None,
    "interactions": tuple[Interaction, ...],
    "datasets": tuple[DatasetFacts, ...],
    "position_difference": pd.DataFrame,
    "speed": Speed | None,
    "outputs": Outputs,
    "throughput": Throughput | None,
    "anchors": Anchors | None,
    "headroom": tuple[Headroom, ...],
    "explained": tuple[Explained, ...],
    "changes": tuple[Change, ...],
    "shift": Shift | None,
    "sequential": Sequential | None,
    "baseline": AgainstBaseline | None,
    "published": pd.DataFrame,
    "benchmarks": BenchmarkTable | None,
    "controls": tuple[Control, ...],
    "gain": GainBySpread | None,
    "fairness": tuple[FairnessRow, ...],
    "differences": tuple[ArmDifference, ...],
    "cautions": tuple[Caution, ...],
}
_PAIRS = {"pairs": int, "prompts": int, "evaluated_a": int, "evaluated_b": int, "coverage": float, "lost": pd.DataFrame,
          "missing": tuple[Missing, ...], "full_set": Bounds | None}  # fmt: skip
_MATRIX_ARM = {**_ARM, "overall": Estimate, "by_dataset": Mapping[str, Estimate]}


#: Of a comparison of values: what result.json holds in another place or form.
_NOT_AS_THEY_ARE = ("pairs", "missing", "full_set", "estimand")


class _Builder:
    """Schemas of annotations; every dataclass becomes a definition of its own, once."""

    def __init__(self) -> None:
        self.definitions: dict[str, _Schema] = {}
        self._classes: dict[str, type] = {}

    def of(self, annotation: Any) -> _Schema:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(argument) for argument in arguments]}
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin is tuple and arguments[-1] is not Ellipsis:
            return {"type": "array", "prefixItems": [self.of(a) for a in arguments], "maxItems": len(arguments)}
        if origin in (tuple, Sequence):
            return {"type": "array", "items": self.of(arguments[0])}
        if origin is Mapping:
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        if annotation is Estimand:
            return {"type": "string", "description": "key of an estimand"}
        if isinstance(annotation, type) and issubclass(annotation, StrEnum):
            return {"enum": [str(word) for word in annotation]}
        if dataclasses.is_dataclass(annotation):
            return self._definition(annotation)
        return dict(_PLAIN[annotation])

    def object(self, members: Mapping[str, Any]) -> _Schema:
        properties = {name: a if isinstance(a, dict) else self.of(a) for name, a in members.items()}
        return {
            "type": "object",
            "properties": properties,
            "required": sorted(properties),
            "additionalProperties": False,
        }

    def _definition(self, cls: Any) -> _Schema:
        name = cls.__name__
        if self._classes.setdefault(name, cls) is not cls:
            raise TypeError(f"two classes of results are called {name}: {cls} and {self._classes[name]}")
        if name not in self.definitions:
            self.definitions[name] = {}  # a class may hold itself
            hints = get_type_hints(cls)
            schema = self.object({field.name: hints[field.name] for field in dataclasses.fields(cls)})
            about = " ".join((cls.__doc__ or "").split()).replace("``", "")
            self.definitions[name] = {"description": about, **schema}
        return {"$ref": f"#/$defs/{name}"}


_PLAIN: dict[Any, _Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
    pd.DataFrame: _ROWS,
}


def json_schema() -> _Schema:
    """JSON Schema (2020-12) of every kind of ``result.json``."""
    build = _Builder()
    arm = build.object({**_ARM, "positions": Positions, "gates": {"anyOf": [_ROWS, {"type": "null"}]}})
    estimand = {field.name: str for field in dataclasses.fields(Estimand)}
    kinds: dict[str, Mapping[str, Any]] = {
        "comparison": {
            **_COMPARISON,
            "estimands": {"type": "array", "items": build.object(estimand)},
            "arms": build.object({"a": arm, "b": arm}),
            "pairs": build.object(_PAIRS),
        },
        "matrix": {
            "first": build.object(_ARM),
            "arms": {"type": "array", "items": build.object(_MATRIX_ARM)},
            "ranking": Ranking | None,
        },
        "seeds": {
            field.name: get_type_hints(SeedComparison)[field.name] for field in dataclasses.fields(SeedComparison)
        },
        "factorial": get_type_hints(Factorial),
        "scaling": get_type_hints(Scaling),
        "serving": get_type_hints(Serving),
        "totals": {
            **{name: a for name, a in get_type_hints(TotalsComparison).items() if name != "rows"},
            "rows": {"type": "array", "items": build.object({"subset": str, "a": Total, "b": Total})},
        },
        "times": get_type_hints(TimesComparison),
        "values": {
            **{name: a for name, a in get_type_hints(ValueComparison).items() if name not in _NOT_AS_THEY_ARE},
            "estimand": build.object(estimand),
            "pairs": build.object(_PAIRS),
        },
    }
    common = {"result_version": {"const": RESULT_VERSION}, "title": str | None, "question": str | None}
    shapes = [build.object({**common, "kind": {"const": kind}, **members}) for kind, members in kinds.items()]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "result.json of a draftlab report",
        "oneOf": shapes,
        "$defs": dict(sorted(build.definitions.items())),
    }


def text() -> str:
    """The published file."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the schema."""
    print(text(), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
