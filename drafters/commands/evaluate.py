"""Evaluate trained arms on held-out prompts: ``python -m drafters.evaluate RUN [RUN ...] --prompts ...``.

Several runs of one target are evaluated together, on the same prompts: under ``prefix`` and ``replay`` the target
answers each batch once for all of them, under ``generate`` the arms take turns on every prompt. Under torchrun the
batches are shared among the ranks.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.errors import Parser, UsageError
from analysis.runlog.addresses import resolve
from analysis.runlog.manifest import Evaluation
from analysis.runlog.reading import Run
from drafters.evaluation.controls import CONTROLS, control_run
from drafters.evaluation.generation import GenerateSettings
from drafters.evaluation.like import evaluation_of, sources_of
from drafters.evaluation.lookup_first import lookup_first_run
from drafters.evaluation.run import SETTINGS, evaluate
from drafters.prompts.sources import (
    PromptSource,
    parse_source,
)
from drafters.ranks import default_device
from drafters.settings import parse


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
    variant = parser.add_mutually_exclusive_group()
    variant.add_argument("--gate-control", choices=CONTROLS, help="evaluate a control of gated runs: RUN-<control>")
    variant.add_argument(
        "--with-lookup", action="store_true", help="evaluate the drafters with prompt lookup in front: RUN-lookup"
    )
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
    runs = args.runs
    if args.gate_control:
        runs = [str(control_run(Path(resolve(run)), args.gate_control)) for run in runs]
    elif args.with_lookup:
        runs = [str(lookup_first_run(Path(resolve(run)))) for run in runs]
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
