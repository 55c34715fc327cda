"""Serve a model over the OpenAI API: ``python -m drafters.serve RUN_OR_TARGET [--port 8000]``.

Completions and chat completions, streamed or whole, /health, and /metrics under vLLM's names, over this package's own
decoder with continuous batching. RUN_OR_TARGET is a run (its drafter, or its most frequent next tokens, propose), a
drafter's checkpoint folder with ``--target``, or a target alone (plain decoding). ``--plain`` and ``--lookup`` (prompt
lookup) leave the run's drafter aside.

There is no authentication: the server listens on loopback unless ``--host`` says otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from analysis.errors import DataError, Parser, UsageError
from analysis.runlog.addresses import MANIFEST, find_runs_folder
from drafters.checkpoints.folder import load_drafter
from drafters.commands.evaluate import common_target, load_arm
from drafters.commands.train import default_device
from drafters.config import DrafterConfig
from drafters.decoding.proposers import Proposer
from drafters.evaluation.arms import Arm, BlockArm, LookupArm, proposer_of
from drafters.target.frozen import Target

#: ``own``: what the run or checkpoint was made for. The others leave its drafter aside.
Choice = Literal["own", "plain", "lookup"]
LOOKUP_BLOCK = 8


@dataclass(frozen=True)
class Served:
    """A target, what proposes tokens for it (None: nothing does), and a name."""

    target: Target
    proposer: Proposer | None
    name: str

    @property
    def positions(self) -> int:
        """Most tokens drafted in a step."""
        return self.proposer.block_size - 1 if self.proposer else 0


def load_served(
    reference: str,
    choice: Choice = "own",
    *,
    target: str | None = None,
    block_size: int | None = None,
    confidence: float = 0.0,
    device: str = "cpu",
    dtype: str = "float32",
) -> Served:
    """Load what ``reference`` names (see the module's description).

    Raises UsageError for options that do not fit, DataError for a drafter that does not fit the target.
    """
    folder = _run_folder(reference)
    arm: Arm | None = None
    if folder is not None:
        loaded, name = common_target([folder], device), folder.name
        if choice == "own":
            arm = load_arm(folder, loaded, device)
    elif target is not None:
        loaded, name = Target.load(target, dtype=dtype, device=device), Path(reference).name
        if choice == "own":
            drafter = load_drafter(reference)
            _check_fits(drafter.config, loaded, reference)
            arm = BlockArm(drafter, loaded, device)
    else:
        loaded = Target.load(reference, dtype=dtype, device=device)
        name = loaded.id
    return Served(loaded, _proposer(arm, loaded, choice, reference, block_size, confidence), name)


def _proposer(
    arm: Arm | None, target: Target, choice: Choice, reference: str, block_size: int | None, confidence: float
) -> Proposer | None:
    if choice == "lookup":
        arm = LookupArm(block_size or LOOKUP_BLOCK)
    try:
        if arm is not None:
            return proposer_of(arm, target, block_size, confidence)
        if confidence or block_size is not None:
            raise ValueError("--block-size and --confidence require something that drafts; this is plain decoding")
    except ValueError as error:
        raise UsageError(f"{reference}: {error}") from error
    return None


def _run_folder(reference: str) -> Path | None:
    """The run folder of that path or name; None if there is no such run."""
    runs = find_runs_folder()
    places = [Path(reference), *([runs / reference] if runs else [])]
    return next((place for place in places if (place / MANIFEST).is_file()), None)


def _check_fits(config: DrafterConfig, target: Target, reference: str) -> None:
    theirs = (config.vocab_size, config.hidden_size, config.num_target_layers or target.num_layers)
    ours = (target.vocab_size, target.hidden_size, target.num_layers)
    if theirs != ours:
        raise DataError(
            f"{reference}: a drafter for a target with (vocabulary, width, layers) {theirs}; "
            f"target '{target.id}' has {ours}"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python -m drafters.serve", description="Serve a model over the OpenAI API.")
    parser.add_argument("model", metavar="RUN_OR_TARGET", help="run, checkpoint folder (with --target), or target")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--plain", action="store_true", help="plain decoding, without the run's drafter")
    kind.add_argument("--lookup", action="store_true", help="prompt lookup in place of a drafter")
    parser.add_argument("--target", metavar="REF", help="target of a checkpoint folder")
    parser.add_argument("--block-size", type=int, help="tokens verified a step (as trained)")
    parser.add_argument("--confidence", type=float, default=0.0, help="end a block where confidence falls below (0)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (loopback)")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--name", help="model name in the API (default: the run's or target's)")
    parser.add_argument("--max-batch", type=int, default=8, help="requests decoded at once (8)")
    parser.add_argument("--max-waiting", type=int, default=256, help="requests that may wait; more get 429 (256)")
    parser.add_argument("--max-length", type=int, default=2048, help="tokens of a prompt and its answer (2048)")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="of a target (float32)")
    parser.add_argument("--device", default=default_device())
    args = parser.parse_args(argv)
    if min(args.max_batch, args.max_waiting, args.max_length) < 1:
        raise UsageError("--max-batch, --max-waiting and --max-length must be at least 1")
    try:
        import uvicorn

        from drafters.serving.app import Limits, Service
        from drafters.serving.engine import Engine
        from drafters.serving.metrics import Metrics
    except ModuleNotFoundError as error:
        raise UsageError(
            f"serving requires the module {error.name}; install the extra: pip install 'draftlab[train,serve]'"
        ) from error
    choice: Choice = "plain" if args.plain else "lookup" if args.lookup else "own"
    served = load_served(
        args.model,
        choice,
        target=args.target,
        block_size=args.block_size,
        confidence=args.confidence,
        device=args.device,
        dtype=args.dtype,
    )
    name = args.name or served.name
    metrics = Metrics(name, served.positions)
    engine = Engine(served.target, served.proposer, metrics, places=args.max_batch, waiting=args.max_waiting)
    service = Service(engine, name, Limits(length=args.max_length))
    engine.start()
    try:
        config = uvicorn.Config(
            service.app(),
            host=args.host,
            port=args.port,
            log_level="warning",
            access_log=False,
            limit_concurrency=2 * (args.max_batch + args.max_waiting),
            timeout_graceful_shutdown=5,
        )
        print(f"serving {name} on http://{args.host}:{args.port}", file=sys.stderr, flush=True)
        uvicorn.Server(config).run()
    except SystemExit as error:  # uvicorn's way to say that it cannot listen there
        if error.code:
            raise UsageError(f"cannot listen on {args.host}:{args.port}; is the port taken?") from None
    finally:
        engine.stop()
    return 0
