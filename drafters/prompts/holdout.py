"""Prompts held out of a training by name: the same for every arm and machine, so that an evaluation can ask them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from analysis.errors import DataError
from drafters.prompts.identity import Prompt


class Holdout(BaseModel):
    """How many prompts, drawn from all sources together by a key of ``seed``.

    ``by: prompt`` holds these prompts out; others of their questions (paraphrases, say) stay in training. ``by:
    question`` draws questions, holds out one prompt of each, and takes all their prompts out of the training.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: int = Field(gt=0)
    seed: int = 0
    by: Literal["prompt", "question"]


def hold_out(prompts: Sequence[Prompt], holdout: Holdout) -> tuple[list[Prompt], list[Prompt]]:
    """Training prompts and held-out prompts, both in the order of ``prompts``.

    The draw depends on the ids alone, not on their order. Raises DataError if it would leave no training data.
    """
    by_question = holdout.by == "question"
    units = {prompt.cluster_id if by_question else prompt.prompt_id for prompt in prompts}
    if holdout.count >= len(units):
        kind = "questions" if by_question else "prompts"
        raise DataError(f"corpus.holdout: {holdout.count} of {len(units)} {kind} leave no training data")
    drawn = set(sorted(units, key=lambda unit: _key(holdout.seed, unit))[: holdout.count])
    training: list[Prompt] = []
    candidates: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        unit = prompt.cluster_id if by_question else prompt.prompt_id
        (candidates.setdefault(unit, []) if unit in drawn else training).append(prompt)
    chosen = {min(same, key=lambda p: _key(holdout.seed, p.prompt_id)).prompt_id for same in candidates.values()}
    held: dict[str, Prompt] = {}
    for prompt in prompts:  # of several answers to one prompt, one prompt
        if prompt.prompt_id in chosen:
            held.setdefault(prompt.prompt_id, replace(prompt, by_name=True))
    return training, list(held.values())


def _key(seed: int, unit: str) -> bytes:
    return hashlib.sha256(f"holdout:{seed}:{unit}".encode()).digest()
