"""Serving throughput, measured fairly: ``python -m drafters.throughput CONFIG.yaml [--run DIR]``.

For every block of the plan (drafters.serving.plan) each arm's server is started in a fresh process, warmed up, and
sent the same prompts; the order of the arms rotates from block to block. ``runs/<name>/`` gets ``throughput.parquet``
with a row per trial and ``requests.parquet`` with a row per request; ``python -m analysis.serving`` reports on it. A
trial that fails is recorded with its reason, and the others go on. The same command again goes on after the last
finished trial.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from analysis.errors import DataError, DraftlabError, Parser, UsageError
from analysis.runlog.addresses import MANIFEST, resolve
from analysis.wording import counted
from drafters.checkpoints.export import export_run
from drafters.checkpoints.run_files import run_folder
from drafters.config import read_yaml
from drafters.prompts.sources import load_prompts, messages
from drafters.provenance import environment
from drafters.serving.loading import load_served
from drafters.serving.offline import WHOLE_LAST_STEP, offline_counts
from drafters.serving.plan import ArmPlan, ServingPlan, resolved, visits
from drafters.settings import parse
from drafters.target import smollm2
from drafters.target.frozen import Target


def run_plan(plan: ServingPlan, folder: Path, beside: Path, *, retry_failed: bool = False) -> list[str]:
    """Do every trial of ``plan`` that ``folder`` lacks; returns lines for the user."""
    try:
        from drafters.serving.record import Record
        from drafters.serving.trial import Bench
    except ModuleNotFoundError as error:
        raise UsageError(
            f"this command requires the module {error.name}; install the extra: pip install 'draftlab[train,serve]'"
        ) from error
    target = Target.load(plan.target)
    record = Record(folder)
    if not record.begin(plan, target.info()):
        return [f"{folder}: complete already; nothing to do"]
    if retry_failed:
        say(f"{record.forget_failed()} failed trials run again")
    prompts = load_prompts(plan.prompts)
    tokens = [target.encode_chat(messages(prompt)) for prompt in prompts]
    bench = Bench(plan, tokens, [prompt.prompt_id for prompt in prompts], record.partial / "logs", say)
    began = time.monotonic()
    turns = visits(plan)
    with tempfile.TemporaryDirectory(prefix="draftlab-") as scratch:
        for number, turn in enumerate(turns, 1):
            if not all(record.has(turn.first + i) for i in range(len(plan.concurrency))):
                say(f"[{number}/{len(turns)}] block {turn.block + 1}: {turn.arm}")
                arm = _loaded(plan, plan.arms[turn.arm], turn.arm, beside, Path(scratch))
                bench.visit(turn, arm, record.has, record.keep)
    offline = {}
    if plan.check_offline and plan.temperature == 0:
        for name, arm_plan in plan.arms.items():
            if (counts := _counted_offline(plan, arm_plan, tokens, beside)) is not None:
                say(f"{name}: counted by our own decoder")
                offline[name] = counts
    manifest = record.finish(plan, offline, environment("cpu"), time.monotonic() - began)
    return [f"{folder}: {counted(len(turns) * len(plan.concurrency), 'trial')}", *manifest.caveats]


def _loaded(plan: ServingPlan, arm: ArmPlan, name: str, beside: Path, scratch: Path) -> Any:
    """What the arm's engine is to load: folders in place of names, a run exported for an engine of others."""
    from drafters.serving.trial import Loaded

    model = resolved(arm.model or plan.target, beside)
    if arm.engine != "draftlab" and model == smollm2.NAME:
        model = str(smollm2.prepare(say)[0])
    drafter = resolved(arm.drafter, beside) if arm.drafter else None
    if drafter is not None and _is_run(drafter):
        exported = scratch / name
        if not exported.exists():
            export_run(drafter, exported, "zlab")
        drafter = str(exported)
    return Loaded(arm, model, drafter)


def _is_run(reference: str) -> bool:
    try:
        return (Path(resolve(reference)) / MANIFEST).exists()
    except DataError:
        return False


def _counted_offline(
    plan: ServingPlan, arm: ArmPlan, tokens: Sequence[Sequence[int]], beside: Path
) -> dict[str, int] | None:
    """What the arm's engine should count; None for an arm without a drafter of ours (plain decoding, a server that
    runs elsewhere, a checkpoint of others)."""
    own = arm.model if arm.engine == "draftlab" and arm.url is None else arm.drafter
    reference = arm.offline or own
    if reference is None:
        return None
    reference = resolved(reference, beside)
    if arm.engine != "draftlab" and not _is_run(reference):
        return None
    try:
        served = load_served(reference, arm.proposer, block_size=arm.block_size, confidence=arm.confidence)
    except DraftlabError as error:
        say(f"not counted offline: {error}")
        return None
    whole = arm.engine in WHOLE_LAST_STEP
    counts = offline_counts(served, tokens, plan.max_tokens, ignore_eos=plan.ignore_eos, whole_last_step=whole)
    return None if counts is None else asdict(counts)


def say(line: str) -> None:
    """A line on stderr."""
    print(line, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python -m drafters.throughput", description="Measure the throughput of serving arms.")
    parser.add_argument("config", type=Path, help="YAML file of the experiment")
    parser.add_argument("--run", metavar="DIR", help="run folder (default: runs/<name of the plan>)")
    parser.add_argument("--retry-failed", action="store_true", help="run failed trials of a stopped experiment again")
    args = parser.parse_args(argv)
    plan = parse(ServingPlan, read_yaml(args.config), str(args.config))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # servers are stopped on the way out
    lines = run_plan(plan, run_folder(plan.name, args.run), args.config.parent, retry_failed=args.retry_failed)
    print(*lines, sep="\n")
    return 0
