"""Write a drafter for other tools: ``python -m drafters.export RUN DIR --format zlab|speculators|angelslim``.

``zlab`` is the layout of the published DFlash drafters, ours too; ``speculators`` that of vllm-project/speculators,
with the target's frozen parts beside the drafter's; ``angelslim`` that of a plain DFlare. The way back is the same
command: RUN may be a checkpoint folder in any of them, which training (``training.init_from``) and decoding read as
well. Tensors are in the type in which the run's target runs.

A gate that reads nothing from the token (``gate_input: none``) folds into the projection (``--fold-gate``), and what
is exported is plain DFlash. ``--full-head`` leaves the draft vocabulary out: the reader then drafts with the target's
whole head. Nothing is dropped otherwise: a layout without a place for a fusion is refused, and so is ``--for`` a reader
that would drop something. DIR gets a README.md that says who reads it, how, and who must not.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.errors import Parser
from drafters.checkpoints.export import export_run
from drafters.checkpoints.readers import READERS, unsafe_readers


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python -m drafters.export", description="Write a drafter in a layout that others read.")
    parser.add_argument("run", metavar="RUN", help="run folder, name under runs/, or checkpoint folder")
    parser.add_argument("folder", metavar="DIR", help="where to write; must be new or empty")
    parser.add_argument("--format", choices=list(READERS), required=True)
    parser.add_argument("--fold-gate", action="store_true", help="fold a gate that reads no token into the projection")
    parser.add_argument("--full-head", action="store_true", help="leave the draft vocabulary out")
    readers = sorted({reader for found in READERS.values() for reader in found})
    parser.add_argument("--for", dest="reader", choices=readers, help="refuse what this reader would misread")
    parser.add_argument("--target", metavar="REF", help="the drafter's target (default: the run's)")
    args = parser.parse_args(argv)
    drafter = export_run(
        args.run,
        Path(args.folder),
        args.format,
        target=args.target,
        fold=args.fold_gate,
        full_head=args.full_head,
        reader=args.reader,
    )
    print(f"{args.folder}: {args.format} layout, {sum(p.numel() for p in drafter.parameters()):,} parameters")
    for reader, why in unsafe_readers(args.format, drafter.config).items():
        print(f"not for {reader}: {why}")
    return 0
