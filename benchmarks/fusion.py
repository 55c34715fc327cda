"""What every axis of a drafter costs in a decoding step: fusions of five or nine target layers, and what DFlash2 and
DSpark add.

    python benchmarks/fusion.py [--target smollm2] [--layers 5] [--tokens 48] [--rounds 8]

Untrained drafters of one shape that differ in one axis, all in one process, taking turns: forwards, then
backwards, every round. Two measurements: the fusion by itself, on as many tokens as a step commits, and whole decoding
steps. Besides, every token whose context keys and values are projected is counted: one projection per committed token
is what the cache is for. Prints a table and one JSON line.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch

from analysis.errors import Parser, run_command
from drafters.axes import DrafterChoice, complete
from drafters.decoding.decode import decode
from drafters.model.drafter import Context, Drafter
from drafters.target.frozen import Target

#: Name, target layers, and the axes in which an arm differs from the first.
ARMS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("concat", 5, {}),
    ("gated", 5, {"fusion": "gated"}),
    ("layerwise", 9, {"fusion": "layerwise"}),
    ("layerwise_gated", 9, {"fusion": "layerwise_gated"}),
    ("conv", 5, {"mixing": "conv"}),
    ("path", 5, {"selection": "path"}),
    ("markov", 5, {"selection": "markov"}),
    ("markov_gated", 5, {"selection": "markov_gated"}),
    ("conv + path", 5, {"mixing": "conv", "selection": "path"}),
)
COMMITTED = (1, 4, 8)  # tokens of a step: none accepted, about what a good drafter reaches, a whole block of 8
PROMPT = "Natalia sold clips to 48 of her friends in April, and half as many in May. How many clips did she sell?"


@dataclass(frozen=True)
class Cost:
    """One arm; ``share`` is what its fusion costs beyond the first arm's, as a part of that arm's step."""

    arm: str
    target_layers: int
    fusing_us: dict[int, float]  # by committed tokens
    share: dict[int, float]
    step_ms: float
    step_ratio: float  # median over rounds of its step to the first arm's
    projected_per_committed: float


def take_turns(arms: int, rounds: int, measure: Callable[[int], float]) -> list[list[float]]:
    """Per arm its measurements; the order is reversed every other round, so that a drift falls on all alike."""
    found: list[list[float]] = [[] for _ in range(arms)]
    for number in range(rounds):
        for arm in range(arms) if number % 2 == 0 else reversed(range(arms)):
            found[arm].append(measure(arm))
    return found


class CountingDrafter(Drafter):
    """A drafter that counts the tokens whose context it projects."""

    projected = 0

    def project_context(self, features: torch.Tensor, positions: torch.Tensor) -> Context:
        self.projected += positions.numel()
        return super().project_context(features, positions)


@torch.inference_mode()
def measure(target: Target, layers: int, mask: int, tokens: int, rounds: int) -> list[Cost]:
    """All arms on one target."""
    drafters = []
    for _, count, axes in ARMS:
        shape = {"num_layers": layers, "target_layers": count, "block_size": 8, "mask_token_id": mask}
        choice = DrafterChoice.model_validate(shape | axes)
        drafters.append(CountingDrafter(complete(choice, target)).initialise(0).eval())
    prompt = target.encode_chat([{"role": "user", "content": PROMPT}])
    projected = [0.0] * len(ARMS)

    def step(arm: int) -> float:
        drafter = drafters[arm]
        drafter.projected = 0
        output = decode(target, drafter, [prompt], max_new_tokens=tokens, stop_ids=frozenset())
        (sequence,) = output.sequences
        committed = len(prompt) + sum(s.emitted for s in sequence.steps)
        projected[arm] = drafter.projected / committed
        return output.seconds.decode / len(sequence.steps)

    def fuse(arm: int, count: int) -> float:
        features = torch.randn(1, count, ARMS[arm][1], target.hidden_size)
        started = time.perf_counter()
        for _ in range(20):
            drafters[arm].fusion(features)
        return (time.perf_counter() - started) / 20

    for arm in range(len(ARMS)):  # the first pass of anything is slow
        step(arm)
    steps = take_turns(len(ARMS), rounds, step)
    fusing = {n: [median(m) for m in take_turns(len(ARMS), 10 * rounds, lambda a, n=n: fuse(a, n))] for n in COMMITTED}
    reference = median(steps[0])
    return [
        Cost(
            arm=name,
            target_layers=count,
            fusing_us={n: 1e6 * fusing[n][arm] for n in COMMITTED},
            share={n: (fusing[n][arm] - fusing[n][0]) / reference for n in COMMITTED},
            step_ms=1e3 * median(steps[arm]),
            step_ratio=median(ours / first for ours, first in zip(steps[arm], steps[0], strict=True)),
            projected_per_committed=projected[arm],
        )
        for arm, (name, count, _) in enumerate(ARMS)
    ]


def table(costs: Sequence[Cost]) -> str:
    """The measurements for people."""
    fusing = "".join(f"{f'{n} tok., us':>12}{'% of step':>11}" for n in COMMITTED)
    lines = [f"{'arm':<16}{'layers':>7}{fusing}{'step, ms':>10}{'ratio':>8}{'projected/committed':>21}"]
    for cost in costs:
        cells = "".join(f"{cost.fusing_us[n]:12.0f}{100 * cost.share[n]:+11.2f}" for n in COMMITTED)
        whole = f"{cost.step_ms:10.1f}{cost.step_ratio:8.3f}{cost.projected_per_committed:21.3f}"
        lines.append(f"{cost.arm:<16}{cost.target_layers:7}{cells}{whole}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(
        prog="python benchmarks/fusion.py", description="What every axis of a drafter costs in a decoding step."
    )
    parser.add_argument("--target", default="smollm2")
    parser.add_argument("--layers", type=int, default=5, help="draft layers of every arm")
    parser.add_argument("--mask", type=int, default=16, help="mask token id")
    parser.add_argument("--tokens", type=int, default=48, help="decoded per measurement")
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args(argv)
    costs = measure(Target.load(args.target), args.layers, args.mask, args.tokens, args.rounds)
    print(table(costs))
    print(json.dumps({"benchmark": "fusion", "threads": torch.get_num_threads(), "arms": [asdict(c) for c in costs]}))
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
