"""An evaluation of several runs of one target on the same prompts, each of which it takes up where it stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.errors import DataError
from analysis.runlog.addresses import resolve
from analysis.runlog.manifest import Evaluation, settings_hash
from analysis.runlog.reading import read_manifest
from drafters.checkpoints.run_files import TRAINING_PROMPTS
from drafters.evaluation.gates import GATE_SAMPLING
from drafters.evaluation.generation import Generate, GenerateSettings
from drafters.evaluation.loading import common_target, load_arm
from drafters.evaluation.prefix import Prefix
from drafters.evaluation.replay import Replay, ReplaySettings
from drafters.evaluation.stage import Evaluated, begin, finish
from drafters.evaluation.variants import weights_of
from drafters.progress import progress
from drafters.prompts.sources import (
    Prompt,
    PromptSource,
    load_prompts,
    messages,
    prompt_set_hash,
    remove_overlap,
)
from drafters.ranks import Rank
from drafters.target.frozen import Target

_Protocol = Prefix | Generate | Replay


SETTINGS: dict[str, type[GenerateSettings | ReplaySettings]] = {"generate": GenerateSettings, "replay": ReplaySettings}


@dataclass(frozen=True)
class HeldOut:
    """Prompts that no run under evaluation was trained on, and the clusters that training had."""

    prompts: tuple[Prompt, ...]
    trained_clusters: frozenset[str]
    removed: int

    def seen(self, prompt: Prompt) -> str:
        """Column ``seen``: whether the prompt's cluster (its template) occurs in the training set."""
        return "template seen" if prompt.cluster_id in self.trained_clusters else "unseen"


def evaluate(
    references: Sequence[str],
    sources: Sequence[PromptSource],
    *,
    settings: GenerateSettings | ReplaySettings | None = None,
    batch_size: int = 32,
    device: str = "cpu",
    expected: str | None = None,
) -> list[str]:
    """Evaluate runs under the protocol that ``settings`` are of, ``prefix`` without any; returns a line per run.

    ``expected``: SHA-256 of the set of prompts that another run was asked. Raises DataError for a run without weights,
    runs of different targets, no prompt left to ask, or other prompts than expected.
    """
    folders = [Path(resolve(reference)) for reference in references]
    target = common_target(folders, device)
    arms = [load_arm(folder, target, device) for folder in folders]
    held_out = _held_out(load_prompts(sources), folders)
    if expected and not held_out.removed and prompt_set_hash(held_out.prompts) != expected:
        raise DataError("these sources no longer give the prompts of the other run: a file has changed")
    of_evaluation: dict[str, Any] = {
        "protocol": next((name for name, kind in SETTINGS.items() if isinstance(settings, kind)), "prefix"),
        "prompts": [source.model_dump(mode="json") for source in sources],
        "batch_size": batch_size,
        **(settings.model_dump(mode="json") if settings else {}),
        **({} if isinstance(settings, GenerateSettings) else {"gate_sampling": GATE_SAMPLING}),
    }
    eval_id = settings_hash(of_evaluation)[:12]
    record = Evaluation(
        status="running",
        protocol=of_evaluation["protocol"],
        settings=of_evaluation,
        prompt_set_sha256=prompt_set_hash(held_out.prompts),
        prompts=len(held_out.prompts),
        block_size=1,  # each arm's own is entered with its run
    )
    caveats = []
    if held_out.removed:
        caveats = [f"evaluation {eval_id}: {held_out.removed} prompts are training prompts, and were left out"]
    lines, runs = [], []
    for folder, arm in zip(folders, arms, strict=True):
        run = begin(folder, arm, eval_id, record, caveats)
        if run is None:
            lines.append(f"{folder}: evaluation {eval_id} is complete already; nothing to do")
        else:
            runs.append(run)
    if runs:
        roles = {source.label: source.role for source in sources}

        def describe(prompt: Prompt) -> dict[str, Any]:
            return {
                "cluster_id": prompt.cluster_id,
                "category": prompt.category,
                "study_role": roles.get(prompt.dataset),
                "seen": held_out.seen(prompt),
            }

        protocol: _Protocol = Prefix(target, eval_id, describe)
        if isinstance(settings, ReplaySettings):
            protocol = Replay(target, eval_id, describe, settings)
        if isinstance(settings, GenerateSettings):
            protocol = Generate(target, eval_id, describe, settings)
            if settings.baseline:
                protocol.warm_up(held_out.prompts[0], [run.arm for run in runs])
        lines += _ask(runs, protocol, _batches(target, held_out.prompts, batch_size))
    return [*lines, *caveats]


def _ask(runs: Sequence[Evaluated], protocol: _Protocol, batches: Sequence[Sequence[Prompt]]) -> list[str]:
    """Do every batch of this rank that some run still lacks, and join them where they are all there."""
    rank, started = Rank.of_environment(), time.monotonic()
    mine = range(rank.number, len(batches), rank.world)
    with progress(f"evaluate {', '.join(run.folder.name for run in runs)}", len(mine)) as tick:
        for done, number in enumerate(mine, 1):
            missing = [run for run in runs if run.lacks(number)]
            if missing:
                found = protocol.batch(batches[number], [run.arm for run in missing])
                for run, rows in zip(missing, found, strict=True):
                    run.keep(number, rows)
            tick(done, "")
    prompts = sum(len(batch) for batch in batches)
    lines = []
    for run in runs:
        whole = finish(run, len(batches), rank.world, time.monotonic() - started)
        state = f"{prompts} prompts" if whole else f"rank {rank.number} is done, others are not"
        lines.append(f"{run.folder}: {state}, evaluation {run.eval_id}")
    return lines


def _batches(target: Target, prompts: Sequence[Prompt], size: int) -> list[list[Prompt]]:
    """Prompts of like length together, which wastes little on padding; a fixed rule, so always the same."""
    ordered = sorted(prompts, key=lambda prompt: len(target.encode_chat(messages(prompt))))
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def _held_out(prompts: Sequence[Prompt], folders: Sequence[Path]) -> HeldOut:
    trained = [
        Prompt(prompt_id=row["prompt_id"], dataset="", turns=(), cluster_id=row["cluster_id"])
        for folder in folders
        for row in json.loads(_training_prompts(folder).read_text(encoding="utf-8"))
    ]
    overlap = remove_overlap(prompts, trained)
    if not overlap.kept:
        raise DataError("no prompt is left to ask: all of them are training prompts of these runs; try another seed")
    removed = len(overlap.same_prompt) + len(overlap.same_original)
    return HeldOut(overlap.kept, frozenset(p.cluster_id for p in trained), removed)


def _training_prompts(folder: Path) -> Path:
    return weights_of(folder, read_manifest(str(folder))) / TRAINING_PROMPTS
