"""Lossless speculative decoding: :func:`decode` turns a drafter into speed, and leaves the output the target's own.

Greedy output is that of plain decoding to the token, but for near ties: a pass over a block rounds otherwise than
passes over its tokens, which in bfloat16, whose logits have 8 bits, happens every now and then (the prompts table
has the margin there). Without a drafter the same loop (:mod:`drafters.decoding.loop`) is plain decoding, the baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drafters.decoding.loop import Loop, Seconds
from drafters.decoding.proposers import BlockProposer, Proposer
from drafters.decoding.rows import Request, Row
from drafters.decoding.sampling import Sampling
from drafters.model.acceptance import StepCount
from drafters.model.drafter import Drafter
from drafters.target.frozen import Target

#: Called with a sequence's place, the step (None: the prefill) and the tokens that it added.
OnTokens = Callable[[int, StepCount | None, list[int]], None]


@dataclass(frozen=True)
class Decoded:
    """One sequence: its output tokens (the first stop token included) and what every step did.

    The first token comes from the prefill; sum(emitted) = len(tokens) - 1.
    """

    tokens: list[int]
    steps: list[StepCount]
    positions: list[int]  # of each step's anchor
    finish_reason: str  # "stop" or "length"
    text_end: int | None = None  # characters of the decoded text before a stop string, if one ended it


@dataclass(frozen=True)
class DecodeOutput:
    """A batch of decoded sequences, in the order of the prompts, and where the time went."""

    sequences: list[Decoded]
    seconds: Seconds


def decode(
    target: Target,
    drafter: Drafter | Proposer | None,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    block_size: int | None = None,
    sampling: Sampling | None = None,
    keys: Sequence[object] | None = None,
    stop_ids: frozenset[int] | None = None,
    stop_strings: Sequence[str] = (),
    on_tokens: OnTokens | None = None,
) -> DecodeOutput:
    """Decode ``prompts`` (token ids) to at most ``max_new_tokens`` each, all of them together.

    ``drafter``: a trained one, a proposer, or None for plain decoding. ``block_size``: of a trained
    drafter, at most the size that it was trained for (default). ``keys``: what the random
    draws of each sequence are keyed by (default: its place); a sequence's draws do not depend on its batch, but on the
    kind of device, where they are made.
    ``stop_ids``: default the target's. ``on_tokens(index, step, tokens)`` hears of every new run of tokens, the
    prefill's (step None) first. Raises ValueError for empty prompts, a block size that cannot be, or a drafter of
    another type than the target's.
    """
    if drafter is not None and not isinstance(drafter, Proposer):
        proposer: Proposer | None = BlockProposer(target, drafter, block_size)
    elif block_size is None:
        proposer = drafter
    else:
        raise ValueError("block_size is for a trained drafter; a proposer has its own")
    names = range(len(prompts)) if keys is None else keys
    stops = target.stop_ids if stop_ids is None else stop_ids
    requests = [
        Request(prompt, max_new_tokens, key, sampling or Sampling(), stops, stop_strings)
        for prompt, key in zip(prompts, names, strict=True)
    ]
    if not requests:
        raise ValueError("decoding requires at least one prompt")
    places = {id(request): place for place, request in enumerate(requests)}

    def hear(row: Row, step: StepCount | None, tokens: list[int]) -> None:
        if on_tokens is not None:
            on_tokens(places[id(row.request)], step, tokens)

    loop = Loop(target, proposer, hear, timed=True)
    rows = loop.admit(requests)
    while loop.rows:
        loop.step()
    sequences = [Decoded(r.tokens, r.steps, r.positions, r.finish_reason or "length", r.text_end) for r in rows]
    return DecodeOutput(sequences, loop.seconds)
