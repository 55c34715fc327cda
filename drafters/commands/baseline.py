"""Drafters without training: ``python -m drafters.baseline CONFIG [--kind KIND] [--run DIR]``.

``next-token`` always proposes the most frequent next token of an arm's training answers (:class:`NextTokenArm`). It
shows how much of an accepted length is template memory that needs no hidden states. ``prompt-lookup`` proposes what
followed the last tokens earlier in prompt and answer (:class:`LookupArm`). The runs are evaluated and compared like
any other.
"""

from __future__ import annotations

from collections.abc import Sequence

from analysis.errors import Parser
from drafters.checkpoints.run_files import run_folder
from drafters.config import load_config
from drafters.evaluation.baselines import KINDS, LOOKUP, make_lookup_run, make_next_token_run


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python -m drafters.baseline", description="Make the run of a drafter without training.")
    parser.add_argument("config", help="configuration of an arm: its target, corpus and block size are used")
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0], help=f"what to propose (default: {KINDS[0]})")
    parser.add_argument("--run", metavar="DIR", help="run folder (default: runs/KIND)")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args(argv)
    make = make_lookup_run if args.kind == LOOKUP else make_next_token_run
    print(make(load_config(args.config), run_folder(args.kind, args.run), args.device))
    return 0
