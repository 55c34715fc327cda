"""How many tokens to verify: ``python benchmarks/block_rules.py RUN [--prompts 12] [--tokens 64]``.

Fixed blocks, blocks that end where the product of the draft's own probabilities falls under a threshold, and both with
prompt lookup in front, each against plain decoding on the same prompts, one prompt at a time. All rules take turns on
every prompt, in an order that rotates. Prints tau, tokens verified a step and the speed-up with its t interval over
prompts, and one JSON line last. RUN is a trained run with its weights (``make study`` leaves some).
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import pandas as pd
from rich.progress import track

from analysis.errors import Parser, run_command
from analysis.measures.throughput import block_estimate
from analysis.runlog.addresses import resolve
from analysis.runlog.reading import read_manifest
from drafters.checkpoints.folder import load_drafter
from drafters.checkpoints.run_files import FINAL
from drafters.decoding.decode import DecodeOutput, decode
from drafters.decoding.lookup_first import LookupFirst
from drafters.decoding.proposers import BlockProposer, LookupProposer, Proposer
from drafters.evaluation.loading import common_target
from drafters.evaluation.variants import weights_of
from drafters.model.drafter import Drafter
from drafters.prompts.sources import PromptSource, load_prompts, messages
from drafters.target.frozen import Target

SIZES = (2, 3, 4, 8)
THRESHOLDS = (0.8, 0.6, 0.4, 0.2)
#: A rule by name; a proposer is made anew for every answer, since it holds the answer's context.
Rules = dict[str, Callable[[], Proposer | None]]


def rules(target: Target, drafter: Drafter) -> Rules:
    """Plain decoding first, then every rule."""
    trained = drafter.config.block_size
    sizes = [size for size in SIZES if size <= trained]
    found: Rules = {"plain": lambda: None}
    for size in sizes:
        found[f"lookup, block {size}"] = lambda size=size: LookupProposer(size)  # type: ignore[misc]
    settings = [(f"block {size}", size, 0.0) for size in sizes]
    settings += [(f"confidence {threshold:g}", trained, threshold) for threshold in THRESHOLDS]
    for name, size, threshold in settings:

        def alone(size: int = size, threshold: float = threshold) -> BlockProposer:
            return BlockProposer(target, drafter, size, threshold)

        found[name] = alone
        found[f"{name}, with lookup"] = lambda alone=alone: LookupFirst(alone())  # type: ignore[misc]
    return found


def measure(target: Target, drafter: Drafter, prompts: Sequence[Sequence[int]], tokens: int) -> dict[str, Any]:
    """Per rule: tau, tokens verified a step, seconds of every prompt, speed-up with its interval."""
    every = rules(target, drafter)
    names = list(every)
    outputs: dict[str, list[DecodeOutput]] = defaultdict(list)
    for make in every.values():  # the first pass of anything is slow
        decode(target, make(), [prompts[0]], max_new_tokens=4, stop_ids=frozenset())
    for number, prompt in enumerate(track(prompts, description="prompts")):
        for name in np.roll(names, -number * len(names) // len(prompts)).tolist():
            outputs[name].append(decode(target, every[name](), [prompt], max_new_tokens=tokens, stop_ids=frozenset()))
    plain = _log_seconds(outputs["plain"])
    found = {}
    for name in names:
        steps = [step for output in outputs[name] for step in output.sequences[0].steps]
        e = block_estimate(pd.DataFrame({"A": _log_seconds(outputs[name]), "B": plain}))
        ratio, lo, hi = (None if x is None else float(np.exp(x)) for x in (e.estimate, e.lo, e.hi))
        found[name] = {
            "tau": sum(step.emitted for step in steps) / len(steps),
            "verified": 1 + sum(step.drafted for step in steps) / len(steps),
            "speed_up": ratio,
            "lo": lo,
            "hi": hi,
        }
    return found


def _log_seconds(outputs: Sequence[DecodeOutput]) -> np.ndarray:
    return np.log([output.seconds.decode for output in outputs])


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python benchmarks/block_rules.py", description="How many tokens to verify.")
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--source", default="gsm_symbolic", help="prompt source")
    args = parser.parse_args(argv)
    folder = Path(resolve(args.run))
    target = common_target([folder], "cpu")
    drafter = load_drafter(weights_of(folder, read_manifest(str(folder))) / FINAL).eval()
    # a seed of their own: prompts that no study trains or evaluates on
    chats = [messages(p) for p in load_prompts([PromptSource(source=args.source, count=args.prompts, seed=11)])]
    found = measure(target, drafter, [target.encode_chat(chat) for chat in chats], args.tokens)
    print(f"{'rule':32} {'tau':>6} {'verified':>9} {'speed-up':>9}  95% interval over {args.prompts} prompts")
    for name, of in found.items():
        bounds = "" if of["lo"] is None else f"{of['lo']:.2f} to {of['hi']:.2f}"
        print(f"{name:32} {of['tau']:6.3f} {of['verified']:9.2f} {of['speed_up']:9.2f}  {bounds}")
    print(json.dumps({"run": args.run, "prompts": args.prompts, "tokens": args.tokens, "rules": found}))
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
