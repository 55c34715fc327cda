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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any, Literal

import torch

from analysis.errors import DataError
from analysis.runlog.manifest import settings_hash
from analysis.runlog.writing import write_atomic
from drafters.cache import cache_folder, locked
from drafters.corpus.given import LeftOutError, answered_tokens, thinks
from drafters.corpus.store import (
    FORMAT,
    INDEX,
    SHORT_ANSWER,
    Corpus,
    CorpusExample,
    shard_path,
    write_index,
    write_shard,
)
from drafters.prompts.identity import Prompt, messages
from drafters.target.frozen import Target
from drafters.target.layers import check_layer_ids

__all__ = ["Corpus", "CorpusExample", "build_corpus", "estimate_bytes", "plan_batches"]

SETTINGS = "settings.json"
_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_WINDOW = 16  # batches

LeftOut = list[tuple[str, str]]  # (prompt id, reason)


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
    folder: Path | str | None = None,
    progress: Callable[[int, int, float], None] = lambda done, total, seconds: None,
) -> Corpus:
    """The corpus of these prompts: found if it was built before, else built, or gone on with.

    ``layer_ids``: of the hidden states to store, in ``dtype``, the target's ``final_id`` last, if at all; with none the
    corpus holds tokens alone.

    The target answers the first turn of each prompt, with up to ``max_new_tokens`` and to ``max_length`` in all;
    with ``given_answers`` the answers in the data are taken instead, all turns of them. Left out, and named in
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
    folder = Path(folder) if folder else cache_folder() / "corpora" / settings_hash(settings)[:32]
    with locked(folder):
        _claim(folder, settings)
        if (folder / INDEX).exists():
            return Corpus(folder)
        started = time.monotonic()
        answering = _Answering(target, tuple(layer_ids), max_new_tokens, max_length, _DTYPES[dtype])
        chats, left_out = answering.chats(prompts, given_answers)
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


@dataclass(frozen=True)
class _Chat:
    """A tokenised conversation."""

    prompt: Prompt
    tokens: list[int]
    supervised: list[bool] | None  # of given answers; None: the target is to answer


@dataclass(frozen=True)
class _Answering:
    """How prompts become examples."""

    target: Target
    layer_ids: tuple[int, ...]
    max_new_tokens: int
    max_length: int
    dtype: torch.dtype

    def chats(self, prompts: Sequence[Prompt], given_answers: bool) -> tuple[list[_Chat], LeftOut]:
        """The prompts that can become examples, tokenised, and those that cannot."""
        chats: list[_Chat] = []
        left_out: LeftOut = []
        for prompt in prompts:
            if given_answers and not prompt.answers:
                left_out.append((prompt.prompt_id, "no given answer"))
                continue
            if given_answers:
                try:
                    tokens, supervised = answered_tokens(self.target, prompt)
                except LeftOutError as reason:
                    left_out.append((prompt.prompt_id, str(reason)))
                    continue
                chat = _Chat(prompt, tokens[: self.max_length], supervised[: self.max_length])
                usable = _holds_anchor(supervised[: self.max_length])
            else:
                chat = _Chat(prompt, self.target.encode_chat(messages(prompt)), None)
                usable = len(chat.tokens) + 2 <= self.max_length
            if usable:
                chats.append(chat)
            else:
                left_out.append((prompt.prompt_id, f"no room for an answer within {self.max_length} tokens"))
        return chats, left_out

    def most_tokens(self, chat: _Chat) -> int:
        """How long the example of this chat can become."""
        return min(len(chat.tokens) + (self.max_new_tokens if chat.supervised is None else 0), self.max_length)

    def examples(self, batch: Sequence[_Chat]) -> tuple[list[CorpusExample], LeftOut]:
        """Run one batch. Raises DataError if ``dtype`` cannot hold a hidden state."""
        examples: list[CorpusExample] = []
        left_out: LeftOut = []
        for example in self._read(batch) if batch[0].supervised else self._answer(batch):
            if not _holds_anchor(example.supervised.tolist()):
                left_out.append((example.example_id, SHORT_ANSWER))
            elif example.features is not None and not example.features.isfinite().all():
                cure = "; use bfloat16 for the features" if self.dtype == torch.float16 else ""
                raise DataError(
                    f"corpus: prompt {example.example_id}: a hidden state of the target is too large for "
                    f"{self.dtype}, or not a number{cure}"
                )
            else:
                examples.append(example)
        return examples, left_out

    def _answer(self, batch: Sequence[_Chat]) -> list[CorpusExample]:
        output = self.target.greedy(
            [chat.tokens for chat in batch], self.max_new_tokens, layer_ids=self.layer_ids, feature_dtype=self.dtype
        )
        examples = []
        for chat, answer, features in zip(batch, output.tokens, output.features or repeat(None), strict=False):
            supervised = [False] * len(chat.tokens) + [True] * len(answer)
            examples.append(self._example(chat.prompt, chat.tokens + answer, supervised, features))
        return examples

    def _read(self, batch: Sequence[_Chat]) -> list[CorpusExample]:
        if not self.layer_ids:
            return [self._example(chat.prompt, chat.tokens, chat.supervised or [], None) for chat in batch]
        width = max(len(chat.tokens) for chat in batch)
        # padding on the right comes after everything that causal attention lets a token see: no mask is needed
        ids = torch.tensor([chat.tokens + [self.target.pad_id] * (width - len(chat.tokens)) for chat in batch])
        output = self.target.forward(ids.to(self.target.device), layer_ids=self.layer_ids)
        assert output.features is not None
        return [
            self._example(chat.prompt, chat.tokens, chat.supervised or [], features.to(self.dtype))
            for chat, features in zip(batch, output.features, strict=True)
        ]

    def _example(
        self, prompt: Prompt, tokens: list[int], supervised: list[bool], features: torch.Tensor | None
    ) -> CorpusExample:
        length = min(len(tokens), self.max_length)
        return CorpusExample(
            example_id=prompt.prompt_id,
            dataset=prompt.dataset,
            cluster_id=prompt.cluster_id,
            tokens=torch.tensor(tokens[:length]),
            prompt_length=supervised.index(True),
            supervised=torch.tensor(supervised[:length]),
            features=None if features is None else features[: length - 1].cpu(),
        )


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


def _notes(target: Target, chats: Sequence[_Chat]) -> list[str]:
    """What a reader must know of given answers: thoughts where the target does not think, or the other way round."""
    odd = sum(thinks(chat.prompt) != target.thinking for chat in chats)
    if not odd or "<think>" not in (target.chat_template or ""):
        return []
    held, state = ("no thought", "on") if target.thinking else ("a thought", "off")
    return [f"{odd} of {len(chats)} given answers hold {held}, though thinking is {state}"]


def _holds_anchor(supervised: Sequence[bool]) -> bool:
    """An anchor is a supervised token with another right after it."""
    return any(here and after for here, after in pairwise(supervised))


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
    answering: _Answering,
    chats: Sequence[_Chat],
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
