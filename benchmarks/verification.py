"""What verifying a block costs a target, by its size: the tau at which a block is as fast as plain decoding.

    python benchmarks/verification.py [--target smollm2] [--context 150] [--rounds 12]

Blocks of random tokens after a random context, sizes by turns, medians over rounds. Prints a table and one JSON line.
The drafter's own time comes on top (benchmarks/fusion.py).
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from statistics import median

import torch

from analysis.errors import Parser, run_command
from drafters.target.frozen import Target

SIZES = (1, 2, 3, 4, 5, 6, 8, 12, 16)


@torch.inference_mode()
def measure(target: Target, context: int, rounds: int) -> dict[int, float]:
    """Milliseconds of one pass over so many tokens, with logits for all of them."""
    ids = torch.randint(target.vocab_size, (1, context), generator=torch.Generator().manual_seed(0))
    ids = ids.to(target.device)
    times: dict[int, list[float]] = {size: [] for size in SIZES}
    for number in range(rounds + 1):  # the first pass of anything is slow
        for size in SIZES if number % 2 else reversed(SIZES):
            cache = target.new_cache()
            target.forward(ids, cache=cache)
            started = time.perf_counter()
            target.forward(ids[:, :size], cache=cache, logits="all")
            if number:
                times[size].append(1e3 * (time.perf_counter() - started))
    return {size: median(found) for size, found in times.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python benchmarks/verification.py", description="What verifying a block costs, by its size.")
    parser.add_argument("--target", default="smollm2")
    parser.add_argument("--context", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=12)
    args = parser.parse_args(argv)
    found = measure(Target.load(args.target), args.context, args.rounds)
    print(f"{'tokens':>7}{'ms':>9}{'tau to break even':>20}")
    for size, milliseconds in found.items():
        print(f"{size:7}{milliseconds:9.1f}{milliseconds / found[1]:20.2f}")
    print(json.dumps({"benchmark": "verification", "threads": torch.get_num_threads(), "ms": found}))
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
