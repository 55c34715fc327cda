"""Tables of a row per verification step: CSV, JSON lines and Parquet. A record is a prompt, with all its rows."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.fuzz_importers.damage import Format, Record, csv_lines, json_lines
from benchmarks.fuzz_importers.declared import Counts
from benchmarks.fuzz_importers.formats import step_lengths


def _prompt(rng: Random, number: int) -> tuple[Record, Counts]:
    """A prompt's rows, one per step, and its tokens and steps. The row that is damaged is the first."""
    lengths = step_lengths(rng)
    rows = [{"prompt_id": f"p{number}", "step": i, "accepted": n - 1, "drafted": 7} for i, n in enumerate(lengths)]
    return rows, (sum(lengths), len(lengths))


def _flat(render: Callable[[Sequence[Record]], list[str]]) -> Callable[[Sequence[Record]], list[str]]:
    return lambda records: render([row for record in records for row in record])


def _parquet(records: Sequence[Record]) -> bytes:
    rows: list[dict[str, Any]] = [row for record in records for row in record]
    names = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.BytesIO()
    pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), buffer)
    return buffer.getvalue()


def _step(records: Sequence[Record], line: int) -> Counts:
    return [row for record in records for row in record][line]["accepted"] + 1, 1


_ESSENTIAL, _OPTIONAL = [(0, "prompt_id"), (0, "accepted"), (0, "step")], [(0, "drafted")]
#: Without numbers of its own a step has that of its row, so that ``step`` may be called otherwise everywhere.
_KEPT: dict[str, Any] = {"rows_of": len, "only_once": [(0, "step")]}
FORMATS = (
    Format("steps, CSV", "plain", _prompt, _ESSENTIAL, _OPTIONAL, csv=True, render=_flat(csv_lines), part_at=_step,
           **_KEPT),
    Format("steps, JSON lines", "plain", _prompt, _ESSENTIAL, _OPTIONAL, render=_flat(json_lines), part_at=_step,
           **_KEPT),
    Format("steps, Parquet", "plain", _prompt, _ESSENTIAL, _OPTIONAL, binary=_parquet, suffix=".parquet", **_KEPT),
)  # fmt: skip
