"""The ``generate`` protocol: whole answers, decoded speculatively, step by step in the log.

With a baseline, plain decoding and the arms take turns on every prompt (plain, A, B, B, A, plain), so that a
speed-up is paired and a drift of the machine falls on all alike. Multi-turn prompts keep their conversation;
its history is the plain output in every arm, since otherwise the arms would answer different prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field

from analysis.runlog.outputs import hash_of_tokens, repetition
from drafters.decoding.decode import Decoded, DecodeOutput, decode
from drafters.decoding.loop import Seconds
from drafters.decoding.sampling import Sampling
from drafters.evaluation.arms import Arm
from drafters.evaluation.proposing import proposer_of
from drafters.evaluation.rows import BatchRows, acceptance_row, coverage, prompt_key
from drafters.prompts.sources import Prompt, messages
from drafters.target.frozen import Target

_WARM_UP = 8  # tokens


class GenerateSettings(BaseModel):
    """How answers are generated; part of the evaluation's identity."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_new_tokens: int = Field(default=256, ge=1)
    temperature: float = Field(default=0.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    greedy_draft: bool = False
    samples: int = Field(default=1, ge=1)
    seed: int = 0
    block_size: int | None = Field(default=None, ge=1)
    baseline: bool = False
    keep_output: bool = False  # token ids in the prompts table; off, since a committed run holds no text

    @property
    def sampling(self) -> Sampling:
        """The same, for the decoding loop."""
        return Sampling(self.temperature, self.top_p, self.top_k, self.greedy_draft)


@dataclass
class _Pass:
    """One timed decoding of a prompt: by an arm (its place), or plain (None)."""

    arm: int | None
    repeat: int
    order: int
    output: DecodeOutput


@dataclass(frozen=True)
class Generate:
    """The protocol, ready to be asked about batches of prompts."""

    target: Target
    eval_id: str
    describe: Callable[[Prompt], dict[str, Any]]
    settings: GenerateSettings

    def warm_up(self, prompt: Prompt, arms: Sequence[Arm]) -> None:
        """Decode a little in every mode, unlogged: the first pass of anything is slow, on a GPU by seconds, and would
        be charged to plain decoding, which comes first."""
        tokens = [self.target.encode_chat(messages(prompt))]
        for proposer in (None, *(proposer_of(arm, self.target) for arm in arms)):
            decode(self.target, proposer, tokens, max_new_tokens=_WARM_UP, sampling=self.settings.sampling)

    def batch(self, prompts: Sequence[Prompt], arms: Sequence[Arm]) -> list[BatchRows]:
        """Rows of every arm for a batch of prompts, turn after turn, sample after sample.

        Times are logged for batches of one prompt; the time of a larger batch is nobody's in particular.
        """
        rows = [BatchRows() for _ in arms]
        for sample in range(self.settings.samples):
            replies: list[list[str]] = [[] for _ in prompts]
            for turn in range(max(len(prompt.turns) for prompt in prompts)):
                asked = [i for i, prompt in enumerate(prompts) if len(prompt.turns) > turn]
                tokens = [self.target.encode_chat(messages(prompts[i], replies[i])) for i in asked]
                goes_on = any(len(prompts[i].turns) > turn + 1 for i in asked)
                passes = self._passes(arms, [prompts[i] for i in asked], tokens, turn, sample, goes_on)
                plain = [p.output.sequences for p in passes if p.arm is None]
                for place, i in enumerate(asked):
                    if goes_on:
                        replies[i].append(self.target.decode(plain[0][place].tokens))
                    for number, arm in enumerate(arms):
                        self._log(rows[number], arm, number, prompts[i], tokens[place], place, passes, turn, sample)
        return rows

    def _passes(
        self,
        arms: Sequence[Arm],
        prompts: Sequence[Prompt],
        tokens: Sequence[Sequence[int]],
        turn: int,
        sample: int,
        goes_on: bool,
    ) -> list[_Pass]:
        """Decode by plain decoding and by every arm, in an order and its reverse if there is a baseline."""
        order: list[int | None] = list(range(len(arms)))
        if self.settings.baseline:
            order = [None, *order]
            order += reversed(order)
        elif goes_on:  # the conversation needs the plain answer
            order = [None, *order]
        passes: list[_Pass] = []
        for arm in order:
            mode = "plain" if arm is None else "draft"
            keys = [(self.settings.seed, mode, prompt.prompt_id, turn, sample) for prompt in prompts]
            output = decode(
                self.target,
                None if arm is None else proposer_of(arms[arm], self.target, self.settings.block_size),
                tokens,
                max_new_tokens=self.settings.max_new_tokens,
                sampling=self.settings.sampling,
                keys=keys,
            )
            repeat = sum(p.arm == arm for p in passes)
            passes.append(_Pass(arm, repeat, len(passes), output))
        return passes

    def _log(
        self,
        rows: BatchRows,
        arm: Arm,
        number: int,
        prompt: Prompt,
        asked: Sequence[int],
        place: int,
        passes: Sequence[_Pass],
        turn: int,
        sample: int,
    ) -> None:
        """Enter one prompt of one arm: its first pass as steps and outcome, all its passes as times."""
        key = prompt_key(self.eval_id, "generate", prompt, turn, sample, self.settings.temperature)
        mine = [p for p in passes if p.arm == number]
        plain = [p.output.sequences[place] for p in passes if p.arm is None]
        found = mine[0].output.sequences[place]
        for step, (position, count) in enumerate(zip(found.positions, found.steps, strict=True)):
            rows.tables["acceptance"].append(acceptance_row(key, step, position, count))
        rows.tables["prompts"].append(
            {
                **key,
                **self.describe(prompt),
                "prompt_tokens": len(asked),
                "output_tokens": len(found.tokens),
                "steps": len(found.steps),
                "finish_reason": found.finish_reason,
                "output_hash": hash_of_tokens(found.tokens),
                "output_ids": found.tokens if self.settings.keep_output else None,
                "repetition": repetition(found.tokens),
                **(self._against_baseline(asked, found, plain[0]) if plain and self.settings.sampling.greedy else {}),
            }
        )
        rows.count(prompt.dataset, **coverage(arm, asked, found.tokens[1:]))
        if len(plain) > 1 and self.settings.sampling.greedy:
            rows.count(prompt.dataset, baseline_differs=int(plain[0].tokens != plain[1].tokens))
        if self.settings.baseline and len(passes[0].output.sequences) == 1:
            rows.tables["timings"] += [
                {**key, **_timing(p.output.seconds), "mode": "plain" if p.arm is None else "draft"}
                | {"repeat": p.repeat, "order": p.order, "output_tokens": len(p.output.sequences[0].tokens)}
                for p in passes
                if p.arm in (None, number)
            ]

    def _against_baseline(self, asked: Sequence[int], found: Decoded, plain: Decoded) -> dict[str, Any]:
        """Whether the output is the plain output; else where it first differs, and how near a tie was there."""
        if found.tokens == plain.tokens:
            return {"matches_baseline": True}
        pairs = zip(found.tokens, plain.tokens, strict=False)
        first = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(found.tokens), len(plain.tokens)))
        margin = top_two_margin(self.target, [*asked, *plain.tokens[:first]])
        return {"matches_baseline": False, "first_mismatch": first, "mismatch_margin": margin}


def top_two_margin(target: Target, tokens: Sequence[int]) -> float:
    """Difference of the two largest logits after ``tokens``: near 0, rounding decides which token is greedy."""
    logits = target.forward(torch.tensor([list(tokens)], device=target.device), logits=1).logits
    assert logits is not None
    best = logits[0, -1].float().topk(2).values
    return float(best[0] - best[1])


def _timing(seconds: Seconds) -> dict[str, float]:
    return {
        "prefill_s": seconds.prefill,
        "decode_s": seconds.decode,
        "draft_s": seconds.draft,
        "verify_s": seconds.verify,
        "other_s": seconds.other,
    }
