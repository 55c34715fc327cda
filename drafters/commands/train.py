"""Train one arm: ``python -m drafters.train CONFIG [--run DIR] [--set section.field=value]``.

Makes ``runs/<name>/``: corpus (shared by all arms that want the same), training with checkpoints,
``history.parquet``, ``fusion.parquet`` for a layer-wise fusion, final weights in ``checkpoints/final``. The same
command again: a finished run says so, a stopped one goes on and ends bit-equal to one that was never stopped,
other settings are refused.

Under torchrun (``torchrun --nproc-per-node N -m drafters.train CONFIG``) N ranks share the ``training.accumulate``
micro-batches of every step. The settings are the same, and so is the result, to rounding; a run may go on with another
number of ranks. Rank 0 writes. On GPUs this is experimental: it has been tested on CPUs.

SIGINT and SIGTERM end a training with a checkpoint, after the step that is running.
"""

from __future__ import annotations

from collections.abc import Sequence

from analysis.errors import DraftlabError, Parser
from drafters.checkpoints.run_files import run_folder
from drafters.config import load_config
from drafters.ranks import Rank, default_device
from drafters.training.group import LostRankError
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
    args = parser.parse_args(argv)
    config = load_config(args.config, args.overrides)
    follows = Rank.of_environment().number > 0
    try:
        line = train(config, run_folder(config.name, args.run), args.device)
    except DraftlabError as error:
        if follows and not isinstance(error, LostRankError):  # rank 0 says it
            return int(error.exit_code)
        raise
    if not follows:
        print(line)
    return 0
