"""The corpora of an arm: the answers that it is trained on, and held-out ones for its validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.errors import DataError
from analysis.runlog.manifest import Manifest
from drafters.config import RunConfig
from drafters.corpus.answers import asked_of, read_answers
from drafters.corpus.build import Corpus, build_corpus
from drafters.progress import progress
from drafters.prompts.sources import Prompt, load_prompts, remove_overlap
from drafters.target.frozen import Target
from drafters.target.layers import check_layer_ids, default_layer_ids

#: Settings of targets whose logits are more than the output head times the final state, with their neutral value.
_SCALED = {"final_logit_softcapping": None, "logit_scale": 1.0, "logits_scaling": 1.0}


def require_plain_logits(target: Target) -> None:
    """Raise DataError for a target whose logits are scaled or capped: its distributions cannot be had from its final
    state alone, which distillation and the confidence head read."""
    config = target.model.config.get_text_config()
    if scaled := [n for n, neutral in _SCALED.items() if (getattr(config, n, None) or neutral) != neutral]:
        raise DataError(
            f"target '{target.id}' has {scaled[0]} {getattr(config, scaled[0])}: loss.distill and confidence: head are "
            "for targets whose logits are the output head times the final state"
        )


def arm_corpus(
    config: RunConfig, target: Target, prompts: Sequence[Prompt], what: str, changes: dict[str, Any] | None = None
) -> Corpus:
    """The answers to ``prompts`` with an arm's corpus settings and ``changes`` to them, built or found."""
    layers = config.drafter.target_layers
    layer_ids = default_layer_ids(target.num_layers, layers) if isinstance(layers, int) else layers
    settings = config.corpus.model_copy(update=changes or {})
    check_layer_ids(layer_ids, target.num_layers)  # before hours of answers
    if config.reads_final_state:
        require_plain_logits(target)
    if settings.features == "online":
        layer_ids = ()
    elif config.reads_final_state:
        layer_ids = (*layer_ids, target.final_id)
    answers = None
    if settings.answers is not None:
        answers = read_answers(settings.answers, asked_of(target, settings.max_new_tokens))
    with progress(f"{what} of {config.name}", len(prompts)) as tick:
        return build_corpus(
            target,
            list(prompts),
            layer_ids=layer_ids,
            max_new_tokens=settings.max_new_tokens,
            batch_size=settings.batch_size,
            max_length=settings.max_length,
            dtype=settings.feature_dtype,
            given_answers=settings.given_answers,
            answers=answers,
            progress=lambda done, total, seconds: tick(done, ""),
        )


def validation_corpora(
    config: RunConfig, target: Target, training: Sequence[Prompt], manifest: Manifest
) -> dict[str, Corpus]:
    """History column -> held-out corpus; prompts that training has too are removed, and that is noted."""
    corpora = {}
    for column, sources in (
        ("val_accepted_length", config.validation.seen),
        ("val_unseen_accepted_length", config.validation.unseen),
    ):
        if not sources:
            continue
        overlap = remove_overlap(load_prompts(sources), training)
        if removed := len(overlap.same_prompt) + len(overlap.same_original):
            caveat = f"{column}: {removed} validation prompts are training prompts, and were left out"
            manifest.caveats += [caveat] if caveat not in manifest.caveats else []  # a resumed training has it
        # as in the prefix protocol: one block of the target's own answer, whatever answers training has
        settings = {"max_new_tokens": config.drafter.block_size, "given_answers": False, "answers": None}
        corpora[column] = arm_corpus(config, target, overlap.kept, "validation", settings)
    return corpora
