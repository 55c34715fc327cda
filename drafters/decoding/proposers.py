"""What proposes the tokens that the target verifies: a trained drafter, or text and counts alone.

A proposer serves one :class:`~drafters.decoding.loop.Loop` at a time: rows come, move and go with the loop's own.

* :class:`BlockProposer`: a block-diffusion drafter, one pass for all rows.
* :class:`LookupProposer`: what followed the last tokens when they occurred before, in prompt or answer
  (drafters.decoding.lookup; the ``ngram`` method of vLLM).
* :class:`NextTokenProposer`: after each token its most frequent successor in a corpus.

The last two read no hidden states: they are what a trained drafter has to beat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from drafters.decoding.lookup import LONGEST, lookup
from drafters.decoding.ragged import Rows, Store
from drafters.decoding.rows import Row, sampled
from drafters.model.drafter import Context, Drafter
from drafters.model.head import Head, OutputRows
from drafters.model.selection import Slot, likeliest, walk
from drafters.target.frozen import Target


@dataclass
class Draft:
    """A block for every row: ``ids`` int64 [b, n], the anchor in column 0; row i is verified in its first ``sizes[i]``
    columns. ``q``: for rows whose drafts were drawn, what they were drawn from, [size - 1, V]; all other drafts were
    certain."""

    ids: torch.Tensor
    sizes: list[int]
    q: dict[int, torch.Tensor] = field(default_factory=dict)


@runtime_checkable
class Proposer(Protocol):
    """Drafts for the rows of one loop; ``layer_ids``: hidden states that it reads, none for most."""

    layer_ids: tuple[int, ...]
    block_size: int

    def propose(self, rows: Sequence[Row], sizes: list[int], cache: Rows, device: torch.device) -> Draft:
        """Blocks of at most ``sizes`` tokens, the anchor counted."""
        ...

    def observe(self, features: torch.Tensor | None, counts: Sequence[int], cache: Rows) -> None:
        """The pass under way is done: ``features`` [b, n, T, H] of its rows, of which ``counts`` stand in each."""
        ...

    def move(self, source: int, into: int, length: int) -> None:
        """Row ``source`` takes the place of row ``into``, which has left."""
        ...

    def knows(self, row: Row, token: int) -> bool:
        """Whether it can propose this target id for this row."""
        ...


def fill(rows: Sequence[Row], drafts: Sequence[Sequence[int]], device: torch.device) -> Draft:
    """A Draft from tokens per row."""
    sizes = [1 + len(draft) for draft in drafts]
    width = max(sizes)
    blocks = [
        [row.tokens[-1], *draft] + [0] * (width - 1 - len(draft)) for row, draft in zip(rows, drafts, strict=True)
    ]
    return Draft(torch.tensor(blocks, dtype=torch.int64, device=device), sizes)


class _Featureless:
    """A proposer that reads tokens alone."""

    layer_ids: tuple[int, ...] = ()

    def observe(self, features: torch.Tensor | None, counts: Sequence[int], cache: Rows) -> None:
        """Nothing to keep."""

    def move(self, source: int, into: int, length: int) -> None:
        """Nothing to move."""

    def knows(self, row: Row, token: int) -> bool:
        """Every token."""
        return True


class NoProposer(_Featureless):
    """Plain decoding: a block is its anchor."""

    block_size = 1

    def propose(self, rows: Sequence[Row], sizes: list[int], cache: Rows, device: torch.device) -> Draft:
        """See :class:`Proposer`."""
        return fill(rows, [()] * len(rows), device)


class NextTokenProposer(_Featureless):
    """``successor``: int64 [vocab], the token to propose after each token."""

    def __init__(self, successor: np.ndarray, block_size: int):
        self.successor, self.block_size = successor, block_size

    def propose(self, rows: Sequence[Row], sizes: list[int], cache: Rows, device: torch.device) -> Draft:
        """See :class:`Proposer`."""
        drafts = []
        for row, size in zip(rows, sizes, strict=True):
            chain = [row.tokens[-1]]
            for _ in range(size - 1):
                chain.append(int(self.successor[chain[-1]]))
            drafts.append(chain[1:])
        return fill(rows, drafts, device)


class LookupProposer(_Featureless):
    """Prompt lookup; a row without a match is verified alone."""

    def __init__(self, block_size: int, longest: int = LONGEST):
        if block_size < 2 or longest < 1:
            raise ValueError("prompt lookup requires a block size of at least 2 and a match length of at least 1")
        self.block_size, self.longest = block_size, longest

    def propose(self, rows: Sequence[Row], sizes: list[int], cache: Rows, device: torch.device) -> Draft:
        """See :class:`Proposer`."""
        texts = ([*row.request.prompt, *row.tokens] for row in rows)
        drafts = [lookup(text, size - 1, self.longest).tolist() for text, size in zip(texts, sizes, strict=True)]
        return fill(rows, drafts, device)


class BlockProposer:
    """A block-diffusion drafter, with its projected context of every row.

    ``block_size``: at most the size that the drafter was trained for (default). ``confidence``: a block ends before the
    slot at which the product of the slots' certainties falls under it; 0 keeps all slots. A slot's certainty depends on
    the tokens before it, which stand if the slot is ever reached, and not on its own: sampled output stays the
    target's.
    Raises ValueError for a size that cannot be, or a drafter of another type than the target's.
    """

    def __init__(self, target: Target, drafter: Drafter, block_size: int | None = None, confidence: float = 0.0):
        trained = drafter.config.block_size
        self.block_size = trained if block_size is None else block_size
        if not 1 <= self.block_size <= trained:
            raise ValueError(f"block size {block_size} is not within 1..{trained}, the size trained for")
        if not 0 <= confidence < 1:
            raise ValueError(f"confidence {confidence} is not within [0, 1)")
        if drafter.dtype != target.dtype:
            raise ValueError(f"a drafter in {drafter.dtype} for a target in {target.dtype}: convert one of them")
        self.drafter, self.confidence, self.vocab_size = drafter, confidence, target.vocab_size
        self.layer_ids = drafter.config.target_layer_ids
        self.head = Head(target, drafter.config)
        vocab = drafter.config.draft_vocab
        self._vocabulary = None if vocab is None else frozenset(vocab)
        self._held: tuple[list[Row], OutputRows] | None = None
        self._context = [(Store(), Store()) for _ in range(drafter.config.num_layers)]

    def propose(self, rows: Sequence[Row], sizes: list[int], cache: Rows, device: torch.device) -> Draft:
        """See :class:`Proposer`."""
        width = max(sizes)
        ids = torch.full((len(rows), width), self.drafter.config.mask_token_id)
        ids[:, 0] = torch.tensor([row.tokens[-1] for row in rows])
        ids = ids.to(device)
        if width == 1:
            return Draft(ids, sizes)
        used = max(cache.lengths)
        context = Context(
            [k.view(len(rows), used) for k, _ in self._context], [v.view(len(rows), used) for _, v in self._context]
        )
        anchors = torch.tensor(cache.lengths, device=device)[:, None]
        slots = torch.tensor(sizes, device=device)[:, None]
        hidden = self.drafter(self.head.embed(ids)[:, None], anchors, context, slots)
        return self._choose(rows, sizes, ids, hidden[:, 0, 1:])

    def _choose(self, rows: Sequence[Row], sizes: list[int], ids: torch.Tensor, hidden: torch.Tensor) -> Draft:
        """Tokens of slots 1.. from their hidden states [b, n - 1, H], one slot after another."""
        drafter, outputs = self.drafter, self._outputs(rows)
        q = {
            i: hidden.new_zeros(sizes[i] - 1, self.vocab_size, dtype=torch.float32)
            for i, row in enumerate(rows)
            if not row.sampling.greedy and not row.sampling.greedy_draft and sizes[i] > 1
        }
        certainty: list[torch.Tensor] = []

        def choose(slot: Slot) -> torch.Tensor:
            scores = slot.candidates.scores
            if self.confidence:
                certainty.append(self._certainty(slot))
            choice = likeliest(slot)
            for i, p in sampled(rows, scores).items():
                if i in q and slot.number < len(q[i]):
                    drawn = torch.multinomial(p, 1, generator=rows[i].generator)
                    choice[i] = drawn[0]
                    of = outputs.ids if slot.candidates.rows is None else outputs.ids[slot.candidates.rows[i]]
                    q[i][slot.number].index_copy_(0, of, p)
            return choice

        block = torch.stack(
            [ids[:, 0], *walk(drafter.selection, outputs, hidden, outputs.logits(hidden), ids[:, 0], choose)], -1
        )
        if self.confidence:
            kept = (torch.stack(certainty, -1).cumprod(-1) >= self.confidence).sum(-1).tolist()
            sizes = [min(size, 1 + count) for size, count in zip(sizes, kept, strict=True)]
            q = {i: of[: sizes[i] - 1] for i, of in q.items() if sizes[i] > 1}
        return Draft(block[:, : max(sizes)], sizes, q)

    def _certainty(self, slot: Slot) -> torch.Tensor:
        """How likely the slot's token is accepted, fp32 [b]: by the drafter's confidence head, else the largest
        probability of the draft."""
        head, selection = self.drafter.confidence_head, self.drafter.selection
        if head is None:
            return slot.candidates.scores.float().softmax(-1).amax(-1)
        before = None if selection is None else selection.embedded(slot.previous)
        return head(slot.hidden, before).float().sigmoid()

    def observe(self, features: torch.Tensor | None, counts: Sequence[int], cache: Rows) -> None:
        """Project the features that stand, packed, and put them in place."""
        assert features is not None
        taken = [(row, slot) for row, count in enumerate(counts) for slot in range(count)]
        row, slot = torch.tensor(taken, device=features.device).unbind(1)
        position = cache.positions[row, slot]
        new = self.drafter.project_context(features[row, slot][None], position[None])
        for (keys, values), key, value in zip(self._context, new.keys, new.values, strict=True):
            keys.put(key[0], row, position, cache)
            values.put(value[0], row, position, cache)

    def move(self, source: int, into: int, length: int) -> None:
        """See :class:`Proposer`."""
        for stores in self._context:
            for store in stores:
                store.move(source, into, length)

    def knows(self, row: Row, token: int) -> bool:
        """See :class:`Proposer`."""
        return (
            self._vocabulary is None
            or token in self._vocabulary
            or (self.head.prompt_tokens and token in row.request.prompt)
        )

    def _outputs(self, rows: Sequence[Row]) -> OutputRows:
        """Rows of the head for these rows of the batch: with prompt_tokens, other ones as rows come and go."""
        if self._held is None or (self.head.prompt_tokens and self._held[0] != list(rows)):
            self._held = (list(rows), self.head.outputs([row.request.prompt for row in rows]))
        return self._held[1]
