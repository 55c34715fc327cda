"""Decode one prompt and watch: ``python -m drafters.generate RUN "prompt"``.

Streams the text, then says how fast it was, against plain decoding of the same prompt, and shows which tokens
were drafted and accepted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from analysis.errors import Parser, run_command
from analysis.runlog.addresses import resolve
from drafters.decoding.decode import Decoded, decode
from drafters.evaluation.generation import GenerateSettings
from drafters.evaluation.loading import common_target, load_arm
from drafters.evaluation.proposing import proposer_of
from drafters.model.acceptance import StepCount
from drafters.ranks import default_device
from drafters.settings import parse
from drafters.target.frozen import Target


class Stream:
    """Text as it comes: complete characters only, since a token may hold half of one."""

    def __init__(self, target: Target, console: Console):
        self.target, self.console = target, console
        self.tokens: list[int] = []
        self.shown = 0

    def __call__(self, index: int, step: StepCount | None, tokens: list[int]) -> None:
        """Take the tokens of a step and print what they complete."""
        self.tokens += tokens
        text = self.target.decode(self.tokens)
        end = len(text) - text.endswith("\ufffd")
        self.console.print(Text(text[self.shown : end]), end="", soft_wrap=True)
        self.shown = max(self.shown, end)


def pattern(target: Target, found: Decoded) -> Text:
    """The output with accepted draft tokens in green and the target's own in bold; ``|`` ends a step.

    Without colour the target's own tokens stand in brackets.
    """
    text = Text()
    text.append(_visible(target, found.tokens[0]), style="bold")
    place = 1
    for step in found.steps:
        text.append("|", style="dim")
        for token in found.tokens[place : place + step.accepted]:
            text.append(_visible(target, token), style="green")
        place += step.emitted
        text.append(f"[{_visible(target, found.tokens[place - 1])}]", style="bold")
    return text


def _visible(target: Target, token: int) -> str:
    return target.tokenizer.decode([token]).replace("\n", "\\n")


def summary(drafted: Decoded, drafted_s: float, plain: Decoded, plain_s: float) -> str:
    """Tokens per second, tau and the paired speed-up; seconds are of decoding, without the prefill."""
    count = len(drafted.tokens) - 1
    if count < 1 or len(plain.tokens) < 2:
        return "one token: the prefill gave the whole answer, and nothing was drafted"
    speed, plain_speed = count / drafted_s, (len(plain.tokens) - 1) / plain_s
    tau = count / len(drafted.steps)
    same = "the same tokens" if drafted.tokens == plain.tokens else "other tokens than plain decoding"
    return (
        f"{count + 1} tokens in {len(drafted.steps)} steps: tau {tau:.2f}, {speed:.1f} tokens/s, "
        f"{speed / plain_speed:.2f} times plain decoding ({plain_speed:.1f} tokens/s), {same}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python -m drafters.generate", description="Decode one prompt speculatively, and compare.")
    parser.add_argument("run", metavar="RUN", help="run folder, or name under runs/")
    parser.add_argument("prompt")
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--device", default=default_device())
    args = parser.parse_args(argv)
    asked = parse(GenerateSettings, {f: getattr(args, f) for f in ("max_new_tokens", "temperature")}, "command line")
    settings: dict[str, Any] = {"max_new_tokens": asked.max_new_tokens, "sampling": asked.sampling}
    folder = Path(resolve(args.run))
    target = common_target([folder], args.device)
    arm = load_arm(folder, target, args.device)
    prompt = target.encode_chat([{"role": "user", "content": args.prompt}])
    console = Console(highlight=False)
    decode(target, proposer_of(arm, target), [prompt], max_new_tokens=8)  # the first pass of anything is slow
    drafted = decode(target, proposer_of(arm, target), [prompt], on_tokens=Stream(target, console), **settings)
    plain = decode(target, None, [prompt], **settings)
    console.print("\n")
    console.print(pattern(target, drafted.sequences[0]), soft_wrap=True)
    line = summary(drafted.sequences[0], drafted.seconds.decode, plain.sequences[0], plain.seconds.decode)
    console.print(f"\n{line}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal without UTF-8 shows ? for what it lacks
    raise SystemExit(run_command(main))
