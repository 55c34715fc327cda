"""Building a corpus: the target answers the training prompts, and its hidden states may be kept.

Greedy answers in batches, features captured in the same passes, one shard a batch. One corpus serves every
arm that reads the same layers, or, without stored features, every arm. The composition of a batch changes the
last bits of its features, so batches follow from the prompts and their order alone, and a build that was
killed goes on to the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from analysis.errors import DataError
from analysis.runlog.manifest import settings_hash
from analysis.runlog.writing import write_atomic
from drafters.cache import cache_folder, locked
from drafters.corpus.answering import Answering, Chat
from drafters.corpus.given import thinks
from drafters.corpus.store import (
    FORMAT,
    INDEX,
    Corpus,
    CorpusExample,
    shard_path,
    write_index,
    write_shard,
)
from drafters.prompts.identity import Prompt
from drafters.target.frozen import Target
from drafters.target.layers import check_layer_ids

__all__ = ["Corpus", "CorpusExample", "build_corpus", "estimate_bytes", "plan_batches"]

SETTINGS = "settings.json"
_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_WINDOW = 16  # batches


def build_corpus(
    target: Target,
    prompts: Sequence[Prompt],
    *,
    layer_ids: Sequence[int],
    max_new_tokens: int,
    batch_size: int = 32,
    max_length: int = 3072,
    dtype: Literal["bfloat16", "float16"] = "bfloat16",
    given_answers: bool = False,
    answers: Mapping[str, Sequence[int]] | None = None,
    folder: Path | str | None = None,
    progress: Callable[[int, int, float], None] = lambda done, total, seconds: None,
) -> Corpus:
    """The corpus of these prompts: found if it was built before, else built, or gone on with.

    ``layer_ids``: of the hidden states to store, in ``dtype``, the target's ``final_id`` last, if at all; with none the
    corpus holds tokens alone.

    The target answers the first turn of each prompt, with up to ``max_new_tokens`` and to ``max_length`` in all;
    with ``given_answers`` the answers in the data are taken instead, all turns of them; with ``answers`` (tokens by
    prompt id) those of an engine that ran the target. Left out, and named in
    the index: prompts too long to be answered, and answers of fewer than two tokens, which hold no anchor.
    ``folder``: where, instead of the cache. ``progress(done, total, seconds)`` counts prompts, and the seconds
    of this call. Building twice at a time is safe: the second waits for the first.

    Raises DataError: nothing to answer, two prompts of one id, no room on the disk, hidden states that
    ``dtype`` cannot hold, or a ``folder`` with another corpus.
    """
    check_layer_ids([layer for layer in layer_ids if layer != target.final_id], target.num_layers)
    if not prompts:
        raise DataError("corpus: no prompts to answer")
    prompts = _with_own_ids(prompts) if given_answers else prompts
    id, times = Counter(prompt.prompt_id for prompt in prompts).most_common(1)[0]
    if times > 1:
        raise DataError(f"corpus: prompt {id} is in the list {times} times")
    settings = _settings(target, prompts, given_answers) | {
        "layer_ids": list(layer_ids),
        "max_new_tokens": None if given_answers else max_new_tokens,
        "max_length": max_length,
        "batch_size": batch_size,
        "dtype": dtype if layer_ids else None,
    }
    if answers is not None:
        settings["answers"] = _digest(answers)
    folder = Path(folder) if folder else cache_folder() / "corpora" / settings_hash(settings)[:32]
    with locked(folder):
        _claim(folder, settings)
        if (folder / INDEX).exists():
            return Corpus(folder)
        started = time.monotonic()
        answering = Answering(target, tuple(layer_ids), max_new_tokens, max_length, _DTYPES[dtype])
        chats, left_out = answering.chats(prompts, given_answers, answers)
        shards = _write_shards(answering, chats, folder, batch_size, progress)
        order, notes = [prompt.prompt_id for prompt in prompts], _notes(target, chats) if given_answers else []
        write_index(folder, settings, target.vocab_size, order, shards, left_out, notes)
        corpus = Corpus(folder)
        corpus.build_seconds = time.monotonic() - started
        return corpus


def plan_batches(lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """Indices of the prompts of each batch: by length (then order) within windows of 16 batches.

    Similar lengths waste little on padding; windows keep what a stopped build has done near the front.
    """
    batches = []
    for first in range(0, len(lengths), _WINDOW * batch_size):
        window = range(first, min(first + _WINDOW * batch_size, len(lengths)))
        ordered = sorted(window, key=lambda index: (lengths[index], index))
        batches += [ordered[start : start + batch_size] for start in range(0, len(ordered), batch_size)]
    return batches


def estimate_bytes(tokens: int, layers: int, hidden_size: int) -> int:
    """Size on disk of so many tokens: 16-bit features of ``layers`` layers, a 32-bit id and a flag each."""
    return tokens * (2 * layers * hidden_size + 4 + 1)


def _with_own_ids(prompts: Sequence[Prompt]) -> list[Prompt]:
    """The prompts, a repeated one with the hash of its answer in its id: each answer is an example of its own."""
    seen: set[str] = set()
    named = []
    for prompt in prompts:
        said = json.dumps([prompt.answers, prompt.thought])
        again = f"{prompt.prompt_id}-{hashlib.sha256(said.encode()).hexdigest()[:8]}"
        named.append(replace(prompt, prompt_id=again) if prompt.prompt_id in seen else prompt)
        seen.add(prompt.prompt_id)
    return named


def _notes(target: Target, chats: Sequence[Chat]) -> list[str]:
    """What a reader must know of given answers: thoughts where the target does not think, or the other way round."""
    odd = sum(thinks(chat.prompt) != target.thinking for chat in chats)
    if not odd or "<think>" not in (target.chat_template or ""):
        return []
    held, state = ("no thought", "on") if target.thinking else ("a thought", "off")
    return [f"{odd} of {len(chats)} given answers hold {held}, though thinking is {state}"]


def _digest(answers: Mapping[str, Sequence[int]]) -> str:
    """Hash of an engine's answers, whatever their order."""
    said = json.dumps(sorted((prompt, list(tokens)) for prompt, tokens in answers.items()))
    return hashlib.sha256(said.encode()).hexdigest()


def _settings(target: Target, prompts: Sequence[Prompt], given_answers: bool) -> dict[str, Any]:
    digest = hashlib.sha256()
    for prompt in prompts:
        said: list[Any] = [prompt.answers if given_answers else ()]
        if given_answers and (prompt.thought or prompt.cut):
            said += [prompt.thought, prompt.cut]
        digest.update(json.dumps([prompt.prompt_id, prompt.dataset, prompt.cluster_id, *said]).encode() + b"\n")
    info = target.info()
    return {
        "format": FORMAT,
        "target": info.sha256,
        "target_dtype": str(target.dtype).removeprefix("torch."),
        "stop_ids": sorted(target.stop_ids),
        "chat_template": info.chat_template_sha256,
        "prompts": digest.hexdigest(),
        "given_answers": given_answers,
        **({"thinking": True} if target.thinking else {}),
    }


def _claim(folder: Path, settings: dict[str, Any]) -> None:
    """Say in ``folder`` what it is for. Raises DataError if it says something else already."""
    path = folder / SETTINGS
    if not path.exists():
        write_atomic(path, json.dumps(settings, indent=2) + "\n")
    held = json.loads(path.read_text())
    if other := [name for name, value in settings.items() if held.get(name) != value]:
        raise DataError(f"{folder}: holds a corpus with other settings ({', '.join(other)}); choose another folder")


def _write_shards(
    answering: Answering,
    chats: Sequence[Chat],
    folder: Path,
    batch_size: int,
    progress: Callable[[int, int, float], None],
) -> int:
    """Run every batch whose shard is not there yet; returns how many shards there are."""
    started = time.monotonic()
    batches = [[chats[i] for i in batch] for batch in plan_batches([len(chat.tokens) for chat in chats], batch_size)]
    missing = {number for number in range(len(batches)) if not shard_path(folder, number).exists()}
    tokens = sum(answering.most_tokens(chat) for number in missing for chat in batches[number])
    needed = estimate_bytes(tokens, len(answering.layer_ids), answering.target.hidden_size)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(
            f"corpus: up to {needed / 1e9:.1f} GB are needed and {folder} has {free / 1e9:.1f} GB free; "
            "take fewer prompts or tokens, or set DRAFTLAB_CACHE to a larger disk"
        )
    done = 0
    for number, batch in enumerate(batches):
        if number in missing:
            write_shard(shard_path(folder, number), *answering.examples(batch))
        done += len(batch)
        progress(done, len(chats), time.monotonic() - started)
    return len(batches)
