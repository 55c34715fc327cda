"""Our load generator beside a public one: ``python benchmarks/load_generators.py MODEL [--rounds 3]``.

One server of ours (MODEL: a run, or a target for plain decoding) gets the same prompts from ``drafters.throughput``'s
client and from ``vllm bench serve``, by turns, each first in every other round. Prints output tokens per second of
both, their medians and ratio, the accepted length that each of them saw, and one JSON line last. Requires
`make serve-env`.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from analysis.errors import Parser, UsageError, run_command
from drafters.prompts.sources import PromptSource, load_prompts, messages
from drafters.serving.client import Ask, put_load
from drafters.serving.counters import Counts, scrape
from drafters.serving.engines import ENVIRONMENT, VLLM_PYTHON, Place, command
from drafters.serving.loading import load_served
from drafters.serving.plan import ArmPlan
from drafters.serving.process import free_port, running
from drafters.target.frozen import Target

HOST, NAME = "127.0.0.1", "served"
# the CPU build is not called vllm, and the name of its version chooses the library that it loads
SHIM = """
import importlib.metadata as metadata, sys
version = metadata.version
metadata.version = lambda name: "0.32.0+cpu" if name == "vllm" else version(name)
from vllm.entrypoints.cli.main import main
sys.argv = ["vllm", *sys.argv[1:]]
main()
"""


@dataclass(frozen=True)
class Asked:
    """The load: prompts as token ids and as text, concurrent requests, tokens of an answer."""

    ids: Sequence[Sequence[int]]
    texts: Sequence[str]
    concurrency: int
    tokens: int


def ours(url: str, asked: Asked) -> float:
    """Output tokens per second by ``drafters.throughput``'s client."""
    load = put_load(url, asked.ids, Ask(NAME, asked.tokens), asked.concurrency)
    if bad := [answer.status for answer in load.answers if not answer.ok]:
        raise UsageError(f"our client: {bad[0]}")
    return sum(answer.output_tokens or 0 for answer in load.answers) / load.duration_s


def theirs(url: str, asked: Asked, tokenizer: str, folder: Path) -> float:
    """Output tokens per second by ``vllm bench serve``."""
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in asked.texts), encoding="utf-8")
    line = [VLLM_PYTHON, "-c", SHIM, "bench", "serve", "--backend", "openai", "--base-url", url, "--model", NAME]
    line += ["--endpoint", "/v1/completions", "--tokenizer", tokenizer, "--dataset-name", "custom"]
    line += ["--dataset-path", str(prompts), "--skip-chat-template", "--custom-output-len", str(asked.tokens)]
    line += ["--num-prompts", str(len(asked.texts)), "--max-concurrency", str(asked.concurrency), "--ignore-eos"]
    line += ["--disable-shuffle", "--temperature", "0", "--disable-tqdm", "--save-result", "--result-dir", str(folder)]
    line += ["--result-filename", "result.json"]
    environment = {**ENVIRONMENT["vllm"], "PATH": ""}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"vllm bench serve: {done.stderr.strip().splitlines()[-1]}")
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    if result["failed"] or result["total_output_tokens"] != len(asked.texts) * asked.tokens:
        raise UsageError(f"vllm bench serve: {result['failed']} failed, {result['total_output_tokens']} tokens")
    return float(result["output_throughput"])


def compare(arm: ArmPlan, model: str, tokenizer: str, asked: Asked, rounds: int) -> dict[str, Any]:
    """Tokens per second of both, round by round, and the accepted length that the server counted for each."""
    speeds: dict[str, list[float]] = {"ours": [], "vllm bench serve": []}
    counts: dict[str, Counts] = {}
    with tempfile.TemporaryDirectory(prefix="draftlab-") as scratch:
        folder = Path(scratch)
        place = Place(HOST, free_port(), asked.concurrency)
        url = f"http://{HOST}:{place.port}"
        line = command(arm, NAME, place, model, None)
        with running(line, {}, folder / "server.log", url, 300, lambda text: print(text, file=sys.stderr)):
            ours(url, asked)  # warm
            for number in range(rounds):
                turns = list(speeds) if number % 2 == 0 else list(speeds)[::-1]
                for who in turns:
                    before = scrape(url) or Counts()
                    speed = ours(url, asked) if who == "ours" else theirs(url, asked, tokenizer, folder)
                    speeds[who].append(speed)
                    if (after := scrape(url)) is not None:
                        counts[who] = after.since(before)
    medians = {who: statistics.median(values) for who, values in speeds.items()}
    lengths = {who: 1 + c.accepted / c.drafts for who, c in counts.items() if c.drafts}
    ratio = medians["ours"] / medians["vllm bench serve"]
    return {"tokens_per_s": speeds, "median": medians, "ratio": ratio, "accepted_length": lengths}


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python benchmarks/load_generators.py", description="Two load generators, one server.")
    parser.add_argument("model", help="run or target that the server serves")
    parser.add_argument("--block-size", type=int, help="of the drafter")
    parser.add_argument("--prompts", default="gsm_symbolic", help="prompt source")
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(argv)
    if not Path(VLLM_PYTHON).exists():
        raise UsageError(f"no {VLLM_PYTHON}; `make serve-env` makes it")
    target: Target = load_served(args.model).target
    chats = [messages(p) for p in load_prompts([PromptSource(source=args.prompts, count=args.requests, seed=5)])]
    ids = [target.encode_chat(chat) for chat in chats]
    asked = Asked(ids, [target.tokenizer.decode(one) for one in ids], args.concurrency, args.tokens)
    arm = ArmPlan(model=args.model, block_size=args.block_size)
    found = compare(arm, args.model, target.tokenizer.name_or_path, asked, args.rounds)
    for who, speeds in found["tokens_per_s"].items():
        tau = f"; accepted length {found['accepted_length'][who]:.3f}" if who in found["accepted_length"] else ""
        print(f"{who:16}  {' '.join(f'{s:7.1f}' for s in speeds)}   median {found['median'][who]:.1f} tokens/s{tau}")
    print(f"ratio of medians: {found['ratio']:.3f}")
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
