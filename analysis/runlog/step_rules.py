"""Rules that verification steps must satisfy, and the steps that violate them.

Most logs are valid and in order, with each prompt's steps together, and a single pass shows it. Only if that pass fails
are the steps sorted, by DuckDB, to count the violations and name the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.runlog.load import Evaluated
from analysis.runlog.reading import Run
from analysis.runlog.schema import ENDINGS, KEY
from analysis.runlog.steps import of_protocol, step_batches

_MEMORY = "1GiB"
_COLUMNS = [*KEY, "step", "drafted", "eligible", "accepted", "emitted", "ended"]


@dataclass(frozen=True)
class Broken:
    """``count`` steps violate the rule ``what``; ``first``: the prompt of the first such step."""

    what: str
    count: int
    first: str


#: What no step may do, by code: in words, and as SQL. ``last``: whether the step is its prompt's last; ``number``: its
#: place, from 0.
RULES = {
    "accepted-over-drafted": ("accepted more than was drafted", "accepted > drafted"),
    "eligible-over-drafted": ("more slots at risk than were drafted", "eligible > drafted"),
    "accepted-over-eligible": ("accepted more than was at risk", "accepted > eligible"),
    "negative": ("negative counts", "accepted < 0 or drafted < 0 or eligible < 0 or emitted < 0"),
    "emitted-over": ("emitted more than accepted + 1", "emitted > accepted + 1"),
    "emitted-under": ("emitted less than accepted + 1 before the last step", "emitted < accepted + 1 and not last"),
    "ending": ("an ending that is not known", f"ended not in {ENDINGS}"),
    "numbering": ("steps not numbered from 0 on, each once", "step != number"),
}


def broken_rules(evaluated: Evaluated) -> list[Broken]:
    """The rules that steps of the run violate, under its protocol."""
    if _in_order(evaluated):
        return []
    tests = ", ".join(
        f"count(*) filter ({rule}), (arg_min(prompt_id, (prompt_id, step)) filter ({rule}))"
        for _, rule in RULES.values()
    )
    with _database(evaluated.run) as db:
        broken = db.execute(
            f"""select {tests} from (
                select *, row_number() over w - 1 as number, lead(step) over w is null as last
                from steps where protocol = ? window w as (partition by {", ".join(KEY)} order by step))""",
            [evaluated.protocol],
        ).fetchall()[0]
    found = zip(RULES.values(), broken[::2], broken[1::2], strict=True)
    return [Broken(what, count, first) for (what, _), count, first in found if count]


def _in_order(evaluated: Evaluated) -> bool:
    """Whether each prompt's steps are together, numbered from 0, and satisfy every rule."""
    before: tuple[list[object], int, bool] | None = None  # key and number of the last step, and whether it was cut
    starts = 0
    for table in step_batches(evaluated.run, _COLUMNS):
        if not (columns := of_protocol(table, evaluated.protocol)):
            continue
        if _breaks_a_rule(columns):
            return False
        step = columns["step"].to_numpy()
        emitted, whole = columns["emitted"], pc.add(columns["accepted"].cast(pa.int32()), 1)
        cut = pc.fill_null(pc.less(emitted, whole), False).to_numpy(zero_copy_only=False)
        parts = [columns[name] for name in KEY if name != "protocol"]
        numbers = [(p.indices if pa.types.is_dictionary(p.type) else p).to_numpy() for p in parts]
        same = np.logical_and.reduce([part[1:] == part[:-1] for part in numbers])
        goes_on = before is not None and before[0] == [part[0].as_py() for part in parts]
        if goes_on and before is not None and (step[0] != before[1] + 1 or before[2]):
            return False
        if not goes_on and step[0] != 0:
            return False
        if (step[1:] != np.where(same, step[:-1] + 1, 0)).any() or (cut[:-1] & same).any():
            return False
        starts += int((~same).sum()) + (not goes_on)
        before = [part[-1].as_py() for part in parts], int(step[-1]), bool(cut[-1])
    return starts == int((evaluated.counts.steps > 0).sum())


def _breaks_a_rule(columns: dict[str, pa.Array]) -> bool:
    """Whether a step violates a rule that concerns single steps."""
    drafted, eligible, accepted, emitted = (columns[name] for name in ("drafted", "eligible", "accepted", "emitted"))
    rules = [pc.greater(accepted, drafted), pc.greater(eligible, drafted), pc.greater(accepted, eligible)]
    rules += [pc.less(count, 0) for count in (drafted, eligible, accepted, emitted)]
    rules += [pc.greater(emitted, pc.add(accepted.cast(pa.int32()), 1))]
    if any(pc.any(rule).as_py() for rule in rules):
        return True
    ended = columns["ended"]
    used = ended.dictionary.take(pc.unique(ended.indices).drop_null())
    return bool(set(used.to_pylist()) - set(ENDINGS))


@contextmanager
def _database(run: Run) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the view ``steps``: all parts together, conformed, on disk where they are too large."""
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": _MEMORY,
        "preserve_insertion_order": False,
        # nothing is fetched at run time: remote files come through fsspec
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    batches = (batch for table in step_batches(run, _COLUMNS) for batch in table.to_batches())
    with closing(duckdb.connect(config=settings)) as db:
        schema = next(step_batches(run, _COLUMNS)).schema
        db.register("steps", pa.RecordBatchReader.from_batches(schema, batches))
        yield db
