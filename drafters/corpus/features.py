"""Hidden states of a corpus's examples: as they were stored with it, or as the target gives them when asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from drafters.corpus.store import CorpusExample
from drafters.target.frozen import Target


class FeatureReader:
    """Reads the context features of examples at ``layer_ids`` of ``target`` (which stored ones do not need).

    ``final``: and the target's final hidden state, as one more layer after them.
    """

    def __init__(self, target: Target, layer_ids: Sequence[int], *, final: bool = False):
        self.target, self.layers = target, len(layer_ids)
        self.layer_ids = (*layer_ids, target.final_id) if final else tuple(layer_ids)

    @property
    def final(self) -> bool:
        """Whether the final hidden state is read too."""
        return len(self.layer_ids) > self.layers

    def padded(self, examples: Sequence[CorpusExample], lengths: Sequence[int]) -> Tensor:
        """fp32 [b, S, T, H] (T + 1 with the final state) of the first ``lengths`` tokens of each example, S the longest
        (at least 1).

        What stands after an example's own length is padding, and means nothing.
        """
        width = max(1, *lengths)
        if examples[0].features is not None:
            features = torch.zeros(len(examples), width, *examples[0].features.shape[1:])
            for row, (example, length) in enumerate(zip(examples, lengths, strict=True)):
                assert example.features is not None
                features[row, :length] = example.features[:length]
            return features
        ids = torch.full((len(examples), width), self.target.pad_id)
        for row, (example, length) in enumerate(zip(examples, lengths, strict=True)):
            ids[row, :length] = example.tokens[:length]
        # padding on the right comes after everything that causal attention lets a token see: no mask is needed
        output = self.target.forward(ids.to(self.target.device), layer_ids=self.layer_ids)
        assert output.features is not None
        return output.features.to(torch.float32, copy=True)  # a copy, since what inference mode made has no gradients

    def each(self, examples: Iterable[CorpusExample]) -> Iterator[Tensor]:
        """[n - 1, T, H] of every example: all tokens but the last, which nothing looks at."""
        for example in examples:
            stored = example.features
            yield (stored if stored is not None else self.padded([example], [len(example.tokens) - 1])[0])[
                :, : self.layers
            ]
