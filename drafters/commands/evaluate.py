"""Evaluate trained arms on held-out prompts: ``python -m drafters.evaluate RUN [RUN ...] --prompts ...``.

Several runs of one target are evaluated together, on the same prompts: under ``prefix`` and ``replay`` the target
answers each batch once for all of them, under ``generate`` the arms take turns on every prompt. Under torchrun the
batches are shared among the ranks.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.errors import DataError, Parser, UsageError
from analysis.runlog.addresses import resolve
from analysis.runlog.manifest import Evaluation, settings_hash
from analysis.runlog.reading import Run, read_manifest
from drafters.checkpoints.folder import load_drafter, weights_sha256
from drafters.commands.baseline import LOOKUP, NEXT_TOKEN, load_next_token
from drafters.commands.train import FINAL, TRAINING_PROMPTS, default_device
from drafters.config import parse
from drafters.evaluation.arms import Arm, BlockArm, LookupArm
from drafters.evaluation.controls import CONTROLS, control_arm, control_run, weights_of
from drafters.evaluation.gates import GATE_SAMPLING
from drafters.evaluation.generation import Generate, GenerateSettings
from drafters.evaluation.like import evaluation_of, sources_of
from drafters.evaluation.prefix import Prefix
from drafters.evaluation.replay import Replay, ReplaySettings
from drafters.evaluation.stage import Evaluated, begin, finish
from drafters.progress import progress
from drafters.prompts.sources import (
    Prompt,
    PromptSource,
    load_prompts,
    messages,
    parse_source,
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
        raise DataError("these sources no longer give the prompts that the other run was asked: a file has changed")
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


def common_target(folders: Sequence[Path], device: str) -> Target:
    """The one target that these runs were trained for. Raises DataError if there are several."""
    settings: dict[tuple[str, bool], dict[str, Any]] = {}
    for folder in folders:
        manifest = Run.open(folder, allow_incomplete=True).manifest
        if manifest.target is None or manifest.target.sha256 is None or manifest.training is None:
            raise DataError(f"{folder}: its manifest names no target; train it with drafters.train")
        trained = manifest.training.settings
        settings[manifest.target.sha256, trained.get("thinking", False)] = trained
    if len(settings) > 1:
        names = ", ".join(
            f"{s['target']} in {s.get('target_dtype', 'float32')}{', thinking' * s.get('thinking', False)}"
            for s in settings.values()
        )
        raise DataError(f"these runs have different targets ({names}); evaluate them apart")
    (trained,) = settings.values()
    return Target.of_run(trained, device)


def load_arm(folder: Path, target: Target, device: str) -> Arm:
    """The trained drafter, the control, or the baseline of a run folder.

    Raises DataError if it has no weights, or others than it was trained to.
    """
    manifest = read_manifest(str(folder))
    checkpoints = weights_of(folder, manifest)
    if manifest.drafter and manifest.drafter.config.get("kind") == LOOKUP:
        return LookupArm(manifest.drafter.config["block_size"])
    if (checkpoints / NEXT_TOKEN).exists():
        return load_next_token(checkpoints / NEXT_TOKEN)
    final = checkpoints / FINAL
    if not final.is_dir():
        raise DataError(f"{folder}: no weights in {final}; train it, or copy its checkpoints there")
    drafter = load_drafter(final)
    recorded = manifest.drafter.checkpoint_sha256 if manifest.drafter else None
    if recorded and recorded != weights_sha256(drafter):
        raise DataError(
            f"{final}: not the weights whose logs {folder} holds (sha256 recorded: {recorded[:12]}); "
            "bring those back, or move the run away and train it again"
        )
    if manifest.variant:
        return control_arm(manifest.variant, drafter, final, target, device)
    return BlockArm(drafter, target, device)


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


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python -m drafters.evaluate", description="Evaluate trained drafters on held-out prompts.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder, or name under runs/")
    parser.add_argument("--protocol", choices=["prefix", *SETTINGS], help="default: prefix, or as --like")
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--prompts", help="sources, separated by commas: gsm_symbolic/unseen:200@SEED,...")
    asked.add_argument("--like", metavar="RUN", help="the prompts, protocol and settings of another run's evaluation")
    parser.add_argument("--evaluation", metavar="NAME", help="which evaluation, where the run of --like has several")
    parser.add_argument("--batch-size", type=int, help="prompts at once (32; generate: 1, which is timed)")
    parser.add_argument("--gate-control", choices=CONTROLS, help="evaluate a control of gated runs: RUN-<control>")
    parser.add_argument("--device", default=default_device())
    group = parser.add_argument_group("replay and generate")
    for name, of, text in (
        ("max-new-tokens", int, "longest answer (256)"),
        ("block-size", int, "at most the size trained for (that)"),
        ("temperature", float, "generate: 0 is greedy (0)"),
        ("top-p", float, "generate: sample from the likeliest tokens of this share (1)"),
        ("top-k", int, "generate: sample from this many likeliest tokens (all)"),
        ("samples", int, "generate: answers per prompt (1)"),
        ("seed", int, "generate: of the sampling (0)"),
    ):
        group.add_argument(f"--{name}", type=of, help=text)
    group.add_argument(
        "--greedy-draft", action="store_true", help="generate: greedy drafts although the target samples"
    )
    group.add_argument("--baseline", action="store_true", help="generate: plain decoding too, in turns on every prompt")
    group.add_argument("--keep-output", action="store_true", help="keep the output's token ids")
    args = parser.parse_args(argv)
    if args.batch_size is not None and args.batch_size < 1:
        raise UsageError(f"--batch-size {args.batch_size}: expected 1 or more")
    like = _like(args) if args.like else None
    args.protocol = like.evaluation.protocol if like else args.protocol or "prefix"
    fields = {name: getattr(args, name) for name in GenerateSettings.model_fields}
    given = {name: value for name, value in fields.items() if value is not None and value is not False}
    kind = SETTINGS.get(args.protocol)
    for name in given:
        if kind is None or name not in kind.model_fields:
            taking = " or ".join(p for p, k in SETTINGS.items() if name in k.model_fields)
            raise UsageError(f"--{name.replace('_', '-')} is for --protocol {taking}")
    if like and kind:
        theirs = like.evaluation.settings
        given = {name: theirs[name] for name in kind.model_fields.keys() & theirs.keys()} | given
    settings = parse(kind, given, "command line") if kind else None
    if isinstance(settings, GenerateSettings):
        if settings.samples > 1 and settings.temperature == 0:
            raise UsageError("--samples requires --temperature > 0: greedy answers are all the same")
        if args.gate_control == "shuffled":
            raise UsageError(
                "--gate-control shuffled is for --protocol prefix or replay: decoding sees a few tokens at a time"
            )
    runs = (
        [str(control_run(Path(resolve(r)), args.gate_control)) for r in args.runs] if args.gate_control else args.runs
    )
    sources = like.sources if like else [parse_source(text) for text in args.prompts.split(",")]
    usual = like.evaluation.settings.get("batch_size") if like else None
    size = args.batch_size or usual or (1 if isinstance(settings, GenerateSettings) else 32)
    expected = like.evaluation.prompt_set_sha256 if like else None
    lines = evaluate(runs, sources, settings=settings, batch_size=size, device=args.device, expected=expected)
    print(*lines, sep="\n")
    return 0


@dataclass(frozen=True)
class _Like:
    evaluation: Evaluation
    sources: list[PromptSource]


def _like(args: argparse.Namespace) -> _Like:
    run = Run.open(args.like, allow_incomplete=True)
    evaluation = evaluation_of(run, args.protocol, args.evaluation)
    return _Like(evaluation, sources_of(run, evaluation))
