"""What the decoding loop costs and gains: ``python benchmarks/decoding.py RUN [--prompts 8] [--speed-prompts 48]``.

Four questions, everything interleaved in one process:

* overhead: a step of the loop against the bare forwards that it consists of, at the same sizes;
* reference: a step against one of ``dflash_generate`` (package dflash), same weights, full head, same prompts;
* batch: tokens per second of 8 sequences together against one after another;
* speed-up: against plain decoding, prompt by prompt, each in the other order than the one before, with tau beside it:
  at the answer length of the study, at 256 tokens (an eighth of the prompts), and on templates that training never saw
  (half of them). Prompts differ much: a dozen of them can be a tenth off.

Prints a table, and one JSON line last. RUN is a trained run with its weights (``make study`` leaves some).
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from analysis.errors import Parser, run_command
from analysis.runlog.addresses import resolve
from analysis.runlog.reading import read_manifest
from drafters.checkpoints.folder import load_drafter, save_drafter
from drafters.checkpoints.layouts import PLAIN, architecture
from drafters.checkpoints.run_files import FINAL
from drafters.decoding.decode import DecodeOutput, decode
from drafters.decoding.ragged import RaggedCache
from drafters.evaluation.loading import common_target
from drafters.evaluation.variants import weights_of
from drafters.model.drafter import Drafter
from drafters.model.head import Head
from drafters.prompts.sources import PromptSource, load_prompts, messages
from drafters.target.frozen import Target

NONE: frozenset[int] = frozenset()


def encoded(target: Target, split: str, count: int) -> list[list[int]]:
    """Prompts that no study trains or evaluates on (a seed of their own)."""
    source = PromptSource(source="gsm_symbolic", split=split, count=count, seed=11)
    return [target.encode_chat(messages(prompt)) for prompt in load_prompts([source])]


def tau(outputs: Sequence[DecodeOutput]) -> float:
    """Tokens per step, pooled."""
    sequences = [s for output in outputs for s in output.sequences]
    return sum(len(s.tokens) - 1 for s in sequences) / sum(len(s.steps) for s in sequences)


def overhead(target: Target, drafter: Drafter, prompts: list[list[int]], tokens: int) -> dict[str, float]:
    """Median over prompts of (time of a step in the loop) / (time of its two forwards alone)."""
    ratios, loop_ms = [], []
    for prompt in prompts:
        found = decode(target, drafter, [prompt], max_new_tokens=tokens, stop_ids=NONE)
        steps = len(found.sequences[0].steps)
        loop = found.seconds.decode / steps
        bare = bare_step(target, drafter, len(prompt) + tokens // 2, round(tau([found])))
        ratios.append(loop / bare)
        loop_ms.append(1e3 * loop)
    return {"ratio": statistics.median(ratios), "loop_ms": statistics.median(loop_ms)}


@torch.inference_mode()
def bare_step(target: Target, drafter: Drafter, length: int, committed: int, repeats: int = 12) -> float:
    """Median seconds of one target pass over a block after ``length`` tokens, plus one pass of the drafter."""
    size, layers = drafter.config.block_size, drafter.config.target_layer_ids
    head = Head(target, drafter.config)
    cache = RaggedCache(target.num_layers, 1, target.device)
    ids = torch.randint(20, min(1000, target.vocab_size), (1, length), generator=torch.Generator().manual_seed(0))
    cache.rows.begin(length)
    first = target.forward(ids, layer_ids=layers, position_ids=cache.rows.positions, cache=cache)
    assert first.features is not None
    context = drafter.project_context(first.features, torch.arange(length))
    cache.rows.lengths = [length]
    block = ids[:, :size]
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        hidden = drafter(head.embed(block)[:, None], torch.tensor([[length]]), context)
        (hidden[:, 0, 1:] @ head.weight.T).argmax(-1)
        cache.rows.begin(size)
        out = target.forward(
            block,
            layer_ids=layers,
            attention_mask=cache.rows.mask(),
            position_ids=cache.rows.positions,
            cache=cache,
            logits="all",
        )
        assert out.features is not None and out.logits is not None
        out.logits.argmax(-1)
        drafter.project_context(out.features[:, :committed], torch.arange(length, length + committed))
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def against_reference(
    target: Target, drafter: Drafter, prompts: list[list[int]], tokens: int, scratch: Path
) -> dict[str, float] | None:
    """Median over prompts of our seconds per step / theirs, same weights with the full head.

    None without dflash, and for a drafter that it does not know.
    """
    try:
        from dflash import model as reference
    except ImportError:
        return None
    if architecture(drafter.config) != PLAIN:
        return None
    torch.cuda.synchronize = lambda *_: None  # type: ignore[assignment]  # their clock wants it; this is a CPU
    whole = Drafter(drafter.config.model_copy(update={"draft_vocab": None}))
    whole.load_state_dict(drafter.state_dict())
    save_drafter(whole.eval(), scratch)
    theirs = reference.DFlashDraftModel.from_pretrained(scratch).eval()
    ratios = []
    for prompt in prompts:
        started = time.perf_counter()
        found = reference.dflash_generate(theirs, target.model, torch.tensor([prompt]), tokens, None, return_stats=True)
        seconds = time.perf_counter() - started - found.time_to_first_token
        ours = decode(target, whole, [prompt], max_new_tokens=tokens, stop_ids=NONE)
        steps = ours.sequences[0].steps
        assert [step.emitted for step in steps] == found.acceptance_lengths
        ratios.append(ours.seconds.decode / seconds)
    return {"ratio": statistics.median(ratios)}


def batching(target: Target, drafter: Drafter, prompts: list[list[int]], tokens: int) -> dict[str, float]:
    """Tokens per second of decoding 8 together over one after another."""
    group = prompts[:8]
    together = decode(target, drafter, group, max_new_tokens=tokens, stop_ids=NONE)
    alone = [decode(target, drafter, [p], max_new_tokens=tokens, stop_ids=NONE) for p in group]
    again = decode(target, drafter, group, max_new_tokens=tokens, stop_ids=NONE)
    fast = statistics.mean([together.seconds.decode, again.seconds.decode])
    return {"ratio": sum(o.seconds.decode for o in alone) / fast}


def speed_up(target: Target, drafter: Drafter, prompts: list[list[int]], tokens: int) -> dict[str, float]:
    """Pooled plain seconds per token over pooled drafted seconds per token; stop tokens end answers as usual."""
    plain, drafted = [], []
    for number, prompt in enumerate(prompts):
        for kind in ("plain", "draft") if number % 2 == 0 else ("draft", "plain"):
            found = decode(target, drafter if kind == "draft" else None, [prompt], max_new_tokens=tokens)
            (drafted if kind == "draft" else plain).append(found)

    def per_token(outputs: list[DecodeOutput]) -> float:
        return sum(o.seconds.decode for o in outputs) / sum(len(o.sequences[0].tokens) - 1 for o in outputs)

    ratio = per_token(plain) / per_token(drafted)
    return {"ratio": ratio, "tau": tau(drafted), "plain_ms": 1e3 * per_token(plain), "prompts": len(prompts)}


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python benchmarks/decoding.py", description="What the decoding loop costs and gains.")
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--speed-prompts", type=int, default=48)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--longer", type=int, default=256, help="tokens of the long answers")
    parser.add_argument("--scratch", type=Path, default=Path("build/benchmark-drafter"))
    args = parser.parse_args(argv)
    folder = Path(resolve(args.run))
    target = common_target([folder], "cpu")
    drafter = load_drafter(weights_of(folder, read_manifest(str(folder))) / FINAL)
    args.scratch.mkdir(parents=True, exist_ok=True)
    seen, unseen = (encoded(target, split, max(args.prompts, args.speed_prompts)) for split in ("seen", "unseen"))
    few, many = seen[: args.prompts], args.speed_prompts
    longer, unseen = seen[: max(2, many // 8)], unseen[: max(2, many // 2)]
    decode(target, drafter, [seen[0]], max_new_tokens=8)  # the first pass of anything is slow

    results: dict[str, Any] = {
        "overhead over bare forwards (time)": overhead(target, drafter, few, args.tokens),
        "step against dflash_generate (time)": against_reference(target, drafter, few, args.tokens, args.scratch),
        "batch of 8 against 1 (tokens/s)": batching(target, drafter, seen, args.tokens),
        f"speed-up, seen templates, {args.tokens} tokens": speed_up(target, drafter, seen[:many], args.tokens),
        f"speed-up, seen templates, {args.longer} tokens": speed_up(target, drafter, longer, args.longer),
        f"speed-up, unseen templates, {args.tokens} tokens": speed_up(target, drafter, unseen, args.tokens),
    }
    table = Table("what", "ratio", "tau", "ms")
    for name, found in results.items():
        found = found or {}
        cells = [f"{found[key]:.2f}" if key in found else "" for key in ("ratio", "tau")]
        ms = next((f"{value:.0f}" for key, value in found.items() if key.endswith("_ms")), "")
        table.add_row(name, *cells, ms)
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(table)
    print(json.dumps({"run": folder.name, "threads": torch.get_num_threads(), "prompts": args.prompts, **results}))
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
