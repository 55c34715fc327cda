"""One forward pass's worth of sequences with their blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from drafters.axes import DrafterConfig
from drafters.corpus.build import CorpusExample
from drafters.corpus.features import FeatureReader
from drafters.model.blocks import Blocks, make_blocks
from drafters.model.head import Head, OutputRows


@dataclass(frozen=True)
class Batch:
    """Sequences of one forward pass with their blocks: features [b, S, T, H], blocks and label rows.

    ``final`` [b, N, B - 1, H]: see :class:`~drafters.training.losses.Supervision`.
    """

    examples: list[CorpusExample]
    features: torch.Tensor
    final: torch.Tensor | None
    blocks: Blocks
    outputs: OutputRows  # of the drafter's output head
    rows: torch.Tensor  # labels as rows of it, IGNORED outside it


def collate(
    examples: Sequence[CorpusExample],
    anchors: Sequence[np.ndarray],
    config: DrafterConfig,
    head: Head,
    reader: FeatureReader,
) -> Batch:
    """Pad a batch of examples to its longest; padding lies after every anchor and is never seen."""
    blocks = make_blocks(
        [e.tokens for e in examples],
        [e.supervised.numpy() for e in examples],
        anchors,
        block_size=config.block_size,
        mask_token_id=config.mask_token_id,
    )
    # no block looks further than the last anchor of its sequence; its labels follow from the states up to its end
    ahead = config.block_size - 1 if reader.final else 0
    needed = [
        min(int(a.max()) + ahead, len(e.tokens) - 1) if len(a) else 0 for e, a in zip(examples, anchors, strict=True)
    ]
    states, final = reader.padded(examples, needed), None
    if reader.final:
        places = (blocks.anchors[..., None] + torch.arange(ahead)).clamp(max=states.shape[1] - 1)
        sequence = torch.arange(len(places))[:, None, None]
        final = states[sequence.to(states.device), places.to(states.device), reader.layers]
    outputs = head.outputs([e.tokens[: e.prompt_length].tolist() for e in examples])
    features = states[:, :, : reader.layers]
    return Batch(list(examples), features, final, blocks, outputs, outputs.rows(blocks.labels))
