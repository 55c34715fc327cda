"""Trains the study's arms for a few hundred steps, evaluates and decodes, and holds time and memory against --dry-run.

    benchmarks/gpu_smoke.sh [--fast] [--out FOLDER]

Under eight minutes on one GPU with the embedded target. The rates of the device are measured first, so that the
computed time is of this device and not of a data sheet. Runs are written to FOLDER/runs, the table's numbers to
FOLDER/gpu_smoke.json. ``--fast``: a few steps, on a CPU in under two minutes.

Experimental on GPUs: no run of it on a GPU is committed yet. Prints a table and one JSON line.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from analysis.errors import DraftlabError, Parser, run_command
from analysis.runlog.reading import Run
from drafters.commands import evaluate, train
from drafters.config import RunConfig, load_config
from drafters.ranks import default_device
from drafters.target.frozen import Target
from drafters.training.cost.devices import measure
from drafters.training.cost.dry_run import Given, dry_run

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.dry_run import peak_bytes, trainer_of

RECIPES = Path(__file__).resolve().parent.parent / "drafters" / "recipes"
ARMS = ("dflash", "dynadflash", "dflare")


@dataclass(frozen=True)
class Asked:
    """What is run, and where."""

    target: str | None
    prompts: str
    held_out: str
    device: str
    steps: int
    tokens: int  # of an answer
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """One arm. Rates are per second, ``computed`` ones from the device's own rates; bytes at the peak of a step."""

    arm: str
    steps_per_s: float
    computed_steps_per_s: float
    bytes: int
    computed_bytes: int
    accepted_length: float
    tokens_per_s: float
    plain_tokens_per_s: float


def settings(asked: Asked) -> list[str]:
    """Changes to a recipe."""
    changes = [
        f"training.steps={asked.steps}",
        f"corpus.prompts=[{json.dumps(asked.prompts)}]",
        f"corpus.max_new_tokens={asked.tokens}",
        "validation.seen=[]",
        "validation.unseen=[]",
        *([] if asked.target is None else [f"target={asked.target}"]),
        *asked.overrides,
    ]
    return [part for change in changes for part in ("--set", change)]


def call(main: object, argv: Sequence[str]) -> None:
    """Run a command of the project. Raises DraftlabError if it fails."""
    code = run_command(main, list(argv))  # type: ignore[arg-type]
    if code:
        raise DraftlabError(f"gpu_smoke: a command ended with exit code {code}: {' '.join(argv)}")


def measure_arm(arm: str, asked: Asked, runs: Path) -> Found:
    """Train, evaluate, decode."""
    recipe, folder = str(RECIPES / f"study-{arm}.yaml"), runs / arm
    cuda = asked.device.startswith("cuda")
    if cuda:
        torch.cuda.reset_peak_memory_stats(asked.device)
    call(train.main, [recipe, "--run", str(folder), "--device", asked.device, "--log", "jsonl", *settings(asked)])
    held = torch.cuda.max_memory_allocated(asked.device) if cuda else 0
    common = [str(folder), "--prompts", asked.held_out, "--device", asked.device]
    call(evaluate.main, common)
    call(evaluate.main, [*common, "--protocol", "generate", "--baseline", "--max-new-tokens", str(asked.tokens)])
    run = Run.open(folder)
    history = run.read("history", ["seconds", "tokens", "examples", "accepted_length"]).to_pandas()
    config = load_config(recipe, settings(asked)[1::2])
    length = round(float(history["tokens"].sum() / history["examples"].sum()))
    estimate = dry_run(config, given(config, asked, length))
    rows = run.read("timings", ["mode", "decode_s", "output_tokens"]).to_pandas().groupby("mode").sum()
    rates = (rows["output_tokens"] / rows["decode_s"]).to_dict()
    return Found(
        arm=arm,
        steps_per_s=1 / float(history["seconds"].median()),
        computed_steps_per_s=1 / estimate.time.total,
        bytes=held if cuda else on_cpu(config, length - asked.tokens),
        computed_bytes=estimate.memory.peak,
        accepted_length=float(history["accepted_length"].iloc[-10:].mean()),
        tokens_per_s=rates["draft"],
        plain_tokens_per_s=rates["plain"],
    )


def given(config: RunConfig, asked: Asked, length: int) -> Given:
    """The device as it is measured now, and examples of this many tokens."""
    half = config.training.precision in ("auto", "bfloat16") and asked.device != "cpu"
    flops, bandwidth = measure(asked.device, torch.bfloat16 if half else torch.float32)
    hardware = "h100" if half else "cpu"  # whose precision `auto` means; its rates are those measured
    return Given(hardware, prompt_tokens=max(1, length - asked.tokens), flops=flops, bandwidth=bandwidth)


def on_cpu(config: RunConfig, prompt_tokens: int) -> int:
    """Bytes that torch's tensors hold at the peak of a step, on a made-up corpus of this length."""
    precision = "float32" if config.training.precision == "auto" else config.training.precision
    config = config.model_copy(update={"training": config.training.model_copy(update={"precision": precision})})
    return peak_bytes(trainer_of(config, Target.load(config.target), max(1, prompt_tokens)))


def table(found: Sequence[Found]) -> str:
    """The measurements for people."""
    head = f"{'arm':<12}{'steps/s':>9}{'computed':>10}{'peak, MB':>10}{'computed':>10}"
    lines = [head + f"{'tokens/s':>10}{'plain':>8}{'length':>8}"]
    for one in found:
        lines.append(
            f"{one.arm:<12}{one.steps_per_s:9.2f}{one.computed_steps_per_s:10.2f}{one.bytes / 1e6:10.0f}"
            f"{one.computed_bytes / 1e6:10.0f}{one.tokens_per_s:10.1f}{one.plain_tokens_per_s:8.1f}"
            f"{one.accepted_length:8.2f}"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="benchmarks/gpu_smoke.sh", description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, help="folder for the runs and the numbers (default: a new one)")
    parser.add_argument("--device", default=default_device())
    parser.add_argument("--target", help="instead of the embedded one")
    parser.add_argument("--prompts", help="source of the training prompts (default: gsm_symbolic, seen templates)")
    parser.add_argument("--held-out", help="source of the evaluation (default: gsm_symbolic, unseen templates)")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--fast", action="store_true", help="a few steps: does everything run?")
    args = parser.parse_args(argv)
    fast = args.fast
    asked = Asked(
        target=args.target,
        prompts=args.prompts or f"gsm_symbolic/seen:{16 if fast else 600}",
        held_out=args.held_out or f"gsm_symbolic/unseen:{2 if fast else 48}@2",
        device=args.device,
        steps=4 if fast else 300,
        tokens=8 if fast else 64,
        overrides=tuple(args.overrides),
    )
    out = args.out or Path(tempfile.mkdtemp(prefix="gpu-smoke-"))
    started = time.monotonic()
    found = [measure_arm(arm, asked, out / "runs") for arm in ARMS]
    name = torch.cuda.get_device_name(asked.device) if asked.device != "cpu" else f"cpu, {os.cpu_count()} cores"
    result = {
        "benchmark": "gpu_smoke",
        "device": name,
        "fast": fast,
        "seconds": time.monotonic() - started,
        "arms": [asdict(one) for one in found],
    }
    (out / "gpu_smoke.json").write_text(json.dumps(result, indent=2) + "\n")
    print(table(found))
    print(f"{name}, {result['seconds']:.0f} s; runs in {out / 'runs'}")
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
