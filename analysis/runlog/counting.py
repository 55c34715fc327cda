"""How a log counts: which tokens are in its steps, and what its seconds cover.

The run format's own rules are the default. A log of another tool states its own in the settings of its evaluation
(``counting``), so that two logs that count differently are seen to, and no number is taken for another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from analysis.runlog.manifest import Manifest


@dataclass(frozen=True)
class Counting:
    """Counting convention of a log; tokens per step always include the bonus token, whatever the source did.

    ``prefill_token``: whether the token that prefill gives is ``outside`` the steps (their tokens sum to
    output_tokens - 1) or ``inside`` (they sum to output_tokens). ``last_step``: ``cut`` at the stop token or limit,
    ``whole``, or ``unknown``. ``time``: what decode_s covers; ``per token`` where only a mean is known. ``ids``: what
    output_ids are.
    """

    prefill_token: Literal["outside", "inside", "unknown"] = "outside"
    last_step: Literal["cut", "whole", "unknown"] = "cut"
    time: Literal["decode", "prefill and decode", "per token"] = "decode"
    ids: Literal["tokens", "words"] = "tokens"

    @property
    def outside(self) -> int:
        """Output tokens that belong to no step: 1 or 0."""
        return 1 if self.prefill_token == "outside" else 0

    @property
    def untimed(self) -> int:
        """Output tokens that the seconds do not cover: the prefill token, if prefill was timed apart."""
        return 1 if self.time == "decode" else 0

    def as_settings(self) -> dict[str, str]:
        return asdict(self)

    def __str__(self) -> str:
        prefill = {
            "outside": "the prefill token in no step",
            "inside": "the prefill token in the steps",
            "unknown": "the prefill token perhaps in the steps",
        }[self.prefill_token]
        last = {
            "cut": "cut at the stop token",
            "whole": "whole, past the stop token",
            "unknown": "cut or whole, not known which",
        }[self.last_step]
        return f"tokens per step with the bonus token, {prefill}; the last step {last}"


def counting_of(manifest: Manifest, protocol: str) -> Counting:
    """The convention of a run under a protocol: as its evaluation states it, else the run format's own."""
    for evaluation in manifest.evaluations.values():
        stated: Mapping[str, Any] | None = evaluation.settings.get("counting")
        if evaluation.protocol == protocol and isinstance(stated, Mapping):
            return Counting(**{name: stated[name] for name in Counting().as_settings() if name in stated})
    return Counting()
