"""The numbers on which the cost of a training step depends."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from drafters.axes import DrafterConfig
from drafters.config import RunConfig
from drafters.model.drafter import Drafter
from drafters.target.shapes import count_parameters, target_config
from drafters.training.group import shares
from drafters.training.losses import LOGIT_ROWS


@dataclass(frozen=True)
class Sizes:
    """Parameters: of the drafter, of its matrices that autocast copies, and of the frozen target with its input
    embedding and output head (0 where it is tied to the embedding)."""

    drafter: dict[str, int]  # by item, with ``total``
    matrices: int
    target: int
    embedding: int
    head: int


@dataclass(frozen=True)
class StepShape:
    """One forward pass of one rank: b sequences of ``length`` tokens, N blocks of B slots each.

    ``vocabulary``: rows of the output head that the drafter predicts.
    """

    batch: int
    length: int
    blocks: int
    block_size: int
    vocabulary: int
    micro_batches: int  # of a rank in an optimizer step
    ranks: int

    @property
    def rows(self) -> int:
        """Context tokens; the last token is never read."""
        return self.batch * (self.length - 1)

    @property
    def slots(self) -> int:
        """Tokens that the draft layers process."""
        return self.batch * self.blocks * self.block_size

    @property
    def supervised(self) -> int:
        """Slots with a loss, at most."""
        return self.batch * self.blocks * (self.block_size - 1)

    @property
    def piece(self) -> int:
        """Slots whose logits exist at once."""
        return min(self.supervised, LOGIT_ROWS)


def drafter_on_meta(config: DrafterConfig) -> Drafter:
    """The drafter without storage."""
    with torch.device("meta"):
        return Drafter(config)


def sizes(reference: str, config: DrafterConfig) -> Sizes:
    """Of a target and a drafter. Raises DataError for a target whose shapes are not known offline."""
    drafter, target = drafter_on_meta(config), target_config(reference)
    linears = [module.weight.numel() for module in drafter.modules() if isinstance(module, nn.Linear)]
    table = config.vocab_size * config.hidden_size
    return Sizes(
        drafter=drafter.parameter_counts(),
        matrices=sum(linears),
        target=count_parameters(target),
        embedding=table,
        head=0 if target.tie_word_embeddings else table,
    )


def step_shape(config: RunConfig, vocab_size: int, prompt_tokens: int, answer_tokens: int, ranks: int) -> StepShape:
    """Of examples of so many tokens, cut at ``corpus.max_length``; an anchor needs an answer's token after it."""
    length = min(config.corpus.max_length, prompt_tokens + answer_tokens)
    answer = max(2, length - prompt_tokens)
    vocabulary = config.drafter.draft_vocab or vocab_size
    return StepShape(
        batch=config.training.batch,
        length=length,
        blocks=min(config.training.anchors, answer - 1),
        block_size=config.drafter.block_size,
        vocabulary=vocabulary,
        micro_batches=shares(config.training.accumulate, ranks),
        ranks=ranks,
    )
