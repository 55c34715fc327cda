"""What a run folder keeps beside its logs: final weights, and what identifies the training prompts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from analysis.runlog.addresses import find_runs_folder
from analysis.runlog.writing import write_atomic
from drafters.prompts.sources import Prompt

FINAL = "final"  # checkpoints/final: config.json and model.safetensors of the finished drafter


TRAINING_PROMPTS = "training_prompts.json"  # beside it: what an evaluation must not ask again


def run_folder(name: str, run: str | None) -> Path:
    """``--run``, else ``runs/<name>`` under the nearest ``runs/`` (made here if there is none)."""
    return Path(run) if run else (find_runs_folder() or Path("runs")) / name


def remember_prompts(checkpoints: Path, prompts: Sequence[Prompt]) -> None:
    """Keep what identifies the training prompts (no text), so that an evaluation can hold them out."""
    distinct = {p.prompt_id: p for p in prompts}.values()
    data = [{"prompt_id": p.prompt_id, "cluster_id": p.cluster_id, "template": p.template} for p in distinct]
    write_atomic(checkpoints / TRAINING_PROMPTS, json.dumps(data) + "\n")
