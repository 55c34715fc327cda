"""The ``prefix`` protocol: one verification step per prompt, as in the DynaDFlash experiment.

The target produces the first token of its greedy answer, the drafter the next B-1 from the prompt's hidden
states, and the leading agreements with the target's greedy tokens are counted. Accepted length =
1 + agreements (the 1 is the target's first token), an integer in 1..B, cut at the target's first stop token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from analysis.schema import GATE_MOMENTS, GATE_QUANTITIES
from drafters.acceptance import count_step, output_hash, repetition
from drafters.arms import Arm
from drafters.keyed import permutation
from drafters.prompts import Prompt
from drafters.target import GreedyOutput, Target

GATE_TOKENS = 2  # tokens per prompt and role whose gates are kept one by one; all tokens enter the moments
GATE_SAMPLING = f"{GATE_TOKENS} tokens per prompt and role, drawn by a generator keyed by (prompt_id, role)"

Rows = dict[str, list[dict[str, Any]]]  # rows per table


def prefix_rows(
    arm: Arm,
    target: Target,
    prompts: Sequence[Prompt],
    tokens: Sequence[Sequence[int]],
    output: GreedyOutput,
    layers: Sequence[int],
    describe: Sequence[dict[str, Any]],
    eval_id: str,
) -> Rows:
    """Rows of acceptance, prompts, gates and gate_stats for one batch of prompts.

    ``tokens``: the encoded prompts; ``output``: the target's greedy tokens with features of layer ids
    ``layers`` (a superset of the arm's); ``describe``: further columns of each prompts row.
    """
    picked = [list(layers).index(layer) for layer in arm.layer_ids]
    features = [f[:, picked] for f in output.features or [torch.empty(len(t), 0, 0) for t in tokens]]
    draft = arm.propose([f[: len(t)] for f, t in zip(features, tokens, strict=True)], [o[0] for o in output.tokens])
    rows: Rows = {"acceptance": [], "prompts": [], "gates": [], "gate_stats": []}
    for i, prompt in enumerate(prompts):
        key = {
            "eval_id": eval_id,
            "protocol": "prefix",
            "prompt_id": prompt.prompt_id,
            "turn": 0,
            "sample": 0,
            "temperature": 0.0,
            "dataset": prompt.dataset,
        }
        answer = output.tokens[i][: arm.block_size]
        # a first token that stops leaves nothing to draft
        truth = [] if answer[0] in target.stop_ids else answer[1:]
        count = count_step(draft[i].tolist(), truth, target.stop_ids, arm.vocabulary)
        ended = "stop" if answer[0] in target.stop_ids else count.ended
        rows["acceptance"].append(
            {
                **key,
                "step": 0,
                "position": len(tokens[i]),
                "drafted": count.drafted,
                "eligible": count.eligible,
                "accepted": count.accepted,
                "emitted": count.emitted,
                "ended": ended,
            }
        )
        rows["prompts"].append(
            {
                **key,
                "cluster_id": prompt.cluster_id,
                "category": prompt.category,
                "prompt_tokens": len(tokens[i]),
                "output_tokens": len(answer),
                "steps": 1,
                "output_hash": output_hash(answer),
                "repetition": repetition(answer),
                **describe[i],
            }
        )
        asked = len(tokens[i])
        for role, start, end in (("prompt", 0, asked), ("answer", asked, asked + len(answer) - 1)):
            if end > start:
                sampled, moments = gate_rows(arm, features[i][start:end], start, role, key)
                rows["gates"] += sampled
                rows["gate_stats"] += moments
    return rows


def vocabulary_coverage(arm: Arm, prompts: Sequence[Prompt], output: GreedyOutput) -> dict[str, list[int]]:
    """Per dataset: [target tokens that the arm can propose, all target tokens], over slots 1..B-1."""
    found: dict[str, list[int]] = {}
    for prompt, answer in zip(prompts, output.tokens, strict=True):
        counts = found.setdefault(prompt.dataset, [0, 0])
        wanted = answer[1 : arm.block_size]
        counts[0] += len(wanted) if arm.vocabulary is None else sum(token in arm.vocabulary for token in wanted)
        counts[1] += len(wanted)
    return found


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
    # logs exist where the gate and its reference, the last layer's gate, are positive
    positive = (values["gate"] > 0) & (values["gate"][:, -1:] > 0)
    log_gate = np.log(np.where(positive, values["gate"], 1.0))
    values["log_gate"] = log_gate
    values["log_ratio"] = np.where(positive, log_gate - log_gate[:, -1:], 0.0)
    chosen = np.sort(permutation(len(features), "gates", key["prompt_id"], role)[:GATE_TOKENS])
    layers = [layer + 1 for layer in arm.layer_ids]  # as indices into hidden_states
    sampled = [
        {**key, "position": first_position + int(token), "role": role, "layer": layer}
        | {name: float(values[name][token, column]) for name in GATE_QUANTITIES}
        for token in chosen
        for column, layer in enumerate(layers)
    ]
    sums = {name: (values[name].sum(0), np.square(values[name]).sum(0)) for name in GATE_MOMENTS}
    moments = [
        {**key, "role": role, "layer": layer, "n": len(features), "n_log": int(positive[:, column].sum())}
        | {f"{name}_sum": float(total[column]) for name, (total, _) in sums.items()}
        | {f"{name}_sumsq": float(square[column]) for name, (_, square) in sums.items()}
        for column, layer in enumerate(layers)
    ]
    return sampled, moments
