"""Counting convention of a log: which tokens belong to its steps, and what its times cover.

The run format's own convention is the default. Logs of other tools record theirs in the settings of the evaluation
(``counting``), so that differences are visible and different quantities are not mixed up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from analysis.runlog.manifest import Manifest


@dataclass(frozen=True)
class Counting:
    """Counting convention of a log; tokens per step always include the bonus token.

    ``prefill_token``: whether the token that prefill gives is ``outside`` the steps (their tokens sum to
    output_tokens - 1) or ``inside`` (they sum to output_tokens). ``last_step``: ``cut`` at the stop token or limit,
    ``whole``, or ``unknown``. ``time``: what decode_s covers; ``per token`` if only a mean is known. ``ids``: unit of
    output_ids.
    """

    prefill_token: Literal["outside", "inside", "unknown"] = "outside"
    last_step: Literal["cut", "whole", "unknown"] = "cut"
    time: Literal["decode", "prefill and decode", "per token"] = "decode"
    ids: Literal["tokens", "words"] = "tokens"

    @property
    def outside(self) -> int:
        """Output tokens outside the steps: 1 or 0."""
        return 1 if self.prefill_token == "outside" else 0

    @property
    def untimed(self) -> int:
        """Output tokens that the seconds do not cover: the prefill token, if prefill was timed separately."""
        return 1 if self.time == "decode" else 0

    def as_settings(self) -> dict[str, str]:
        return asdict(self)

    def __str__(self) -> str:
        prefill = {
            "outside": "without the prefill token",
            "inside": "with the prefill token",
            "unknown": "perhaps with the prefill token",
        }[self.prefill_token]
        last = {
            "cut": "cut at the stop token",
            "whole": "whole, past the stop token",
            "unknown": "cut or whole (not known)",
        }[self.last_step]
        return f"tokens per step include the bonus token, {prefill}; last step {last}"


def counting_of(manifest: Manifest, protocol: str) -> Counting:
    """The convention of a run under a protocol: as recorded by its evaluation, else the run format's default."""
    for evaluation in manifest.evaluations.values():
        stated: Mapping[str, Any] | None = evaluation.settings.get("counting")
        if evaluation.protocol == protocol and isinstance(stated, Mapping):
            return Counting(**{name: stated[name] for name in Counting().as_settings() if name in stated})
    return Counting()
