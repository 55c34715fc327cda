"""A corpus on disk: what the target answered, with its hidden states, read by random access.

    <corpus>/settings.json              what decides the content, written first
             shard-00000.safetensors    one batch of examples each, their descriptions in the header
             index.json                 every example's place, every shard's sha256; written last

A folder without an index is an unfinished corpus. Nothing in the files depends on when or how often it was
interrupted, so equal settings give equal bytes.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from analysis.errors import DataError
from analysis.runlog.writing import sha256_of, write_atomic

FORMAT = 1
INDEX = "index.json"
SHORT_ANSWER = "answer of fewer than two tokens"  # reason for which a prompt is left out
_HEADER = "draftlab"  # one key: the order of several in a safetensors header is not fixed
_OPEN_SHARDS = 64


@dataclass(frozen=True)
class CorpusExample:
    """One answered conversation of n tokens."""

    example_id: str
    dataset: str
    cluster_id: str
    tokens: Tensor  # int64 [n], the prompt first
    prompt_length: int  # the first supervised position
    supervised: Tensor  # bool [n], the answer's tokens (of a chat with given answers: all spans of answers)
    features: Tensor | None  # 16 bit [n - 1, T, H]: nothing ever looks at the last token's; None: not stored


def write_shard(path: Path, examples: Sequence[CorpusExample], left_out: Sequence[tuple[str, str]]) -> None:
    """Write one batch, whole or not at all; ``left_out`` holds (example id, reason) of those that are not in it."""
    described = []
    for example in examples:
        place = {"example_id": example.example_id, "dataset": example.dataset, "cluster_id": example.cluster_id}
        described.append(place | {"prompt_length": example.prompt_length, "length": len(example.tokens)})
    tensors = {}
    if examples:
        tensors = {
            "tokens": torch.cat([example.tokens for example in examples]).to(torch.int32),
            "supervised": torch.cat([example.supervised for example in examples]),
        }
        if stored := [example.features for example in examples if example.features is not None]:
            tensors["features"] = torch.cat(stored)
    header = json.dumps({"examples": described, "left_out": list(left_out)}, ensure_ascii=False)
    temporary = path.with_name(f".{path.name}.tmp")
    save_file(tensors, temporary, metadata={_HEADER: header})
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)


def write_index(
    folder: Path,
    settings: dict[str, Any],
    vocab_size: int,
    order: Sequence[str],
    shards: int,
    left_out: Sequence[tuple[str, str]],
    notes: Sequence[str] = (),
) -> None:
    """Finish a corpus whose ``shards`` are all there.

    ``order``: example ids in the order of the corpus. ``left_out``: (id, reason) of prompts that are in no shard.
    ``notes``: what a reader must know of the whole.
    """
    places, all_left_out, files = {}, list(left_out), []
    for number in range(shards):
        path = shard_path(folder, number)
        with safe_open(path, framework="pt") as shard:
            header = json.loads(shard.metadata()[_HEADER])
        start = 0
        for nth, example in enumerate(header["examples"]):
            places[example["example_id"]] = example | {"shard": number, "nth": nth, "start": start}
            start += example["length"]
        all_left_out += header["left_out"]
        files.append({"file": path.name, "bytes": path.stat().st_size, "sha256": sha256_of(path)})
    index = {
        "format": FORMAT,
        "settings": settings,
        "vocab_size": vocab_size,
        "shards": files,
        "left_out": all_left_out,
        **({"notes": list(notes)} if notes else {}),
        "examples": [places[id] for id in order if id in places],
    }
    write_atomic(folder / INDEX, json.dumps(index, ensure_ascii=False) + "\n")


def shard_path(folder: Path, number: int) -> Path:
    """Where a corpus keeps its shard of this number."""
    return folder / f"shard-{number:05d}.safetensors"


class Corpus:
    """A finished corpus, memory-mapped: ``corpus[i]`` reads that example and nothing else.

    Raises DataError if the folder holds no finished corpus, or a shard is not as the index says.
    """

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        self.index: dict[str, Any] = _read_index(self.folder)
        self.build_seconds = 0.0  # what building took in the call that returned this object
        self._examples: list[dict[str, Any]] = self.index["examples"]
        self._open = lru_cache(_OPEN_SHARDS)(lambda number: safe_open(shard_path(self.folder, number), framework="pt"))

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, number: int) -> CorpusExample:
        place = self._examples[number]
        shard = self._open(place["shard"])
        first, last = place["start"], place["start"] + place["length"]
        row = first - place["nth"]  # every example before it has one feature row fewer than tokens
        return CorpusExample(
            example_id=place["example_id"],
            dataset=place["dataset"],
            cluster_id=place["cluster_id"],
            tokens=shard.get_slice("tokens")[first:last].long(),
            prompt_length=place["prompt_length"],
            supervised=shard.get_slice("supervised")[first:last],
            features=shard.get_slice("features")[row : row + place["length"] - 1] if self.layer_ids else None,
        )

    @property
    def sha256(self) -> str:
        """Hash of the index, which holds the hash of every shard."""
        return sha256_of(self.folder / INDEX)

    @property
    def layer_ids(self) -> tuple[int, ...]:
        """The target layers of the stored features, in their order; none if features are not stored."""
        return tuple(self.index["settings"]["layer_ids"])

    @property
    def example_ids(self) -> list[str]:
        """Ids (the prompts' ids) in the order of the corpus."""
        return [place["example_id"] for place in self._examples]

    @property
    def notes(self) -> list[str]:
        """What a reader must know of it."""
        return self.index.get("notes", [])

    @property
    def short_answers(self) -> int:
        """How many prompts are left out because their answer, one token, holds no anchor."""
        return sum(reason == SHORT_ANSWER for _, reason in self.index["left_out"])

    def token_counts(self, *, answers: bool = True) -> np.ndarray:
        """How often each token is supervised, int64 [vocab]; or, without ``answers``, how often it is not."""
        counts = np.zeros(self.index["vocab_size"], dtype=np.int64)
        for number in sorted({place["shard"] for place in self._examples}):
            shard = self._open(number)
            answered = shard.get_tensor("tokens")[shard.get_tensor("supervised") == answers]
            counts += np.bincount(answered.numpy(), minlength=len(counts))
        return counts


def _read_index(folder: Path) -> dict[str, Any]:
    path = folder / INDEX
    try:
        index = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise DataError(f"{folder}: no {INDEX}: not a corpus, or one whose building has not finished") from error
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: not JSON ({error}); delete the folder to build the corpus again") from error
    if index.get("format") != FORMAT:
        raise DataError(f"{path}: corpus format {index.get('format')!r}, this draftlab reads {FORMAT}; build it again")
    if not index["examples"]:
        reasons = Counter(reason for _, reason in index["left_out"])
        listing = ", ".join(f"{count} x {reason}" for reason, count in reasons.items())
        raise DataError(f"{folder}: no example is left ({listing})")
    for shard in index["shards"]:
        file = folder / shard["file"]
        if not file.exists() or file.stat().st_size != shard["bytes"]:
            raise DataError(f"{file}: missing or cut off; delete it and {INDEX}, and repeat the command")
    return index
