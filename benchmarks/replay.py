"""Seconds per evaluated answer, replayed and decoded: ``python benchmarks/replay.py [--run RUN] [--prompts 32]``.

The same drafter on the same prompts, in one process, taking turns: the protocol ``generate`` one prompt at a time (as
the command does by default) and in a batch; ``replay`` with nothing in the cache, again with the target's answers
there, and with several arms that share them. Without RUN the drafter is untrained: tau is then about 1, and decoding
takes a step for every token, its slowest case. Prints a table, and one JSON line last.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from analysis.errors import Parser, run_command
from analysis.runlog.addresses import resolve
from analysis.runlog.reading import read_manifest
from drafters.axes import DrafterChoice, complete
from drafters.checkpoints.folder import load_drafter
from drafters.checkpoints.run_files import FINAL
from drafters.evaluation.arms import BlockArm
from drafters.evaluation.generation import Generate, GenerateSettings
from drafters.evaluation.loading import common_target
from drafters.evaluation.replay import Replay, ReplaySettings
from drafters.evaluation.rows import BatchRows
from drafters.evaluation.variants import weights_of
from drafters.model.drafter import Drafter
from drafters.prompts.sources import Prompt
from drafters.target.frozen import Target

ARMS = 4  # of the measurement with several


def questions(count: int) -> list[Prompt]:
    """Prompts of like length, of no study."""
    texts = [f"Tom has {n + 3} apples, buys {2 * n + 5} and gives {n} away. How many are left?" for n in range(count)]
    return [Prompt(prompt_id=str(n), dataset="apples", turns=(t,), cluster_id=str(n)) for n, t in enumerate(texts)]


def tau(batches: Sequence[BatchRows]) -> float:
    """Tokens per step, pooled."""
    steps = [row["emitted"] for rows in batches for row in rows.tables["acceptance"]]
    return sum(steps) / len(steps)


def measure(target: Target, arm: BlockArm, prompts: Sequence[Prompt], tokens: int, rounds: int) -> dict[str, float]:
    """Median seconds per answer (and arm) by way of evaluation, and each way's tau."""

    def generate(group: Sequence[Sequence[Prompt]]) -> list[BatchRows]:
        protocol = Generate(target, "x", lambda prompt: {}, GenerateSettings(max_new_tokens=tokens))
        return [protocol.batch(batch, [arm])[0] for batch in group]

    def replay(arms: int) -> list[BatchRows]:
        protocol = Replay(target, "x", lambda prompt: {}, ReplaySettings(max_new_tokens=tokens))
        return protocol.batch(prompts, [arm] * arms)

    ways: dict[str, tuple[Callable[[], list[BatchRows]], int]] = {
        "generate, one at a time": (lambda: generate([[prompt] for prompt in prompts]), 1),
        "generate, batched": (lambda: generate([prompts]), 1),
        "replay": (lambda: replay(1), 1),
        "replay, answers cached": (lambda: replay(1), 1),
        f"replay, answers cached, {ARMS} arms": (lambda: replay(ARMS), ARMS),
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    found: dict[str, float] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            os.environ["DRAFTLAB_CACHE"] = cache
            for way, (evaluate, arms) in ways.items():
                started = time.perf_counter()
                found[f"tau: {way}"] = tau(evaluate())
                seconds[way].append((time.perf_counter() - started) / len(prompts) / arms)
    return {way: median(times) for way, times in seconds.items()} | found


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python benchmarks/replay.py", description="Seconds per answer, replayed and decoded.")
    parser.add_argument("--run", metavar="RUN", help="a trained run with its weights (default: an untrained drafter)")
    parser.add_argument("--target", default="smollm2", help="of the untrained drafter")
    parser.add_argument("--mask", type=int, default=16, help="its mask token")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=96, help="longest answer")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(argv)
    if args.run:
        folder = Path(resolve(args.run))
        target = common_target([folder], "cpu")
        drafter = load_drafter(weights_of(folder, read_manifest(str(folder))) / FINAL)
    else:
        target = Target.load(args.target)
        choice = DrafterChoice(num_layers=2, target_layers=5, block_size=8, mask_token_id=args.mask)
        drafter = Drafter(complete(choice, target)).initialise(0)
    before = os.environ.get("DRAFTLAB_CACHE")
    try:
        found = measure(target, BlockArm(drafter, target), questions(args.prompts), args.tokens, args.rounds)
    finally:
        os.environ.pop("DRAFTLAB_CACHE")
        if before is not None:
            os.environ["DRAFTLAB_CACHE"] = before
    table = Table("evaluation", "seconds per answer and arm", "tau", box=None)
    for way in [name for name in found if not name.startswith("tau: ")]:
        table.add_row(way, f"{found[way]:.3f}", f"{found[f'tau: {way}']:.3f}")
    Console().print(table)
    print(json.dumps({"benchmark": "replay", "prompts": args.prompts, "tokens": args.tokens, **found}))
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
