"""The ``prefix`` protocol: one verification step per prompt, as in the DynaDFlash experiment.

The target produces the first token of its greedy answer, the drafter the next B-1 from the prompt's hidden
states, and the leading agreements with the target's greedy tokens are counted. Accepted length =
1 + agreements (the 1 is the target's first token), an integer in 1..B, cut at the target's first stop token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from analysis.runlog.outputs import hash_of_tokens, repetition
from drafters.evaluation.arms import NO_DRAFT, Arm, Passage
from drafters.evaluation.gates import gate_rows
from drafters.evaluation.rows import BatchRows, acceptance_row, coverage, prompt_key
from drafters.model.acceptance import count_first_block
from drafters.prompts.sources import Prompt, messages
from drafters.target.frozen import GreedyOutput, Target


@dataclass(frozen=True)
class Prefix:
    """The protocol, ready to be asked about batches of prompts."""

    target: Target
    eval_id: str
    describe: Callable[[Prompt], dict[str, Any]]  # further columns of a prompt's row in the prompts table

    @torch.inference_mode()
    def batch(self, prompts: Sequence[Prompt], arms: Sequence[Arm]) -> list[BatchRows]:
        """Rows of every arm for a batch of prompts, which the target answers once for all of them."""
        tokens = [self.target.encode_chat(messages(prompt)) for prompt in prompts]
        layers = sorted({layer for arm in arms for layer in arm.layer_ids})
        output = self.target.greedy(tokens, max(arm.block_size for arm in arms), layer_ids=layers)
        return [self._rows(arm, prompts, tokens, output, layers) for arm in arms]

    def _rows(
        self,
        arm: Arm,
        prompts: Sequence[Prompt],
        tokens: Sequence[Sequence[int]],
        output: GreedyOutput,
        layers: Sequence[int],
    ) -> BatchRows:
        states = output.features or [torch.empty(len(t), 0, 0) for t in tokens]
        picked = torch.tensor([layers.index(layer) for layer in arm.layer_ids], dtype=torch.int64).to(states[0].device)
        features = [state.index_select(1, picked) for state in states]
        drafts = arm.propose(
            [
                Passage(
                    tokens=np.array([*asked, answer[0]]),
                    prompt=len(asked),
                    features=feature[: len(asked)],
                    anchors=np.array([len(asked)]),
                    sizes=np.array([arm.block_size]),
                )
                for asked, answer, feature in zip(tokens, output.tokens, features, strict=True)
            ]
        )
        rows = BatchRows()
        for prompt, asked, whole, (draft,), feature in zip(
            prompts, tokens, output.tokens, drafts, features, strict=True
        ):
            answer = whole[: arm.block_size]
            key = prompt_key(self.eval_id, "prefix", prompt)
            drafted = draft[draft != NO_DRAFT].tolist()
            count = count_first_block(drafted, answer, self.target.stop_ids, arm.vocabulary(asked))
            rows.tables["acceptance"].append(acceptance_row(key, 0, len(asked), count))
            rows.tables["prompts"].append(
                {
                    **key,
                    **self.describe(prompt),
                    "prompt_tokens": len(asked),
                    "output_tokens": len(answer),
                    "steps": 1,
                    "output_hash": hash_of_tokens(answer),
                    "repetition": repetition(answer),
                }
            )
            rows.count(prompt.dataset, **coverage(arm, asked, answer[1:]))
            for role, start, end in (("prompt", 0, len(asked)), ("answer", len(asked), len(asked) + len(answer) - 1)):
                if end > start:
                    sampled, moments = gate_rows(arm, feature[start:end], start, role, key)
                    rows.tables["gates"] += sampled
                    rows.tables["gate_stats"] += moments
        return rows
