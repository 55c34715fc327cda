"""The study, from nothing: ``python -m drafters.study STUDY.yaml``.

Trains every arm on one corpus, with further seeds if they are named, makes the baselines, evaluates all of them
together on held-out prompts (first blocks, and whole answers by replay), times some on whole answers, and writes the
reports of ``reports/plan.yaml``. Every stage
resumes, so the same command goes on after a stop. Runs of the study that hold logs alone, as those that ship do, are
first moved to ``runs/.set-aside/``.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from analysis.commands.report import main as write_reports
from analysis.errors import DataError, Parser
from analysis.runlog.addresses import MANIFEST
from analysis.runlog.reading import read_manifest
from drafters.checkpoints.run_files import run_folder
from drafters.config import PromptList, RunConfig, Seeds, load_config, read_yaml
from drafters.evaluation.baselines import LOOKUP, make_lookup_run, make_next_token_run
from drafters.evaluation.controls import CONTROLS, control_run
from drafters.evaluation.generation import GenerateSettings
from drafters.evaluation.lookup_first import VARIANT, lookup_first_run
from drafters.evaluation.replay import ReplaySettings
from drafters.evaluation.run import evaluate
from drafters.evaluation.variants import variant_folder, weights_of
from drafters.ranks import default_device, refuse_several_ranks
from drafters.settings import Settings, parse
from drafters.training.run import train

SET_ASIDE = ".set-aside"  # under runs/: what a study found in its way


class StudyEvaluation(Settings):
    """Held-out prompts of a study; ``replay``: and whole answers of so many tokens (None: first blocks alone)."""

    prompts: PromptList
    batch_size: int = 32
    replay: int | None = Field(default=None, ge=1)


class StudySpeed(Settings):
    """Whole answers of some runs beside plain decoding, one prompt at a time, by turns."""

    runs: tuple[str, ...]
    prompts: PromptList
    max_new_tokens: int
    block_size: int | None = None  # None: that of the training


class Study(Settings):
    """A study file: arm configurations (beside it), a grid of values for fields of theirs (``drafter.num_layers:
    [1, 2, 3]``), of which every combination is a cell, further seeds with which each of them is trained, baselines
    (run names with what they propose), runs whose gates are controlled for, runs whose drafters are evaluated with
    prompt lookup in front too, the evaluation of all, and of some the speed."""

    arms: tuple[str, ...]
    grid: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    baselines: dict[str, Literal["next-token", "prompt-lookup"]] | None = None
    gate_controls: tuple[str, ...] = ()
    with_lookup: tuple[str, ...] = ()
    evaluation: StudyEvaluation
    speed: StudySpeed | None = None


def set_aside(folders: Sequence[Path]) -> list[str]:
    """Move trained runs away whose weights are not here, since nothing can be asked of them; a line for each.

    Neither are those of a control whose parent has been trained again.
    """
    gone = []
    for folder in folders:
        manifest = read_manifest(str(folder)) if (folder / MANIFEST).exists() else None
        if manifest is None or manifest.training is None or manifest.training.status != "complete":
            continue
        weights = weights_of(folder, manifest)
        owner = weights.parent / MANIFEST
        stale = owner.exists() and read_manifest(str(weights.parent)).drafter != manifest.drafter
        if stale or not weights.exists():
            gone.append(folder)
    lines = []
    for folder in gone:
        kept = folder.parent / SET_ASIDE
        kept.mkdir(exist_ok=True)
        names = itertools.chain([folder.name], (f"{folder.name}-{number}" for number in itertools.count(2)))
        place = next(kept / name for name in names if not (kept / name).exists())
        folder.rename(place)
        lines.append(f"{folder}: logs without weights; kept as {place}")
    return lines


def with_seed(config: RunConfig, seed: int) -> RunConfig:
    """The arm ``NAME-seed<seed>``: other initial weights, other order of the data, other anchors."""
    seeds = Seeds(init=seed, data=seed, anchors=seed)
    return config.model_copy(update={"name": f"{config.name}-seed{seed}", "seeds": seeds})


def cells_of(arm: Path, grid: Mapping[str, Sequence[Any]]) -> list[RunConfig]:
    """The arm with every combination of the grid's values: ``NAME-num_layers-1``; the arm itself without a grid.

    A cell that is the arm as it stands keeps the arm's name, so that its run serves both.
    """
    plain, cells = load_config(arm), []
    for values in itertools.product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        overrides = [f"{field}={json.dumps(value)}" for field, value in chosen.items()]
        cell = load_config(arm, overrides)
        if cell != plain:
            name = "-".join([plain.name, *(f"{field.split('.')[-1]}-{_short(v)}" for field, v in chosen.items())])
            cell = cell.model_copy(update={"name": name})
        cells.append(cell)
    return cells


def _short(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def run_study(path: Path, device: str) -> list[Path]:
    """Train and evaluate what ``path`` describes; returns the run folders."""
    refuse_several_ranks("a study")
    study = parse(Study, read_yaml(path), str(path))
    first = [cell for arm in study.arms for cell in cells_of(path.parent / arm, study.grid)]
    configs = [of for config in first for of in (config, *(with_seed(config, seed) for seed in study.seeds))]
    arms = [run_folder(config.name, None) for config in configs]
    baselines = {run_folder(name, None): kind for name, kind in (study.baselines or {}).items()}
    gated = [run_folder(name, None) for name in study.gate_controls]
    copying = [run_folder(name, None) for name in study.with_lookup]
    variants = [variant_folder(folder, control) for folder in gated for control in CONTROLS]
    variants += [variant_folder(folder, VARIANT) for folder in copying]
    folders = [*arms, *baselines, *variants]
    names = [folder.name for folder in folders]
    for name in (*study.gate_controls, *study.with_lookup, *(study.speed.runs if study.speed else ())):
        if name not in names:
            raise DataError(f"{path}: {name} is no run of this study; its runs are {', '.join(names)}")
    for line in set_aside(folders):
        print(line)
    for config, folder in zip(configs, arms, strict=True):
        print(train(config, folder, device))
    for folder, kind in baselines.items():
        make = make_lookup_run if kind == LOOKUP else make_next_token_run
        print(make(configs[0], folder, device))
    for folder in gated:
        for control in CONTROLS:
            control_run(folder, control)
    for folder in copying:
        lookup_first_run(folder)
    asked = study.evaluation
    for settings in (None, *([ReplaySettings(max_new_tokens=asked.replay)] if asked.replay else ())):
        names = [str(folder) for folder in folders]
        print(*evaluate(names, asked.prompts, settings=settings, batch_size=asked.batch_size, device=device), sep="\n")
    if speed := study.speed:
        generate = GenerateSettings(max_new_tokens=speed.max_new_tokens, block_size=speed.block_size, baseline=True)
        timed = [str(run_folder(name, None)) for name in speed.runs]
        print(*evaluate(timed, speed.prompts, settings=generate, batch_size=1, device=device), sep="\n")
    for folder in folders:
        times = read_manifest(str(folder)).timings
        print(f"{folder.name}: " + ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in times.items()))
    return folders


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python -m drafters.study", description="Train, evaluate and compare the arms of a study.")
    parser.add_argument("study", help="YAML file, such as drafters/recipes/study.yaml")
    parser.add_argument("--device", default=default_device())
    args = parser.parse_args(argv)
    run_study(Path(args.study), args.device)
    return write_reports([])
