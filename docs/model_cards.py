"""The page of model cards: what each arm of the shipped study is, how it was made, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from analysis.report.markdown import escape, table
from analysis.runlog.reading import Run
from analysis.wording import number

AXES = ("fusion", "kv", "mixing", "selection", "confidence")
INTRODUCTION = (
    "The drafters of the shipped study. They show differences between designs at a small scale and are of no use with "
    "another target. The repository holds their logs and no weights: `make study`, `make family` and `make seeds` make "
    "these again. Tau is pooled over whole answers to the study's held-out prompts (protocol `replay`). A run and its "
    "recipe in `drafters/recipes/` have the same name."
)


def page(note: str, runs: Path, recipes: Path) -> str:
    """Every arm of the study's recipes whose run is complete: a table, then what they share and where each is from."""
    studies = [yaml.safe_load((recipes / name).read_text("utf-8")) for name in ("study.yaml", "study-family.yaml")]
    names = dict.fromkeys(Path(arm).stem for study in studies for arm in study["arms"])
    opened = [Run.open(runs / name) for name in names]
    head = ("arm", *AXES, "loss", "run and recipe", "parameters", "tau")
    parts = ["# Model cards", note, INTRODUCTION, "## Arms", table(head, map(_row, opened), numeric=2)]
    parts += ["## What they share", _shared(opened), "## Limits", _limits(opened)]
    return "\n\n".join(parts) + "\n"


def _row(run: Run) -> tuple[str, ...]:
    drafter, training = run.manifest.drafter, run.manifest.training
    assert drafter is not None and training is not None
    config: Mapping[str, Any] = drafter.config
    return (
        run.manifest.label or run.name,
        *(str(config[axis]) for axis in AXES),
        str(training.settings["loss"]["weighting"]),
        run.name,
        f"{drafter.parameters['total']:,}",
        number(_tau(run)),
    )


def _tau(run: Run) -> float:
    steps = run.read("acceptance").to_pandas()
    return float(steps.loc[steps["protocol"] == "replay", "emitted"].mean())


def _shared(runs: Sequence[Run]) -> str:
    first = runs[0].manifest
    assert first.target is not None and first.training is not None and first.drafter is not None
    hashes = {run.manifest.training.data_hash for run in runs if run.manifest.training}
    config, training = first.drafter.config, first.training
    read = ", ".join(map(str, config["target_layer_ids"]))
    lines = [
        f"Target: {first.target.id} ({first.target.note}).",
        f"{config['num_layers']} draft layers that read target layers {read}; blocks of {config['block_size']}.",
        f"{training.examples:,} questions of 24 generated families with the target's own greedy answers, in "
        f"{training.steps:,} updates, {'in the same order for all' if len(hashes) == 1 else 'in different orders'}.",
        "AdamW on one thread of a CPU, weights in float32.",
    ]
    return "\n".join(f"* {escape(line)}" for line in lines)


def _limits(runs: Sequence[Run]) -> str:
    of_evaluation = ("evaluation ", "val_")
    caveats = [c for run in runs for c in run.manifest.caveats if not c.startswith(of_evaluation)]
    lines = ["One training of each arm, unless a report names several seeds.", *dict.fromkeys(caveats)]
    return "\n".join(f"* {escape(line)}" for line in lines)
