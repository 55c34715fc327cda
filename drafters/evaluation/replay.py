"""The ``replay`` protocol: what greedy decoding would do on whole answers, without decoding.

The target answers greedily, and the drafter proposes after every position of the answer, in batched passes. The
accepted length at each position is then known. Greedy decoding starts at the answer's first token, and from a
position with a accepted tokens it goes a + 1 positions on; its steps are that walk, and tau is that of the protocol
``generate``, except where the target is so near a tie that another order of the same sums decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field

from analysis.errors import DataError
from analysis.runlog.outputs import hash_of_tokens, repetition
from drafters.evaluation.answers import Reading, greedy_answers, read
from drafters.evaluation.arms import NO_DRAFT, Arm, Passage, Tokens
from drafters.evaluation.gates import gate_rows
from drafters.evaluation.rows import BatchRows, acceptance_row, coverage, prompt_key
from drafters.model.acceptance import StepCount, close_step
from drafters.prompts.sources import Prompt, messages
from drafters.target.frozen import Target

_RESOLUTION = 1024  # entropies and margins are kept in steps of 1/1024: a third of the bytes of a log


class ReplaySettings(BaseModel):
    """How answers are made and replayed; part of the evaluation's identity."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_new_tokens: int = Field(default=256, ge=1)
    block_size: int | None = Field(default=None, ge=1)  # at most the size trained for (default)
    keep_output: bool = False


def count_anchors(
    drafts: Tokens, answer: Sequence[int], stop_ids: Collection[int], vocabulary: Collection[int] | None = None
) -> list[StepCount]:
    """The step that decoding would take at each position of an answer of n tokens but the last.

    ``drafts`` int64 [n - 1, B - 1], NO_DRAFT from where nothing was drafted; ``answer``: cut after its first stop
    token, or at the length limit; ``vocabulary``: as in :func:`drafters.model.acceptance.count_step`.
    """
    rest = np.array([*answer[1:], *[NO_DRAFT - 1] * drafts.shape[1]])  # past the end nothing agrees
    ahead = np.lib.stride_tricks.sliding_window_view(rest, drafts.shape[1])[: len(drafts)]
    drafted = (drafts != NO_DRAFT).sum(axis=1).tolist()
    agreed = (drafts == ahead).cumprod(axis=1).sum(axis=1).tolist()
    stopped = answer[-1] in stop_ids
    counts = []
    for place, (slots, agreements) in enumerate(zip(drafted, agreed, strict=True)):
        left = len(answer) - 1 - place
        missing = agreements < left and vocabulary is not None and answer[place + 1 + agreements] not in vocabulary
        stop_at = left - 1 if stopped else None
        counts.append(close_step(slots, agreements, stop_at=stop_at, room=left, outside_vocabulary=missing))
    return counts


def walk(counts: Sequence[StepCount]) -> Iterator[int]:
    """The positions at which greedy decoding takes its steps, from :func:`count_anchors`."""
    place = 0
    while place < len(counts):
        yield place
        place += counts[place].emitted


@dataclass(frozen=True)
class Replay:
    """The protocol, ready to be asked about batches of prompts."""

    target: Target
    eval_id: str
    describe: Callable[[Prompt], dict[str, Any]]  # further columns of a prompt's row in the prompts table
    settings: ReplaySettings

    def batch(self, prompts: Sequence[Prompt], arms: Sequence[Arm]) -> list[BatchRows]:
        """Rows of every arm for a batch of prompts, turn after turn.

        A conversation goes on with the target's own answers. Raises DataError for a block size that an arm was not
        trained for.
        """
        for arm in arms:
            if (self.settings.block_size or 1) > arm.block_size:
                raise DataError(f"--block-size {self.settings.block_size}: an arm was trained for {arm.block_size}")
        layers = sorted({layer for arm in arms for layer in arm.layer_ids})
        rows = [BatchRows() for _ in arms]
        replies: list[list[str]] = [[] for _ in prompts]
        for turn in range(max(len(prompt.turns) for prompt in prompts)):
            asked = [i for i, prompt in enumerate(prompts) if len(prompt.turns) > turn]
            tokens = [self.target.encode_chat(messages(prompts[i], replies[i])) for i in asked]
            answers = greedy_answers(self.target, tokens, self.settings.max_new_tokens)
            waiting = zip(asked, tokens, answers, strict=True)  # each reading takes the next of them
            for readings in read(self.target, tokens, answers, layers):
                found = [
                    _Answer(prompts[i], turn, question, answer, reading)
                    for reading, (i, question, answer) in zip(readings, waiting, strict=False)
                ]
                for arm, of_arm in zip(arms, rows, strict=True):
                    self._log(of_arm, arm, found, [layers.index(layer) for layer in arm.layer_ids])
            for i, answer in zip(asked, answers, strict=True):
                replies[i].append(self.target.decode(answer))
        return rows

    def _log(self, rows: BatchRows, arm: Arm, answers: Sequence[_Answer], columns: Sequence[int]) -> None:
        """Enter answers of one arm, which reads these ``columns`` of the features."""
        features = [answer.features(columns) for answer in answers]
        size = self.settings.block_size or arm.block_size
        passages = [
            answer.passage(feature, size, self.settings.max_new_tokens)
            for answer, feature in zip(answers, features, strict=True)
        ]
        for answer, feature, found in zip(answers, features, arm.propose_ranked(passages), strict=True):
            counts = count_anchors(found.drafts, answer.tokens, self.target.stop_ids, arm.vocabulary(answer.asked))
            key = prompt_key(self.eval_id, "replay", answer.prompt, answer.turn)
            steps = list(walk(counts))
            rows.tables["acceptance"] += [
                acceptance_row(key, step, len(answer.asked) + place, counts[place]) for step, place in enumerate(steps)
            ]
            rows.tables["anchors"] += [key | anchor for anchor in answer.anchor_rows(counts, found.ranks)]
            rows.tables["prompts"].append(
                {
                    **key,
                    **self.describe(answer.prompt),
                    "prompt_tokens": len(answer.asked),
                    "output_tokens": len(answer.tokens),
                    "steps": len(steps),
                    "finish_reason": "stop" if answer.tokens[-1] in self.target.stop_ids else "length",
                    "output_hash": hash_of_tokens(answer.tokens),
                    "output_ids": answer.tokens if self.settings.keep_output else None,
                    "repetition": repetition(answer.tokens),
                    **answer.against_reading(),
                }
            )
            rows.count(answer.prompt.dataset, **coverage(arm, answer.asked, answer.tokens[1:]))
            for role, begin, end in (("prompt", 0, len(answer.asked)), ("answer", len(answer.asked), len(feature))):
                if end > begin:
                    sampled, moments = gate_rows(arm, feature[begin:end], begin, role, key)
                    rows.tables["gates"] += sampled
                    rows.tables["gate_stats"] += moments


@dataclass(frozen=True)
class _Answer:
    """One answer of n tokens to a prompt's turn, read by the target."""

    prompt: Prompt
    turn: int
    asked: list[int]
    tokens: list[int]
    reading: Reading

    def features(self, columns: Sequence[int]) -> torch.Tensor:
        """[prompt + n - 1, T, H]: these columns of what was read."""
        picked = torch.tensor(list(columns), dtype=torch.int64, device=self.reading.features.device)
        return self.reading.features.index_select(1, picked)

    def passage(self, features: torch.Tensor, block_size: int, limit: int) -> Passage:
        """A block at every token but the last, which decoding cuts where ``limit`` tokens are reached."""
        places = np.arange(len(self.tokens) - 1)
        return Passage(
            tokens=np.array([*self.asked, *self.tokens]),
            prompt=len(self.asked),
            features=features,
            anchors=len(self.asked) + places,
            sizes=np.minimum(block_size, limit - places),
        )

    def anchor_rows(self, counts: Sequence[StepCount], ranks: Tokens | None) -> Iterator[dict[str, Any]]:
        """The columns after the key of this answer's rows in the anchors table."""
        # what the target expects after an anchor is the next token of the answer
        entropies, margins = (
            ((values[1:] * _RESOLUTION).round() / _RESOLUTION).tolist()
            for values in (self.reading.entropy, self.reading.margin)
        )
        for place, (count, entropy, margin) in enumerate(zip(counts, entropies, margins, strict=True)):
            yield {
                "position": len(self.asked) + place,
                "eligible": count.eligible,
                "accepted": count.accepted,
                "entropy": entropy,
                "margin": margin,
                "ranks": None if ranks is None else ranks[place, : count.eligible].tolist(),
            }

    def against_reading(self) -> dict[str, Any]:
        """Whether the one pass prefers the answer's tokens; else where it first does not, and the margin there."""
        differs = (self.reading.choices != torch.tensor(self.tokens)).nonzero()[:, 0].tolist()
        if not differs:
            return {"matches_baseline": True}
        margin = float(self.reading.margin[differs[0]])
        return {"matches_baseline": False, "first_mismatch": differs[0], "mismatch_margin": margin}
