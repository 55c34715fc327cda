"""A trained drafter with prompt lookup in front of it: text that recurs is copied, the rest is drafted.

Where the last tokens occurred before, what followed them then is the draft (drafters.decoding.lookup); elsewhere, the
drafter's block. Which of the two a step verifies depends on the tokens before it alone, so sampled output stays the
target's. A step that copies needs no pass of the drafter.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from drafters.decoding.lookup import lookup
from drafters.decoding.proposers import Draft, Proposer, fill
from drafters.decoding.ragged import Rows
from drafters.decoding.rows import Row

#: Tokens that must recur before a copy is preferred to the drafter, and most that are looked for; the trial is in
#: docs/recipe.md.
LEAST, LONGEST = 2, 8


class LookupFirst:
    """``drafter`` with prompt lookup in front; see the module's description."""

    def __init__(self, drafter: Proposer, least: int = LEAST, longest: int = LONGEST):
        self.drafter, self.least, self.longest = drafter, least, longest
        self.layer_ids, self.block_size = drafter.layer_ids, drafter.block_size

    def propose(self, rows: Sequence[Row], sizes: list[int], cache: Rows, device: torch.device) -> Draft:
        """See :class:`~drafters.decoding.proposers.Proposer`."""
        texts = ([*row.request.prompt, *row.tokens] for row in rows)
        copies = [
            lookup(text, size - 1, self.longest, self.least).tolist() for text, size in zip(texts, sizes, strict=True)
        ]
        copied = fill(rows, copies, device)
        left = [1 if copy else size for copy, size in zip(copies, sizes, strict=True)]
        drafted = self.drafter.propose(rows, left, cache, device)
        chosen = [c if copy else d for copy, c, d in zip(copies, copied.sizes, drafted.sizes, strict=True)]
        width = max(chosen)
        copy_ids, draft_ids = (F.pad(of.ids, (0, width))[:, :width] for of in (copied, drafted))
        copies_stand = torch.tensor([bool(copy) for copy in copies], device=device)[:, None]
        return Draft(torch.where(copies_stand, copy_ids, draft_ids), chosen, drafted.q)

    def observe(self, features: torch.Tensor | None, counts: Sequence[int], cache: Rows) -> None:
        """See :class:`~drafters.decoding.proposers.Proposer`."""
        self.drafter.observe(features, counts, cache)

    def move(self, source: int, into: int, length: int) -> None:
        """See :class:`~drafters.decoding.proposers.Proposer`."""
        self.drafter.move(source, into, length)

    def knows(self, row: Row, token: int) -> bool:
        """Every token: any may recur."""
        return True
