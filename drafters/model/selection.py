"""Choosing a block's tokens one after another, each given the token chosen before it.

The draft layers give every slot its own distribution. Where two continuations are likely, slots chosen alone mix them.
A selection corrects a slot's scores by the token before it, at the price of a walk over the slots that runs no layer:

* :class:`PathSelector` (DFlash2, August 2026): the K likeliest tokens of a slot are scored anew by a bilinear form of
  the token before, the slot's hidden state and the candidate.
* :class:`MarkovHead` (DSpark, DeepSpec 2026): a low-rank table of successors is added to the logits, as it is
  (``markov``) or scaled by the hidden state (``markov_gated``).

Both start as nothing: the drafter is then the plain one. With a draft vocabulary the tables have its rows alone, and a
token outside it corrects nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from drafters.axes import DrafterConfig
from drafters.model.head import OutputRows


@dataclass(frozen=True)
class Candidates:
    """What a slot may hold: ``scores`` [..., C] and the head's ``rows`` int64 [..., C]; None: all rows, in order."""

    scores: torch.Tensor
    rows: torch.Tensor | None

    def row(self, choice: torch.Tensor) -> torch.Tensor:
        """The head's row of a choice int64 [...] among the candidates."""
        return choice if self.rows is None else self.rows.gather(-1, choice[..., None])[..., 0]


class Selection(nn.Module):
    """A correction of a slot's scores by the token before it."""

    row_of: torch.Tensor

    def __init__(self, config: DrafterConfig):
        super().__init__()
        vocabulary = config.draft_vocab
        self.size = config.vocab_size if vocabulary is None else len(vocabulary)
        row_of = torch.arange(config.vocab_size)
        if vocabulary is not None:
            row_of.fill_(self.size)
            row_of[list(vocabulary)] = torch.arange(self.size)
        self.register_buffer("row_of", row_of, persistent=False)

    def candidates(self, hidden: torch.Tensor, logits: torch.Tensor, previous: torch.Tensor) -> Candidates:
        """Of slots with hidden states [..., H] and logits [..., V'], after the tokens ``previous``, int64 [...]."""
        raise NotImplementedError

    def embedded(self, previous: torch.Tensor) -> torch.Tensor:
        """Vectors [..., r] of the tokens before: the first factor of the correction."""
        raise NotImplementedError

    def lookup(self, table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Rows of ``table`` [size, r]; 0 for those beyond it, which are tokens outside the draft vocabulary."""
        found = table[rows.clamp(max=self.size - 1)]
        return found * (rows < self.size)[..., None].to(found.dtype)


class PathSelector(Selection):
    """S(p, c) = logit(c) + <A[p] * (W h), B[c]> over the K likeliest candidates c of a slot, after the token p."""

    def __init__(self, config: DrafterConfig):
        super().__init__(config)
        self.top_k = min(config.selection_top_k, self.size)
        self.predecessor_codebook = nn.Parameter(torch.zeros(self.size, config.selection_rank))
        self.successor_codebook = nn.Parameter(torch.zeros(self.size, config.selection_rank))
        self.hidden_projection = nn.Linear(config.hidden_size, config.selection_rank, bias=False)

    def embedded(self, previous: torch.Tensor) -> torch.Tensor:
        """See :class:`Selection`."""
        return self.lookup(self.predecessor_codebook, self.row_of[previous])

    def candidates(self, hidden: torch.Tensor, logits: torch.Tensor, previous: torch.Tensor) -> Candidates:
        """See :class:`Selection`."""
        return self.score(hidden, logits, previous, logits.topk(self.top_k, dim=-1).indices)

    def score(
        self, hidden: torch.Tensor, logits: torch.Tensor, previous: torch.Tensor, rows: torch.Tensor
    ) -> Candidates:
        """S of the candidates ``rows``, int64 [..., K]."""
        context = self.embedded(previous) * self.hidden_projection(hidden)
        transition = (context[..., None, :] * self.lookup(self.successor_codebook, rows)).sum(-1)
        return Candidates(logits.gather(-1, rows) + transition.to(logits.dtype), rows)


class MarkovHead(Selection):
    """logits + W2 (g * W1[p]) after the token p; g is 1, or sigmoid(G [h; W1[p]] + b)."""

    def __init__(self, config: DrafterConfig):
        super().__init__(config)
        rank = config.selection_rank
        self.markov_w1 = nn.Embedding(self.size, rank)
        self.markov_w2 = nn.Linear(rank, self.size, bias=False)
        nn.init.zeros_(self.markov_w2.weight)
        self.gated = config.selection == "markov_gated"
        if self.gated:
            self.gate_proj = nn.Linear(config.hidden_size + rank, rank)
            nn.init.zeros_(self.gate_proj.bias)

    def embedded(self, previous: torch.Tensor) -> torch.Tensor:
        """See :class:`Selection`."""
        return self.lookup(self.markov_w1.weight, self.row_of[previous])

    def candidates(self, hidden: torch.Tensor, logits: torch.Tensor, previous: torch.Tensor) -> Candidates:
        """See :class:`Selection`."""
        before = self.embedded(previous)
        if self.gated:
            before = before * self.gate_proj(torch.cat((hidden.to(before.dtype), before), -1)).sigmoid()
        bias = self.markov_w2(before)
        beyond = logits.shape[-1] - self.size  # tokens of a prompt, which the table does not have
        return Candidates(logits + nn.functional.pad(bias, (0, beyond)).to(logits.dtype), None)


#: By the name that a configuration gives: where the published checkpoints keep it, and what it is.
SELECTIONS: dict[str, tuple[str, type[PathSelector] | type[MarkovHead]]] = {
    "path": ("candidate_selector", PathSelector),
    "markov": ("markov_head", MarkovHead),
    "markov_gated": ("markov_head", MarkovHead),
}


@dataclass(frozen=True)
class Slot:
    """A step of the walk: the candidates of all blocks at one slot, and the tokens before it, int64 [...]."""

    number: int
    hidden: torch.Tensor
    candidates: Candidates
    previous: torch.Tensor


def likeliest(slot: Slot) -> torch.Tensor:
    """The choice of greedy drafting."""
    return slot.candidates.scores.argmax(-1)


def walk(
    selection: Selection | None,
    outputs: OutputRows,
    hidden: torch.Tensor,
    logits: torch.Tensor,
    first: torch.Tensor,
    choose: Callable[[Slot], torch.Tensor] = likeliest,
) -> Iterator[torch.Tensor]:
    """Token ids, int64 [...], of one slot of all blocks after another.

    ``hidden`` [b, ..., S, H] of slots 1 to S, with their ``logits`` over the rows of ``outputs``; ``first`` int64
    [b, ...]: the anchors' tokens; ``choose`` picks among a slot's candidates.
    """
    previous = first
    for number in range(hidden.shape[-2]):
        state, scores = hidden[..., number, :], logits[..., number, :]
        found = selection.candidates(state, scores, previous) if selection else Candidates(scores, None)
        previous = outputs.ids[found.row(choose(Slot(number, state, found, previous)))]
        yield previous
