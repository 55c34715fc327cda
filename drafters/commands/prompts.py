"""Show what prompt sources hold: ``python -m drafters.prompts SOURCE...``."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from analysis.errors import Parser
from drafters.prompts.families import family_caveat
from drafters.prompts.identity import Prompt
from drafters.prompts.sources import load_prompts


def main(argv: Sequence[str] | None = None) -> int:
    """Show, per data set: prompts, clusters, mean length, an example."""
    parser = Parser(prog="python -m drafters.prompts", description="Show what prompt sources hold.")
    parser.add_argument(
        "sources", nargs="+", metavar="SOURCE", help="family:N, file[:N] or hf:org/name[:config][:split][:N]"
    )
    prompts = load_prompts(parser.parse_args(argv).sources)
    by_dataset: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_dataset.setdefault(prompt.dataset, []).append(prompt)
    table = Table("dataset", "prompts", "clusters", "mean characters", "example")
    for label, members in by_dataset.items():
        characters = sum(len(turn) for prompt in members for turn in prompt.turns) / len(members)
        clusters = len({prompt.cluster_id for prompt in members})
        example = Text(" ".join(members[0].turns[0].split()), overflow="ellipsis", no_wrap=True)
        table.add_row(Text(label), str(len(members)), str(clusters), f"{characters:.0f}", example)
    console = Console()
    console.print(table)
    for caveat in filter(None, dict.fromkeys(map(family_caveat, by_dataset))):
        console.print(Text(caveat, style="dim"))
    return 0
