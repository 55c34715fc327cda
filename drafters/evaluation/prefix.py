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
from analysis.runlog.schema import GATE_MOMENTS, GATE_QUANTITIES
from drafters.evaluation.arms import Arm
from drafters.evaluation.rows import BatchRows, acceptance_row, coverage, prompt_key
from drafters.keyed import permutation
from drafters.model.acceptance import count_first_block
from drafters.prompts.sources import Prompt, messages
from drafters.target.frozen import GreedyOutput, Target

GATE_TOKENS = 2  # tokens per prompt and role whose gates are kept one by one; all tokens enter the moments
GATE_SAMPLING = f"{GATE_TOKENS} tokens per prompt and role, drawn by a generator keyed by (prompt_id, role)"


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
        contexts = [f[: len(t)] for f, t in zip(features, tokens, strict=True)]
        drafts = arm.propose(contexts, [answer[0] for answer in output.tokens], tokens)
        rows = BatchRows()
        for prompt, asked, whole, draft, feature in zip(
            prompts, tokens, output.tokens, drafts.tolist(), features, strict=True
        ):
            answer = whole[: arm.block_size]
            key = prompt_key(self.eval_id, "prefix", prompt)
            count = count_first_block(draft, answer, self.target.stop_ids, arm.vocabulary(asked))
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


def gate_rows(
    arm: Arm, features: torch.Tensor, first_position: int, role: str, key: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Sampled gate rows and moments over all tokens, for the tokens of one prompt and role.

    ``features`` [n, T, H] of the arm's layers. Both lists are empty for an arm without a projection.
    """
    found = arm.contributions(features)
    if found is None:
        return [], []
    values = {name: getattr(found, name).double().cpu().numpy() for name in GATE_QUANTITIES}  # each [n, T]
    gate = values["gate"]
    log_gate = np.log(gate, where=gate > 0, out=np.full_like(gate, np.nan))  # a gate may be 0 or negative
    values |= {"log_gate": log_gate, "log_ratio": log_gate - log_gate[:, -1:]}
    chosen = np.sort(permutation(len(features), "gates", key["prompt_id"], role)[:GATE_TOKENS])
    layers = [layer + 1 for layer in arm.layer_ids]  # as indices into hidden_states
    sampled = [
        {**key, "position": first_position + int(token), "role": role, "layer": layer}
        | {name: float(values[name][token, column]) for name in GATE_QUANTITIES}
        for token in chosen
        for column, layer in enumerate(layers)
    ]
    logs = {name: np.isfinite(values[name]) for name in ("log_gate", "log_ratio")}
    sums = {
        name: tuple(np.sum(x, axis=0, where=logs.get(name, True)) for x in (values[name], np.square(values[name])))
        for name in GATE_MOMENTS
    }
    moments = [
        {**key, "role": role, "layer": layer, "n": len(features)}
        | {"n_log": int(logs["log_ratio"][:, column].sum()), "n_log_gate": int(logs["log_gate"][:, column].sum())}
        | {f"{name}_sum": float(total[column]) for name, (total, _) in sums.items()}
        | {f"{name}_sumsq": float(square[column]) for name, (_, square) in sums.items()}
        for column, layer in enumerate(layers)
    ]
    return sampled, moments
