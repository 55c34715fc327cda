"""Train one arm: ``python -m drafters.train CONFIG [--run DIR] [--set section.field=value]``.

Makes ``runs/<name>/``: corpus (shared by all arms that want the same), training with checkpoints,
``history.parquet``, ``fusion.parquet`` for a layer-wise fusion, final weights in ``checkpoints/final``. The same
command again: a finished run says so, a stopped one goes on and ends bit-equal to one that was never stopped,
other settings are refused.

``--dry-run`` trains nothing: it computes parameters, peak memory and time for a device, without weights and offline.

Under torchrun (``torchrun --nproc-per-node N -m drafters.train CONFIG``) N ranks share the ``training.accumulate``
micro-batches of every step. The settings are the same, and so is the result, to rounding; a run may go on with another
number of ranks. Rank 0 writes. With ``training.sharding: fsdp2`` each rank holds a part of the drafter's weights and
moments. Both are experimental on GPUs: they have been tested on CPUs.

``--log`` writes a line a step for schedulers (``jsonl``: progress.jsonl in the run folder), or to TensorBoard or
Weights & Biases where they are installed. SIGINT and SIGTERM end a training with a checkpoint, after the step that is
running.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from analysis.errors import DraftlabError, Parser, UsageError
from drafters.checkpoints.run_files import run_folder
from drafters.config import RunConfig, load_config
from drafters.ranks import Rank, default_device
from drafters.training.cost.devices import NAMES
from drafters.training.cost.dry_run import PROMPT_TOKENS, Given, dry_run
from drafters.training.cost.table import table
from drafters.training.group import LostRankError
from drafters.training.logs import LOGS
from drafters.training.run import train


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python -m drafters.train", description="Train one drafter and log its history.")
    parser.add_argument("config", help="YAML configuration of the arm, such as drafters/recipes/study-dflash.yaml")
    parser.add_argument(
        *("--run", "--folder"),
        dest="run",
        metavar="DIR",
        help="run folder (default: runs/<name of the configuration>); torchrun takes --run for its own: --folder there",
    )
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--device", default=default_device())
    parser.add_argument(
        "--log", choices=LOGS, action="append", default=[], help="write each step there too; may be given several times"
    )
    parser.add_argument(
        "--keep", type=int, metavar="N", help="keep the last N saved states (default: the last one, until the end)"
    )
    about = _dry_run_options(parser)
    args = parser.parse_args(argv)
    config = load_config(args.config, args.overrides)
    asked = {name: value for name in about if (value := getattr(args, name)) is not None}
    if args.dry_run:
        return _estimate(config, asked)
    if asked:
        raise UsageError(f"--{next(iter(asked)).replace('_', '-')} is for --dry-run")
    if args.keep is not None and args.keep < 1:
        raise UsageError("--keep must be 1 or more")
    follows = Rank.of_environment().number > 0
    try:
        line = train(config, run_folder(config.name, args.run), args.device, args.log, args.keep)
    except DraftlabError as error:
        if follows and not isinstance(error, LostRankError):  # rank 0 says it
            return int(error.exit_code)
        raise
    if not follows:
        print(line)
    return 0


def _dry_run_options(parser: argparse.ArgumentParser) -> list[str]:
    """Add them; returns the names of those that say something of a dry run."""
    group = parser.add_argument_group("without training")
    group.add_argument("--dry-run", action="store_true", help="print parameters, peak memory and time of a step")
    added = [
        group.add_argument("--hardware", choices=NAMES, help="for which device (default: this CPU, measured)"),
        group.add_argument(
            "--device-flops", type=float, metavar="N", help="matrix operations per second that it reaches"
        ),
        group.add_argument("--device-bandwidth", type=float, metavar="N", help="bytes per second that it reaches"),
        group.add_argument("--ranks", type=int, metavar="N", help="number of such devices (default: 1)"),
        group.add_argument("--examples", type=int, metavar="N", help="of the corpus, for the length of the training"),
        group.add_argument("--prompt-tokens", type=int, metavar="N", help=f"of an example (default: {PROMPT_TOKENS})"),
        group.add_argument("--answer-tokens", type=int, metavar="N", help="(default: as long as the corpus allows)"),
        group.add_argument("--json", action="store_true", default=None, help="for programs"),
    ]
    return [option.dest for option in added]


def _estimate(config: RunConfig, asked: dict[str, object]) -> int:
    if bad := [name for name, value in asked.items() if isinstance(value, int | float) and value <= 0]:
        raise UsageError(f"--{bad[0].replace('_', '-')} must be above 0")
    as_json = asked.pop("json", False)
    renamed = {"device_flops": "flops", "device_bandwidth": "bandwidth"}
    found = dry_run(config, Given(**{renamed.get(name, name): value for name, value in asked.items()}))  # type: ignore[arg-type]
    print(json.dumps(found.data()) if as_json else table(found))
    return 0
