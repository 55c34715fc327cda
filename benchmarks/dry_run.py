"""What ``--dry-run`` computes against what a training step takes on this CPU: seconds, and the most bytes held.

    python benchmarks/dry_run.py [--target smollm2] [--rounds 5] [--fast]

Trainers of several shapes on made-up corpora, on one thread, whose own time is taken: other processes do not count,
but for what they do to caches and memory. The device is measured before every step, and medians of ``rounds`` are
taken of both. Memory is what torch's tensors held (benchmarks/allocations.py). Prints a table and one JSON line.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, cast

import torch

from analysis.errors import Parser, run_command
from drafters.axes import complete
from drafters.config import RunConfig
from drafters.corpus.build import Corpus
from drafters.settings import parse
from drafters.target.frozen import Target
from drafters.training.cost.devices import measure
from drafters.training.cost.dry_run import Given, dry_run
from drafters.training.trainer import Trainer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.allocations import Allocations
from benchmarks.training import PROMPT_TOKENS, RandomCorpus

#: Name, fields of the drafter, of the training, and tokens of an answer.
SHAPES: tuple[tuple[str, dict[str, Any], dict[str, Any], int], ...] = (
    ("study", {}, {}, 64),
    ("layerwise of 9", {"fusion": "layerwise", "target_layers": 9, "kv": "separate", "num_layers": 3}, {}, 64),
    ("full head", {"draft_vocab": None}, {}, 64),
    ("64 anchors", {}, {"anchors": 64}, 256),
    ("conv and path", {"mixing": "conv", "selection": "path"}, {}, 64),
    ("four passes", {}, {"batch": 1, "accumulate": 4}, 64),
    ("long context", {"num_layers": 1}, {"anchors": 32, "batch": 2}, 900),
)


@dataclass(frozen=True)
class Found:
    """One shape: seconds of a step and bytes at its peak, computed and measured."""

    shape: str
    seconds: float
    computed_seconds: float
    bytes: int
    computed_bytes: int


def configuration(target: str, drafter: dict[str, Any], training: dict[str, Any], answer: int) -> RunConfig:
    """The study's shapes with changes."""
    base = {"num_layers": 2, "target_layers": 5, "block_size": 8, "mask_token_id": 16}
    fields = {
        "name": "shape",
        "target": target,
        "drafter": base | drafter,
        "corpus": {"prompts": ["none"], "max_new_tokens": answer},
        "training": {"steps": 10**6, "batch": 4, "anchors": 16, "precision": "float32"} | training,
    }
    return parse(RunConfig, fields, "benchmark")


def trainer_of(config: RunConfig, target: Target, prompt_tokens: int = PROMPT_TOKENS) -> Trainer:
    """A trainer of ``config`` on a made-up corpus."""
    size = config.drafter.draft_vocab
    drafter = complete(config.drafter, target, tuple(range(size)) if size else None)
    layers = len(drafter.target_layer_ids) + config.reads_final_state
    corpus = cast(Corpus, RandomCorpus(config, layers, target, prompt_tokens))
    return Trainer(config, drafter, corpus, target, "cpu", config.training.precision)


def peak_bytes(trainer: Trainer) -> int:
    """Of a step that is not the first, which makes the moments."""
    trainer.train_step()
    drafter, model = trainer.drafter, trainer.reader.target.model
    before = [*drafter.parameters(), *model.parameters(), trainer.head.weight]
    before += [p.grad for p in drafter.parameters() if p.grad is not None]
    before += [v for state in trainer.optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor)]
    with Allocations(before) as seen:
        trainer.train_step()
    return seen.peak


def compare(reference: str, shapes: Sequence[Any], rounds: int) -> list[Found]:
    """Every shape."""
    target = Target.load(reference)
    found = []
    for name, drafter, training, answer in shapes:
        rows = {"draft_vocab": min(4096, target.vocab_size // 2)}
        config = configuration(reference, rows | drafter, training, answer)
        trainer = trainer_of(config, target)
        held, seconds, computed = peak_bytes(trainer), [], []
        for _ in range(rounds):
            flops, bandwidth = measure(clock=time.process_time)
            given = Given(prompt_tokens=PROMPT_TOKENS, flops=flops, bandwidth=bandwidth)
            estimate = dry_run(config, given)
            computed.append(estimate.time.total)
            started = time.process_time()
            trainer.train_step()
            seconds.append(time.process_time() - started)
        found.append(Found(name, median(seconds), median(computed), held, estimate.memory.peak))
    return found


def table(found: Sequence[Found]) -> str:
    """The measurements for people."""
    lines = [f"{'shape':<16}{'step, ms':>10}{'computed':>10}{'ratio':>7}{'peak, MB':>10}{'computed':>10}{'ratio':>7}"]
    for one in found:
        lines.append(
            f"{one.shape:<16}{1e3 * one.seconds:10.0f}{1e3 * one.computed_seconds:10.0f}"
            f"{one.computed_seconds / one.seconds:7.2f}{one.bytes / 1e6:10.0f}{one.computed_bytes / 1e6:10.0f}"
            f"{one.computed_bytes / one.bytes:7.2f}"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python benchmarks/dry_run.py", description="--dry-run against measured training steps.")
    parser.add_argument("--target", default="smollm2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fast", action="store_true", help="one shape, one round")
    args = parser.parse_args(argv)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # gradients of made-up states underflow, and products of such numbers are slow
    found = compare(args.target, SHAPES[:1] if args.fast else SHAPES, 1 if args.fast else args.rounds)
    torch.set_flush_denormal(False)
    torch.set_num_threads(threads)
    print(table(found))
    print(json.dumps({"benchmark": "dry_run", "shapes": [asdict(f) for f in found]}))
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
