"""Serve a model over the OpenAI API: ``python -m drafters.serve RUN_OR_TARGET [--port 8000]``.

Completions and chat completions, streamed or whole, /health, and /metrics under vLLM's names, over this package's own
decoder with continuous batching. RUN_OR_TARGET is a run (its drafter, or its most frequent next tokens, propose), a
drafter's checkpoint folder with ``--target``, or a target alone (plain decoding). ``--plain`` and ``--lookup`` (prompt
lookup) leave the run's drafter aside; ``--with-lookup`` copies where text recurs and drafts elsewhere.

There is no authentication: the server listens on loopback unless ``--host`` says otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from analysis.errors import Parser, UsageError
from drafters.ranks import default_device
from drafters.serving.loading import Choice, load_served


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python -m drafters.serve", description="Serve a model over the OpenAI API.")
    parser.add_argument("model", metavar="RUN_OR_TARGET", help="run, checkpoint folder (with --target), or target")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--plain", action="store_true", help="plain decoding, without the run's drafter")
    kind.add_argument("--lookup", action="store_true", help="prompt lookup in place of a drafter")
    kind.add_argument("--with-lookup", action="store_true", help="prompt lookup where text recurs, else the drafter")
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
    chosen: dict[Choice, bool] = {"plain": args.plain, "lookup": args.lookup, "both": args.with_lookup}
    choice: Choice = next((name for name, asked in chosen.items() if asked), "own")
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
