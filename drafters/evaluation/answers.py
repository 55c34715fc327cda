"""The target's own answers, and what one pass over an answer says about it.

Answers are greedy and kept in the cache, so that arms evaluated one after another need them once. The pass gives
the context features that all arms share, and how sure the target was of each token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise

import torch

from analysis.runlog.manifest import settings_hash
from analysis.runlog.writing import write_atomic
from drafters.cache import cache_folder
from drafters.target.frozen import Target

_LOGITS = 2**26  # elements of the logits of one pass: a quarter of a gigabyte in fp32


def greedy_answers(target: Target, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> list[list[int]]:
    """Greedy answers to a batch of prompts (token ids), each up to and with its first stop token.

    Found in the cache if the same target answered the same batch before; the batch as a whole, since its
    composition decides near-ties.
    """
    settings = {
        "target": target.info().sha256,
        "dtype": str(target.dtype),
        "attention": target.attention,
        "device": target.device.type,
        "versions": [version("torch"), version("transformers")],
        "stop_ids": sorted(target.stop_ids),
        "max_new_tokens": max_new_tokens,
        "prompts": [list(prompt) for prompt in prompts],
    }
    path = cache_folder() / "answers" / f"{settings_hash(settings)[:32]}.json"
    if path.exists():
        answers: list[list[int]] = json.loads(path.read_text(encoding="utf-8"))
        return answers
    answers = target.greedy(prompts, max_new_tokens).tokens
    write_atomic(path, json.dumps(answers) + "\n")
    return answers


@dataclass(frozen=True)
class Reading:
    """One pass of the target over a prompt and its answer of n tokens; all but the last token were run.

    ``features`` [prompt + n - 1, T, H]; ``choices`` int64 [n]: the tokens that the target prefers in this pass;
    ``entropy`` (nats) and ``margin`` (difference of the two largest logits), fp32 [n]: of its distribution of each
    answer token. All but the features are on the CPU.
    """

    features: torch.Tensor
    choices: torch.Tensor
    entropy: torch.Tensor
    margin: torch.Tensor


def read(
    target: Target, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], layer_ids: Sequence[int]
) -> Iterator[list[Reading]]:
    """Read answers in order, as many in a pass as ``_LOGITS`` allows; yields the readings of one pass at a time."""
    kept = max(map(len, answers))
    size = max(1, _LOGITS // (kept * target.vocab_size))
    bounds = [*range(0, len(answers), size), len(answers)]
    for start, end in pairwise(bounds):
        yield _read(target, prompts[start:end], answers[start:end], layer_ids)


@torch.inference_mode()
def _read(
    target: Target, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], layer_ids: Sequence[int]
) -> list[Reading]:
    rows = [[*prompt, *answer[:-1]] for prompt, answer in zip(prompts, answers, strict=True)]
    ids = torch.full((len(rows), max(map(len, rows))), target.pad_id)
    for row, tokens in zip(ids, rows, strict=True):
        row[: len(tokens)] = torch.tensor(tokens)
    # logits of the n positions before the answer's tokens; those of padding repeat a row's last
    first = torch.tensor([[len(prompt) - 1] for prompt in prompts])
    last = torch.tensor([[len(tokens) - 1] for tokens in rows])
    places = (first + torch.arange(max(map(len, answers)))).minimum(last)
    # padding on the right comes after everything that causal attention lets a token see: no mask is needed
    output = target.forward(ids.to(target.device), layer_ids=layer_ids, logits=places.to(target.device))
    assert output.logits is not None
    readings = []
    for number, (tokens, answer) in enumerate(zip(rows, answers, strict=True)):
        logits = output.logits[number, : len(answer)].float()
        best = logits.topk(2, dim=-1).values
        features = logits.new_empty(len(tokens), 0, 0)
        if output.features is not None:
            features = output.features[number, : len(tokens)]
        readings.append(
            Reading(
                features=features,
                choices=logits.argmax(-1).cpu(),
                entropy=torch.special.entr(logits.softmax(-1)).sum(-1).cpu(),
                margin=(best[:, 0] - best[:, 1]).cpu(),
            )
        )
    return readings
