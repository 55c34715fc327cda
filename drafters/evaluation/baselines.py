"""Runs of drafters without training: the most frequent next token, and prompt lookup."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from analysis.runlog import manifest as records
from analysis.runlog.addresses import MANIFEST
from analysis.runlog.manifest import Manifest, settings_hash
from analysis.runlog.writing import RunWriter
from drafters.checkpoints.run_files import remember_prompts
from drafters.config import RunConfig
from drafters.corpus.build import CorpusExample
from drafters.decoding.lookup import LONGEST
from drafters.evaluation.arms import NextTokenArm
from drafters.prompts.sources import prompt_set_hash
from drafters.provenance import environment
from drafters.ranks import refuse_several_ranks
from drafters.target.frozen import Target
from drafters.training.corpora import arm_corpus

LOOKUP = "prompt-lookup"


KINDS = ("next-token", LOOKUP)


NEXT_TOKEN = "next_token.safetensors"  # checkpoints/next_token.safetensors: successor int64 [vocab], block_size


def make_lookup_run(config: RunConfig, folder: Path, device: str) -> str:
    """A run of prompt lookup for the target and block size of ``config``; returns a line for the user."""
    refuse_several_ranks("the baseline")
    if (folder / MANIFEST).exists():
        return f"{folder}: exists already; nothing to do"
    settings = config.model_dump(mode="json", include={"target", "target_dtype", "thinking"})
    manifest = Manifest(
        name=folder.name,
        label="prompt lookup",
        created_by="drafters.baseline",
        target=Target.of_run(config.model_dump(), device).info(),
        drafter=records.Drafter(
            config={"kind": LOOKUP, "longest_match": LONGEST, "block_size": config.drafter.block_size}
        ),
        training=records.Training(
            status="complete", settings=settings, settings_sha256=settings_hash(settings), seeds={}, examples=0
        ),
        environment=environment(device),
    )
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    remember_prompts(folder / "checkpoints", [])
    RunWriter(folder, manifest).save()
    return f"{folder}: prompt lookup, blocks of {config.drafter.block_size}"


def make_next_token_run(config: RunConfig, folder: Path, device: str) -> str:
    """Count the corpus of ``config`` into a run; returns a line for the user."""
    refuse_several_ranks("the baseline")
    if (folder / MANIFEST).exists():
        return f"{folder}: exists already; nothing to do"
    target = Target.of_run(config.model_dump(), device)
    prompts = config.corpus.training_prompts()
    corpus = arm_corpus(config, target, prompts, "corpus")
    answers = [span for i in range(len(corpus)) for span in _answer_spans(corpus[i])]
    arm = NextTokenArm.from_answers(answers, target.vocab_size, config.drafter.block_size)
    settings = config.model_dump(mode="json", include={"target", "target_dtype", "thinking", "corpus"})
    manifest = Manifest(
        name=folder.name,
        label="most frequent next token",
        created_by="drafters.baseline",
        target=target.info(),
        drafter=records.Drafter(config={"kind": "next-token", "block_size": arm.block_size}),
        training=records.Training(
            status="complete",
            settings=settings,
            settings_sha256=settings_hash(settings),
            seeds={},
            corpus_sha256=corpus.sha256,
            prompt_set_sha256=prompt_set_hash(prompts),
            examples=len(corpus),
        ),
        environment=environment(device),
    )
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)
    tensors = {"successor": torch.from_numpy(arm.successor), "block_size": torch.tensor(arm.block_size)}
    save_file(tensors, checkpoints / NEXT_TOKEN)
    remember_prompts(checkpoints, prompts)
    RunWriter(folder, manifest).save()  # last: a folder without a manifest is no run
    return f"{folder}: counted the answers to {len(corpus)} prompts"


def _answer_spans(example: CorpusExample) -> list[np.ndarray]:
    """The supervised runs of tokens of an example; several where given answers alternate with questions."""
    places = np.flatnonzero(example.supervised.numpy())
    return [example.tokens.numpy()[run] for run in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)]


def load_next_token(path: Path) -> NextTokenArm:
    """The arm that :func:`make_next_token_run` saved."""
    tensors = load_file(path)
    return NextTokenArm(tensors["successor"].numpy(), int(tensors["block_size"]))
