"""One row per prompt of a run under one evaluation protocol."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.errors import DataError
from analysis.keys import KeyIndex
from analysis.runlog.counting import counting_of
from analysis.runlog.evaluations import described, named
from analysis.runlog.reading import Run
from analysis.runlog.schema import KEY, PAIR_KEY
from analysis.runlog.step_counts import Steps
from analysis.runlog.steps import FOUND_BY, reduce_steps

#: Integers stay integers where some are missing.
_NULLABLE = {pa.int16(): pd.Int16Dtype(), pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}.get
_OF_PROMPTS = ("dataset", "cluster_id", "category", "study_role", "seen", "repetition", "steps", "output_tokens")
_PROMPT_COLUMNS = (*KEY, *_OF_PROMPTS)


class SeveralEvaluations(DataError):
    """Several evaluations of a run, under one protocol, have prompts in common."""


#: Reasons why a prompt has no value.
NO_VALUE = "no value (null or NaN)"
NO_STEP = "no verification step"


@dataclass(frozen=True, eq=False)
class Evaluated:
    """A run under one protocol.

    ``prompts`` has one row per evaluated prompt (turn, sample), each once: the key, dataset, cluster_id, category,
    study_role, seen, repetition, ``row``, and

    * ``steps`` int64: its verification steps, 1 under ``prefix``;
    * ``tokens`` Int64: under ``prefix`` the accepted length, 1 + accepted; on whole answers the tokens emitted
      over all steps; NA without a value;
    * ``problem``: the reason (NO_VALUE, NO_STEP), else None.

    ``counts`` are the sums over its verification steps, by draft slot too; row ``row`` of each is the prompt's.
    """

    run: Run
    protocol: str
    prompts: pd.DataFrame
    counts: Steps


def protocols(run: Run) -> set[str]:
    """The protocols under which the run's prompts were evaluated."""
    return set(run.read("prompts", ["protocol"])["protocol"].unique().to_pylist())


def load(run: Run, protocol: str) -> Evaluated:
    """Rows of ``run`` under ``protocol``: ``prefix``, ``replay`` or ``generate``.

    Raises DataError if there are none, if a prompt occurs twice, if an acceptance row has no prompt, or if a prompt
    has two steps under ``prefix``, which has one by definition.
    """
    table = of_protocol(run.read("prompts", _PROMPT_COLUMNS), protocol)
    if not table.num_rows:
        known = ", ".join(sorted(protocols(run))) or "none"
        raise DataError(f"{run.address}: no prompt was evaluated under protocol '{protocol}' (available: {known})")
    stated = protocol == "generate" and not run.has("acceptance")
    index = _index(run, protocol, table)
    pa.default_memory_pool().release_unused()  # free memory before the counts are allocated
    steps = _stated(table, run, protocol) if stated else reduce_steps(run, protocol, index, len(table))
    del index  # about 100 MB for a million prompts
    frame = table.drop_columns(["output_tokens"]).to_pandas(types_mapper=_NULLABLE)
    del table
    pa.default_memory_pool().release_unused()
    if steps.n_orphans:
        raise DataError(
            f"{run.address}: acceptance has steps of {steps.n_orphans} prompts that are not in prompts.parquet "
            f"({listing(steps.orphans)}); write both tables from the same evaluation"
        )
    if protocol == "prefix" and (steps.steps > 1).any():
        several = frame.loc[steps.steps > 1, "prompt_id"]
        raise DataError(
            f"{run.address}: {several.size} prompts have more than one step under protocol 'prefix' "
            f"({listing(several)}); log each prompt once, or as protocol 'generate'"
        )
    frame = frame.assign(
        row=np.arange(len(frame)), steps=steps.steps, tokens=pd.array(steps.tokens, dtype="Int64"), problem=None
    )
    frame.loc[steps.counted < steps.steps, "problem"] = NO_VALUE
    frame.loc[steps.steps == 0, "problem"] = NO_STEP
    frame["tokens"] = frame["tokens"].mask(frame["problem"].notna())
    return Evaluated(run, protocol, frame, steps)


def _index(run: Run, protocol: str, table: pa.Table) -> KeyIndex:
    """Finds prompts by FOUND_BY. Raises DataError if a prompt was evaluated twice, even in two evaluations."""
    index = KeyIndex([table[name] for name in FOUND_BY])
    once = index
    if len(pc.unique(table["eval_id"])) > 1:
        once = KeyIndex([table[name] for name in FOUND_BY if name != "eval_id"])
    if once.repeated:
        frame = table.to_pandas(types_mapper=_NULLABLE)
        repeated = frame[frame.duplicated(list(PAIR_KEY), keep=False)]
        where = (
            f"{run.address}: {len(repeated.drop_duplicates(list(PAIR_KEY)))} prompts were evaluated more than once "
            f"under protocol '{protocol}' ({listing(repeated['prompt_id'])}; eval_id {listing(repeated['eval_id'])})"
        )
        if index.repeated:
            raise DataError(f"{where}, within one evaluation; keep one row of each prompt")
        ids = set(repeated["eval_id"])
        known = {key: e for key, e in named(run, protocol=protocol).items() if key in ids}
        choices = described(known) if len(known) == len(ids) else listing(ids)
        raise SeveralEvaluations(f"{where}; choose one of its evaluations with --evaluation NAME: {choices}")
    return index


def _stated(table: pa.Table, run: Run, protocol: str) -> Steps:
    """Counts of a log without a table of steps, from its prompts, in the log's own convention."""
    prompts = table.select(["steps", "output_tokens"]).to_pandas(types_mapper=_NULLABLE)
    steps = prompts["steps"].fillna(0).to_numpy(dtype=np.int64)
    output = prompts["output_tokens"]
    outside = counting_of(run.manifest, protocol).outside
    tokens = np.maximum(output.fillna(0).to_numpy(dtype=np.int64) - outside, 0)
    nothing = np.zeros((len(prompts), 0), np.uint16)
    return Steps(steps, np.where(output.notna(), steps, 0), tokens, nothing, nothing, nothing, nothing)


def listing(ids: Iterable[object], at_most: int = 5) -> str:
    """The first few distinct ids, for a message."""
    distinct = sorted(set(map(str, ids)))
    return ", ".join(distinct[:at_most]) + (f" and {len(distinct) - at_most} more" if len(distinct) > at_most else "")


def of_protocol(table: pa.Table, protocol: str) -> pa.Table:
    """Rows of a table of the run under ``protocol``, in order."""
    rows = pc.equal(table["protocol"], protocol)
    return table if pc.all(rows).as_py() else table.filter(rows)
