"""Evaluate trained arms on held-out prompts: ``python -m drafters.evaluate RUN [RUN ...] --prompts ...``.

Several runs of one target are evaluated together: the target answers each batch once for all of them. Every
run gets its own part files, named by the hash of the evaluation's settings; parts of other evaluations are
never touched. Finished batches are kept in ``.partial/``, so a stopped evaluation goes on where it was.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.errors import DataError, Parser, run_command
from analysis.manifest import Evaluation, settings_hash
from analysis.runlog import Run, RunWriter, resolve, rows_to_table
from drafters.arms import Arm, BlockArm
from drafters.baseline import NEXT_TOKEN, load_next_token
from drafters.checkpoint import load_drafter
from drafters.prefix import GATE_SAMPLING, Rows, prefix_rows, vocabulary_coverage
from drafters.progress import progress
from drafters.prompts import (
    Prompt,
    PromptSource,
    family_caveat,
    load_prompts,
    messages,
    parse_source,
    prompt_set_hash,
    remove_overlap,
)
from drafters.target import Target
from drafters.train import FINAL, TRAINING_PROMPTS, default_device

TABLES = ("acceptance", "prompts", "gates", "gate_stats")
COVERAGE = "coverage.json"  # of one batch: how many of the target's tokens the arm can propose


@dataclass(frozen=True)
class HeldOut:
    """Prompts that no run under evaluation was trained on, and the clusters that training had."""

    prompts: tuple[Prompt, ...]
    trained_clusters: frozenset[str]
    removed: int

    def seen(self, prompt: Prompt) -> str:
        """Column ``seen``: whether the prompt's cluster (its template) occurs in the training set."""
        return "template seen" if prompt.cluster_id in self.trained_clusters else "unseen"


@dataclass(frozen=True)
class Evaluated:
    """One run under evaluation."""

    writer: RunWriter
    arm: Arm
    partial: Path  # finished batches of this evaluation


def evaluate(
    references: Sequence[str], sources: Sequence[PromptSource], *, batch_size: int = 32, device: str = "cpu"
) -> list[str]:
    """Evaluate runs with the ``prefix`` protocol; returns a line per run for the user.

    Raises DataError for a run without weights, runs of different targets, or no prompt left to ask.
    """
    folders = [Path(resolve(reference)) for reference in references]
    target = Target.load(_common_target(folders), device=device)
    arms = [_load_arm(folder, target, device) for folder in folders]
    held_out = _held_out(load_prompts(sources), folders)
    settings = {
        "protocol": "prefix",
        "prompts": [source.model_dump(mode="json") for source in sources],
        "batch_size": batch_size,
        "gate_sampling": GATE_SAMPLING,
    }
    eval_id = settings_hash(settings)[:12]
    lines, runs = [], []
    for folder, arm in zip(folders, arms, strict=True):
        run = _begin(folder, arm, eval_id, settings, held_out)
        if run is None:
            lines.append(f"{folder}: evaluation {eval_id} is complete already; nothing to do")
        else:
            runs.append(run)
    if not runs:
        return lines
    started = time.monotonic()
    roles = {source.label: source.role for source in sources}
    _run_batches(runs, target, held_out, roles, batch_size, eval_id)
    for run in runs:
        _finish(run, eval_id, time.monotonic() - started)
        lines.append(f"{run.writer.folder}: {len(held_out.prompts)} prompts, evaluation {eval_id}")
    return lines


def _common_target(folders: Sequence[Path]) -> str:
    references: dict[str, str] = {}
    for folder in folders:
        manifest = Run.open(folder, allow_incomplete=True).manifest
        if manifest.target is None or manifest.target.sha256 is None or manifest.training is None:
            raise DataError(f"{folder}: its manifest names no target; train it with drafters.train")
        references[manifest.target.sha256] = manifest.training.settings["target"]
    if len(references) > 1:
        raise DataError(f"these runs have different targets ({', '.join(references.values())}); evaluate them apart")
    return next(iter(references.values()))


def _load_arm(folder: Path, target: Target, device: str) -> Arm:
    checkpoints = folder / "checkpoints"
    if (checkpoints / NEXT_TOKEN).exists():
        return load_next_token(checkpoints / NEXT_TOKEN)
    if not (checkpoints / FINAL).is_dir():
        raise DataError(f"{folder}: no weights in {checkpoints / FINAL}; train it, or copy its checkpoints there")
    return BlockArm(load_drafter(checkpoints / FINAL), target, device)


def _held_out(prompts: Sequence[Prompt], folders: Sequence[Path]) -> HeldOut:
    trained = [
        Prompt(prompt_id=row["prompt_id"], dataset="", turns=(), cluster_id=row["cluster_id"])
        for folder in folders
        for row in json.loads((folder / "checkpoints" / TRAINING_PROMPTS).read_text(encoding="utf-8"))
    ]
    overlap = remove_overlap(prompts, trained)
    if not overlap.kept:
        raise DataError("no prompt is left to ask: all of them are training prompts of these runs")
    removed = len(overlap.same_prompt) + len(overlap.same_original)
    return HeldOut(overlap.kept, frozenset(p.cluster_id for p in trained), removed)


def _begin(folder: Path, arm: Arm, eval_id: str, settings: dict[str, Any], held_out: HeldOut) -> Evaluated | None:
    """Enter the evaluation into the run's manifest; None if it is there, complete, for these weights."""
    writer = RunWriter.resume(folder)
    drafter = writer.manifest.drafter
    record = Evaluation(
        status="running",
        protocol="prefix",
        settings=settings,
        prompt_set_sha256=prompt_set_hash(held_out.prompts),
        prompts=len(held_out.prompts),
        block_size=arm.block_size,
        checkpoint_sha256=drafter.checkpoint_sha256 if drafter else None,
    )
    partial = folder / ".partial" / eval_id
    known = writer.manifest.evaluations.get(eval_id)
    if known is not None:
        same = known.model_dump(exclude={"status", "datasets"}) == record.model_dump(exclude={"status", "datasets"})
        if same and known.status == "complete":
            return None
        if not same:  # other weights or other training prompts: what was kept belongs to those
            shutil.rmtree(partial, ignore_errors=True)
    writer.manifest.evaluations[eval_id] = record
    if held_out.removed:
        caveat = f"evaluation {eval_id}: {held_out.removed} prompts are training prompts, and were left out"
        if caveat not in writer.manifest.caveats:
            writer.manifest.caveats.append(caveat)
    writer.save()
    partial.mkdir(parents=True, exist_ok=True)
    return Evaluated(writer, arm, partial)


def _run_batches(
    runs: Sequence[Evaluated],
    target: Target,
    held_out: HeldOut,
    roles: Mapping[str, str | None],
    batch_size: int,
    eval_id: str,
) -> None:
    """Ask every batch that some run still lacks, and keep its rows beside that run."""
    encoded = [(prompt, target.encode_chat(messages(prompt))) for prompt in held_out.prompts]
    encoded.sort(key=lambda item: len(item[1]))  # like lengths together: less padding; stable, so always the same
    batches = [encoded[i : i + batch_size] for i in range(0, len(encoded), batch_size)]
    layers = sorted({layer for run in runs for layer in run.arm.layer_ids})
    longest = max(run.arm.block_size for run in runs)
    with progress("evaluate (prefix)", len(batches)) as tick:
        for number, batch in enumerate(batches):
            missing = [run for run in runs if not (run.partial / f"{number:06d}").is_dir()]
            if missing:
                prompts, tokens = zip(*batch, strict=True)
                output = target.greedy(tokens, longest, layer_ids=layers)
                describe = [{"study_role": roles.get(p.dataset), "seen": held_out.seen(p)} for p in prompts]
                for run in missing:
                    rows = prefix_rows(run.arm, target, prompts, tokens, output, layers, describe, eval_id)
                    _keep(run.partial / f"{number:06d}", rows, vocabulary_coverage(run.arm, prompts, output))
            tick(number + 1, "")


def _keep(folder: Path, rows: Rows, coverage: dict[str, list[int]]) -> None:
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    for name, found in rows.items():
        pq.write_table(rows_to_table(name, found), temporary / f"{name}.parquet")
    (temporary / COVERAGE).write_text(json.dumps(coverage), encoding="utf-8")
    temporary.rename(folder)


def _finish(run: Evaluated, eval_id: str, seconds: float) -> None:
    """Join the kept batches into this evaluation's part files, and close it in the manifest."""
    writer = run.writer
    tables = {}
    for name in TABLES:
        files = sorted(run.partial.glob(f"*/{name}.parquet"))
        tables[name] = pa.concat_tables([pq.read_table(file) for file in files])
        if tables[name].num_rows:
            writer.append(name, tables[name], part=eval_id)
    record = writer.manifest.evaluations[eval_id]
    record.datasets = _describe(tables, sorted(run.partial.glob(f"*/{COVERAGE}")))
    writer.manifest.timings[f"evaluate_{eval_id}_s"] = seconds
    writer.commit()
    record.status = "complete"
    writer.save()
    shutil.rmtree(run.partial)


def _describe(tables: dict[str, pa.Table], coverage_files: Sequence[Path]) -> dict[str, Any]:
    """Per dataset: prompts, clusters, role, coverage of the target's tokens, degenerate answers, caveat."""
    prompts = tables["prompts"].to_pandas()
    inside: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    for file in coverage_files:
        for label, (covered, count) in json.loads(file.read_text(encoding="utf-8")).items():
            inside[label] += covered
            wanted[label] += count
    described: dict[str, Any] = {}
    for label, rows in prompts.groupby("dataset", observed=True):
        described[str(label)] = {
            "prompts": len(rows),
            "clusters": int(rows["cluster_id"].nunique()),
            "role": rows["study_role"].iloc[0],
            "seen": sorted(rows["seen"].dropna().unique()),
            "vocabulary_coverage": inside[label] / wanted[label] if wanted[label] else None,
            "degenerate_repetition": float((rows["repetition"] > 0.5).mean()),
            "caveat": family_caveat(str(label)),
        }
    return described


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python -m drafters.evaluate", description="Evaluate trained drafters on held-out prompts.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder, or name under runs/")
    parser.add_argument("--protocol", choices=["prefix"], default="prefix")
    parser.add_argument("--prompts", required=True, help="sources, separated by commas: gsm_symbolic/unseen:200,...")
    parser.add_argument("--batch-size", type=int, default=32, help="prompts that the target answers at once")
    parser.add_argument("--device", default=default_device())
    args = parser.parse_args(argv)
    sources = [parse_source(text) for text in args.prompts.split(",")]
    print(*evaluate(args.runs, sources, batch_size=args.batch_size, device=args.device), sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
