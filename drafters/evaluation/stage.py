"""The life of an evaluation in a run folder: begun in the manifest, kept batch by batch, joined at the end.

Several processes (ranks) may share the batches of one evaluation: each keeps its batches in ``.partial/``, and
whoever keeps the last one joins them, under a lock, into part files named by the evaluation's id. Part files
of other evaluations are never touched. A stopped evaluation goes on with the batches that are missing.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.runlog.manifest import Evaluation
from analysis.runlog.reading import rows_to_table
from analysis.runlog.schema import DEGENERATE
from analysis.runlog.writing import RunWriter
from drafters.cache import locked
from drafters.evaluation.arms import Arm
from drafters.evaluation.rows import TABLES, BatchRows
from drafters.prompts.sources import family_caveat

_FACTS = "facts.json"


@dataclass(frozen=True)
class Evaluated:
    """One run under evaluation, and where its finished batches are kept."""

    folder: Path
    arm: Arm
    eval_id: str

    @property
    def partial(self) -> Path:
        """Folder of finished batches."""
        return self.folder / ".partial" / self.eval_id

    def lacks(self, number: int) -> bool:
        """Whether batch ``number`` is still to be done."""
        return not (self.partial / f"{number:06d}").is_dir()

    def keep(self, number: int, rows: BatchRows) -> None:
        """Keep a finished batch, whole or not at all."""
        final = self.partial / f"{number:06d}"
        temporary = final.with_name(f".{final.name}.{os.getpid()}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        for name, found in rows.tables.items():
            if found:
                pq.write_table(rows_to_table(name, found), temporary / f"{name}.parquet")
        (temporary / _FACTS).write_text(json.dumps(rows.facts), encoding="utf-8")
        temporary.rename(final)


def begin(folder: Path, arm: Arm, eval_id: str, record: Evaluation, caveats: Sequence[str]) -> Evaluated | None:
    """Enter an evaluation into a run's manifest; None if it is there, complete, for these weights."""
    with locked(folder / ".partial"):
        writer = RunWriter.resume(folder)
        drafter = writer.manifest.drafter
        record = record.model_copy(
            update={
                "block_size": record.settings.get("block_size") or arm.block_size,
                "checkpoint_sha256": drafter.checkpoint_sha256 if drafter else None,
            }
        )
        run = Evaluated(folder, arm, eval_id)
        known = writer.manifest.evaluations.get(eval_id)
        same = known is not None and _identity(known) == _identity(record)
        if same and known is not None and known.status == "complete":
            return None
        if not same:  # other weights, or other prompts held out: what was kept belongs to those
            shutil.rmtree(run.partial, ignore_errors=True)
            writer.manifest.evaluations[eval_id] = record
            writer.manifest.caveats += [c for c in caveats if c not in writer.manifest.caveats]
        writer.save()
        run.partial.mkdir(parents=True, exist_ok=True)
        return run


def _identity(record: Evaluation) -> dict[str, Any]:
    return record.model_dump(exclude={"status", "datasets"})


def finish(run: Evaluated, batches: int, world: int, seconds: float) -> bool:
    """Join the batches into part files, one per rank, if all are there; whether they were."""
    with locked(run.folder / ".partial"):
        if not run.partial.is_dir():  # another rank was last, and has joined them
            return True
        if any(run.lacks(number) for number in range(batches)):
            return False
        writer = RunWriter.resume(run.folder)
        whole: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
        for number in range(batches):
            part = run.eval_id if world == 1 else f"{run.eval_id}-r{number % world}"
            for file in sorted((run.partial / f"{number:06d}").glob("*.parquet")):
                table = pq.read_table(file)
                whole[file.stem].append(table)
                writer.append(file.stem, table, part=part)
        record = writer.manifest.evaluations[run.eval_id]
        record.datasets = _describe(pa.concat_tables(whole["prompts"]), _facts(run, batches))
        writer.manifest.timings[f"evaluate_{run.eval_id}_s"] = seconds
        writer.commit()
        record.status = "complete"
        writer.save()
        shutil.rmtree(run.partial)
        return True


def _facts(run: Evaluated, batches: int) -> dict[str, Counter[str]]:
    total: dict[str, Counter[str]] = {}
    for number in range(batches):
        found = json.loads((run.partial / f"{number:06d}" / _FACTS).read_text(encoding="utf-8"))
        for label, counts in found.items():
            total.setdefault(label, Counter()).update(counts)
    return total


def _describe(prompts: pa.Table, facts: dict[str, Counter[str]]) -> dict[str, Any]:
    """Per data set: prompts, clusters, role, coverage of the target's tokens, degenerate outputs, caveat."""
    described: dict[str, Any] = {}
    for label, rows in prompts.to_pandas().groupby("dataset", observed=True):
        counts = facts.get(str(label), Counter())
        described[str(label)] = {
            "prompts": len(rows),
            "clusters": int(rows["cluster_id"].nunique()),
            "role": rows["study_role"].iloc[0],
            "seen": sorted(rows["seen"].dropna().unique()),
            "vocabulary_coverage": counts["covered"] / counts["wanted"] if counts["wanted"] else None,
            "degenerate_repetition": float((rows["repetition"] > DEGENERATE).mean()),
            "baseline_differs": counts.get("baseline_differs"),
            "caveat": family_caveat(str(label)),
        }
    return described
