"""An engine's counters of speculative decoding, read from /metrics: what rose between two looks.

vLLM's names (vLLM and our server), or the same under llama.cpp's prefix. Series of one counter are summed over their
labels (engines, models) but ``position``; ``*_created`` are times.
"""

from __future__ import annotations

from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from drafters.serving.process import ServerError

_NAMES = {
    f"{engine}:spec_decode_num_{name}_total": field
    for engine in ("vllm", "llamacpp")
    for name, field in (
        ("drafts", "drafts"),
        ("draft_tokens", "draft_tokens"),
        ("accepted_tokens", "accepted"),
        ("accepted_tokens_per_pos", "accepted_at"),
    )
}


@dataclass(frozen=True)
class Counts:
    """Steps with drafted tokens, drafted tokens, those that were accepted, and by slot."""

    drafts: int = 0
    draft_tokens: int = 0
    accepted: int = 0
    accepted_at: tuple[int, ...] = ()

    def since(self, before: Counts) -> Counts:
        """What rose. Raises ServerError for counters that fell: the server was started anew in between."""
        at = [now - then for now, then in zip(self.accepted_at, before.accepted_at, strict=False)]
        rise = Counts(
            self.drafts - before.drafts,
            self.draft_tokens - before.draft_tokens,
            self.accepted - before.accepted,
            (*at, *self.accepted_at[len(at) :]),
        )
        if min(rise.drafts, rise.draft_tokens, rise.accepted, *rise.accepted_at, 0) < 0:
            raise ServerError("the engine's counters fell: it was started anew in between")
        return rise


def parse_counters(page: str) -> Counts | None:
    """Counters of a /metrics page; None if it has none of speculative decoding, or is not in the format."""
    sums: dict[str, float] = {}
    at: dict[int, float] = {}
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                field = _NAMES.get(sample.name)
                if field == "accepted_at":
                    position = int(sample.labels["position"])
                    at[position] = at.get(position, 0.0) + sample.value
                elif field is not None:
                    sums[field] = sums.get(field, 0.0) + sample.value
    except (ValueError, KeyError):
        return None
    if not {"drafts", "draft_tokens", "accepted"} <= sums.keys():
        return None
    slots = tuple(int(at.get(i, 0)) for i in range(max(at, default=-1) + 1))
    return Counts(int(sums["drafts"]), int(sums["draft_tokens"]), int(sums["accepted"]), slots)


def scrape(url: str) -> Counts | None:
    """Counters of the server at ``url``; None where it shows none. Raises ServerError if it does not answer."""
    try:
        answer = httpx.get(f"{url}/metrics", timeout=60, follow_redirects=True)
    except httpx.HTTPError as error:
        raise ServerError(f"/metrics does not answer ({type(error).__name__})") from error
    return parse_counters(answer.text) if answer.status_code == 200 else None
