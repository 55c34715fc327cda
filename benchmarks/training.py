"""What an optimizer step costs, by precision of the matrix products and by fusion.

    python benchmarks/training.py [--recipe drafters/recipes/study-common.yaml] [--rounds 10]

Trainers of one shape on one made-up corpus (random hidden states, so no target has to answer anything), taking turns
step by step in one process. Prints a table and one JSON line; what ``precision: auto`` chooses here is marked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import cast

import torch

from analysis.errors import Parser, run_command
from drafters.axes import complete
from drafters.config import RunConfig, merge, read_yaml
from drafters.corpus.build import Corpus, CorpusExample
from drafters.settings import parse
from drafters.target.frozen import Target
from drafters.training.schedule import native_precision
from drafters.training.trainer import Trainer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.fusion import take_turns

PRECISIONS = ("float32", "bfloat16")
FUSIONS = ("concat", "gated", "layerwise")
PROMPT_TOKENS = 100  # as a word problem has


@dataclass(frozen=True)
class Cost:
    """One trainer: seconds per optimizer step (median), and how many times faster it is than the first."""

    fusion: str
    precision: str
    step_s: float
    faster: float


class RandomCorpus:
    """As many examples as are asked for, of one length, all with the same random content; with the states of ``layers``
    target layers, unless the corpus is read online."""

    def __init__(self, config: RunConfig, layers: int, target: Target, prompt_tokens: int = PROMPT_TOKENS):
        self.count = config.training.batch * config.training.accumulate
        length = prompt_tokens + config.corpus.max_new_tokens
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(100, min(1000, target.vocab_size), (length,), generator=generator)
        self.features: torch.Tensor | None = None
        if config.corpus.features == "stored":
            self.features = torch.randn(length - 1, layers, target.hidden_size, generator=generator).bfloat16()
        self.supervised = torch.arange(length) >= prompt_tokens
        self.prompt_tokens, self.vocab_size = prompt_tokens, target.vocab_size

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> CorpusExample:
        return CorpusExample(
            str(index), "random", str(index), self.tokens, self.prompt_tokens, self.supervised, self.features
        )


def measure(recipe: Path, rounds: int) -> list[Cost]:
    """Every fusion in every precision."""
    arms = [(fusion, precision) for fusion in FUSIONS for precision in PRECISIONS]
    data = read_yaml(recipe)
    target = Target.load(data["target"])
    trainers = []
    for fusion, precision in arms:
        over = {"name": fusion, "drafter": {"fusion": fusion}, "training": {"steps": 10**6}}
        config = parse(RunConfig, merge(data, over), str(recipe))
        size = config.drafter.draft_vocab
        vocab = tuple(range(100, 100 + size)) if size else None  # made up: the first tokens that are not special
        drafter = complete(config.drafter, target, vocab)
        corpus = cast(Corpus, RandomCorpus(config, len(drafter.target_layer_ids), target))
        trainers.append(Trainer(config, drafter, corpus, target, "cpu", precision))
    for trainer in trainers:  # the first pass of anything is slow
        trainer.train_step()
    seconds = take_turns(len(arms), rounds, lambda arm: trainers[arm].train_step()["seconds"])
    return [
        Cost(fusion, precision, median(mine), median(a / b for a, b in zip(seconds[0], mine, strict=True)))
        for (fusion, precision), mine in zip(arms, seconds, strict=True)
    ]


def table(costs: Sequence[Cost]) -> str:
    """The measurements for people."""
    auto = native_precision("cpu")
    lines = [f"{'fusion':<12}{'precision':<18}{'step, ms':>10}{'times faster':>14}"]
    for cost in costs:
        precision = cost.precision + (" (auto)" if cost.precision == auto else "")
        lines.append(f"{cost.fusion:<12}{precision:<18}{1e3 * cost.step_s:10.0f}{cost.faster:14.2f}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python benchmarks/training.py", description="What an optimizer step costs.")
    parser.add_argument("--recipe", type=Path, default=Path("drafters/recipes/study-common.yaml"))
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args(argv)
    costs = measure(args.recipe, args.rounds)
    print(table(costs))
    print(json.dumps({"benchmark": "training", "threads": torch.get_num_threads(), "arms": [asdict(c) for c in costs]}))
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
