"""From a run to one row per prompt: what one evaluation protocol says about each prompt of a run."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.errors import DataError
from analysis.runlog import Run
from analysis.schema import KEY, PAIR_KEY

#: Integers stay integers where some are missing.
_NULLABLE = {pa.int16(): pd.Int16Dtype(), pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}.get
_PROMPT_COLUMNS = (*KEY, "dataset", "cluster_id", "category", "study_role", "seen", "repetition")

#: Why a prompt has no value.
NO_VALUE = "no value (null or NaN)"
NO_STEP = "no verification step"


@dataclass(frozen=True)
class Evaluated:
    """What a run says under one protocol.

    ``prompts`` has one row per evaluated prompt (turn, sample), each once: the key, dataset, cluster_id, category,
    study_role, seen, repetition, and

    * ``steps`` int64: its verification steps, 1 under ``prefix``;
    * ``tokens`` Int64: under ``prefix`` the accepted length, 1 + accepted; under ``generate`` the tokens emitted
      over all steps; NA where there is none, and then
    * ``problem``: why (NO_VALUE, NO_STEP), else None.

    ``steps`` is the acceptance table of the protocol, one row per verification step.
    """

    run: Run
    protocol: str
    prompts: pd.DataFrame
    steps: pa.Table


def protocols(run: Run) -> set[str]:
    """The protocols under which the run's prompts were evaluated."""
    return set(run.read("prompts", ["protocol"])["protocol"].unique().to_pylist())


def load(run: Run, protocol: str) -> Evaluated:
    """Rows of ``run`` under ``protocol``, ``prefix`` or ``generate``.

    Raises DataError if there are none, if a prompt occurs twice, if an acceptance row has no prompt, or if a prompt
    has two steps under ``prefix``, which has one by definition.
    """
    prompts = _of_protocol(run.read("prompts", _PROMPT_COLUMNS), protocol)
    steps = _of_protocol(run.read("acceptance"), protocol)
    if not prompts.num_rows:
        known = ", ".join(sorted(protocols(run))) or "none"
        raise DataError(f"{run.address}: no prompt was evaluated under protocol '{protocol}' (there: {known})")

    prompt_frame = prompts.to_pandas(types_mapper=_NULLABLE)
    repeated = prompt_frame[prompt_frame.duplicated(list(PAIR_KEY), keep=False)]
    if len(repeated):
        raise DataError(
            f"{run.address}: {len(repeated.drop_duplicates(list(PAIR_KEY)))} prompts were evaluated more than once "
            f"under protocol '{protocol}' ({listing(repeated['prompt_id'])}; eval_id {listing(repeated['eval_id'])}); "
            "keep one evaluation of each prompt in a run"
        )

    # within a step the counts are small; sums over a whole answer may not fit the column's own type
    emitted = steps["emitted"] if protocol == "generate" else pc.add(steps["accepted"].cast(pa.int64()), 1)
    counted = pa.table({**{name: steps[name] for name in KEY}, "tokens": emitted.cast(pa.int64())})
    per_prompt = counted.group_by(list(KEY)).aggregate([("tokens", "sum"), ("tokens", "count"), ([], "count_all")])
    per_prompt = per_prompt.rename_columns([*KEY, "tokens", "with_value", "steps"])
    frame = prompt_frame.merge(per_prompt.to_pandas(types_mapper=_NULLABLE), on=list(KEY), how="outer", indicator=True)
    if (orphans := frame.loc[frame["_merge"] == "right_only", "prompt_id"]).size:
        raise DataError(
            f"{run.address}: acceptance has steps of {orphans.size} prompts that prompts.parquet lacks "
            f"({listing(orphans)}); write both tables from the same evaluation"
        )
    frame["steps"] = frame["steps"].fillna(0).astype("int64")
    if protocol == "prefix" and (frame["steps"] > 1).any():
        several = frame.loc[frame["steps"] > 1, "prompt_id"]
        raise DataError(
            f"{run.address}: {several.size} prompts have more than one step under protocol 'prefix' "
            f"({listing(several)}); log each prompt once, or as protocol 'generate'"
        )
    frame["problem"] = None
    frame.loc[frame["with_value"].fillna(0) < frame["steps"], "problem"] = NO_VALUE
    frame.loc[frame["steps"] == 0, "problem"] = NO_STEP
    frame["tokens"] = frame["tokens"].astype("Int64").mask(frame["problem"].notna())
    return Evaluated(run, protocol, frame.drop(columns=["_merge", "with_value"]), steps)


def listing(ids: pd.Series, at_most: int = 5) -> str:
    """The first few distinct ids, for a message."""
    distinct = sorted(set(map(str, ids)))
    return ", ".join(distinct[:at_most]) + (f" and {len(distinct) - at_most} more" if len(distinct) > at_most else "")


def _of_protocol(table: pa.Table, protocol: str) -> pa.Table:
    return table.filter(pc.equal(table["protocol"], protocol))
