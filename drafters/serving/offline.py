"""What an engine should have counted: an arm's drafts and accepted tokens in our own decoder, on the same prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drafters.decoding.decode import decode
from drafters.model.acceptance import StepCount
from drafters.serving.loading import Served

#: Engines that draft and count to the end of a step although the answer ends within it. vLLM 0.32 takes its counts
#: from the verified step before it cuts the answer at ``max_tokens`` or at a stop token; our server drafts no more
#: tokens than the answer may still take, and counts those that stand.
WHOLE_LAST_STEP = frozenset({"vllm"})


@dataclass(frozen=True)
class Counts:
    """Target passes of the answers, those of them with a draft, tokens drafted and accepted."""

    steps: int
    drafts: int
    draft_tokens: int
    accepted: int


def offline_counts(
    served: Served, prompts: Sequence[Sequence[int]], max_tokens: int, *, ignore_eos: bool, whole_last_step: bool
) -> Counts | None:
    """Greedy answers of at most ``max_tokens`` to ``prompts`` (token ids), one at a time; None without a proposer.

    ``whole_last_step``: count the step in which an answer ends as if it did not (``WHOLE_LAST_STEP``). Greedy steps do
    not depend on where the answer is cut, so a longer answer holds them.
    """
    if served.proposer is None:
        return None
    stops = frozenset() if ignore_eos else served.target.stop_ids
    steps: list[StepCount] = []
    for prompt in prompts:
        beyond = served.proposer.block_size if whole_last_step else 0
        ends = frozenset() if whole_last_step else stops
        found = decode(served.target, served.proposer, [prompt], max_new_tokens=max_tokens + beyond, stop_ids=ends)
        (one,) = found.sequences
        length = next((i + 1 for i, token in enumerate(one.tokens[:max_tokens]) if token in stops), max_tokens)
        # the anchor of a step is the last token that stands before it
        last = len(prompt) + length - 1
        steps += [step for step, anchor in zip(one.steps, one.positions, strict=True) if anchor < last]
    drafted = [step for step in steps if step.drafted]
    return Counts(
        steps=len(steps),
        drafts=len(drafted),
        draft_tokens=sum(step.drafted for step in drafted),
        accepted=sum(step.accepted for step in drafted),
    )
