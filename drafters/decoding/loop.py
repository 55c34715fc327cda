"""The decoding loop: a batch whose rows come and go, one block a step.

One step, for rows that stand at different positions: the proposer drafts a block after each anchor; the target runs
the blocks once; the leading agreements stand, the target's own next token (bonus) becomes the next anchor; caches are
cut back to what is committed. :meth:`Loop.admit` takes new rows at any time (continuous batching): their prompts run
in a pass of their own, and they join the next step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from analysis.errors import DataError
from drafters.decoding.masks import attention_mask, check_masks
from drafters.decoding.proposers import Draft, NoProposer, Proposer
from drafters.decoding.ragged import RaggedCache
from drafters.decoding.rows import Request, Row, sampled
from drafters.decoding.sampling import accept_sampled, draw
from drafters.keyed import torch_generator
from drafters.model.acceptance import StepCount, close_step
from drafters.target.frozen import Target

#: Called with a row, the step (None: the prefill) and the tokens that it added.
OnTokens = Callable[[Row, StepCount | None, list[int]], None]


@dataclass
class Seconds:
    """Where the time of a batch went; decode = draft + verify + other."""

    prefill: float = 0.0
    draft: float = 0.0
    verify: float = 0.0
    decode: float = 0.0

    @property
    def other(self) -> float:
        """Decoding time outside both models: acceptance, bookkeeping, Python."""
        return self.decode - self.draft - self.verify


class Loop:
    """Rows under way, the target's cache, the proposer.

    ``timed``: fill ``seconds``, for which the device must be waited for at every stage. Raises DataError for a target
    that cannot decode rows of different lengths.
    """

    def __init__(
        self,
        target: Target,
        proposer: Proposer | None = None,
        on_tokens: OnTokens | None = None,
        *,
        timed: bool = False,
    ):
        refuse_sliding_windows(target)
        check_masks(target)
        self.target, self.proposer, self.on_tokens = target, proposer or NoProposer(), on_tokens
        self.device, self.timed = target.device, timed
        self.rows: list[Row] = []
        self.cache = RaggedCache(target.num_layers, 0, self.device)
        self.seconds = Seconds()

    def _clock(self) -> float:
        """Seconds, after all work on the device is done; 0 if nobody reads them."""
        if not self.timed:
            return 0.0
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    @torch.inference_mode()
    def admit(self, requests: Sequence[Request]) -> list[Row]:
        """Run the prompts together and take each one's first token; returns the rows, some of them finished perhaps."""
        started = self._clock()
        new = [Row(request, torch_generator("sampling", request.key, device=self.device)) for request in requests]
        counts = [len(request.prompt) for request in requests]
        ids = torch.full((len(new), max(counts)), self.target.pad_id)
        for i, request in enumerate(requests):
            ids[i, : counts[i]] = torch.tensor(request.prompt)
        first = len(self.rows)
        rows = self.cache.rows
        self.rows += new
        rows.lengths += [0] * len(new)
        rows.begin(max(counts), first)
        # padding on the right comes after everything that causal attention lets a token see: no mask is needed
        output = self.target.forward(
            ids.to(self.device),
            layer_ids=self.proposer.layer_ids,
            position_ids=rows.positions,
            cache=self.cache,
            # logits of all positions would be far more than anything else here
            logits=torch.tensor(counts, device=self.device)[:, None] - 1,
        )
        assert output.logits is not None
        logits = output.logits[:, 0]
        tokens = logits.argmax(-1).tolist()
        for i, p in sampled(new, logits).items():
            tokens[i] = draw(p, new[i].generator)
        self.proposer.observe(output.features, counts, rows)
        rows.lengths[first:] = counts
        for row, token in zip(new, tokens, strict=True):
            self._emit(row, None, [token], row.find_stop([token], self.target.decode) is not None)
        self._drop_finished()
        self.seconds.prefill += self._clock() - started
        return new

    @torch.inference_mode()
    def step(self) -> list[Row]:
        """One block for every row: draft, verify, accept, commit; returns the rows that it finished."""
        started = self._clock()
        rows = self.cache.rows
        # as the reference does, the last block is one longer than what is left; its bonus is then cut off
        sizes = [min(self.proposer.block_size, row.room + 1) for row in self.rows]
        draft = self.proposer.propose(self.rows, sizes, rows, self.device)
        drafted = self._clock()
        width = draft.ids.shape[1]
        rows.begin(width)
        alone = len(self.rows) == 1 and width == 1
        output = self.target.forward(
            draft.ids,
            layer_ids=self.proposer.layer_ids,
            attention_mask=None if alone else attention_mask(self.target, rows.mask()),
            position_ids=rows.positions,
            cache=self.cache,
            logits="all",
        )
        assert output.logits is not None
        blocks = self._verify(draft, output.logits)
        verified = self._clock()
        counts = [self._commit(i, draft.sizes[i], block) for i, block in enumerate(blocks)]
        self.proposer.observe(output.features, counts, rows)
        rows.lengths = [length + count for length, count in zip(rows.lengths, counts, strict=True)]
        finished = self._drop_finished()
        ended = self._clock()
        self.seconds.draft += drafted - started
        self.seconds.verify += verified - drafted
        self.seconds.decode += ended - started
        return finished

    def _verify(self, draft: Draft, logits: torch.Tensor) -> list[list[int]]:
        """Of every row the drafted tokens that stand and the bonus, from logits [b, n, V]."""
        best = logits.argmax(-1)
        sizes = torch.tensor(draft.sizes, device=self.device)[:, None]
        within = torch.arange(1, best.shape[1], device=self.device) < sizes
        agreed = ((draft.ids[:, 1:] == best[:, :-1]) & within).long().cumprod(-1).sum(-1)
        bonus = best.gather(1, agreed[:, None])
        # one transfer a step: agreements, bonus and drafts together
        told = torch.cat((agreed[:, None], bonus, draft.ids[:, 1:]), dim=1).tolist()
        distributions = sampled(self.rows, logits)
        blocks = []
        for i, (row, size) in enumerate(zip(self.rows, draft.sizes, strict=True)):
            count, token = told[i][0], told[i][1]
            if (p := distributions.get(i)) is not None:
                tokens, q = draft.ids[i, 1:size], draft.q.get(i)
                certain = torch.nn.functional.one_hot(tokens, p.shape[-1]).to(p) if q is None else q
                count, token = accept_sampled(tokens, certain, p[:size], row.generator)
            blocks.append([*told[i][2 : 2 + count], token])
        return blocks

    def _commit(self, place: int, size: int, block: list[int]) -> int:
        """Enter a row's step: its tokens and counts; returns how many tokens stand."""
        row = self.rows[place]
        stop_at = row.find_stop(block, self.target.decode)
        step = close_step(
            size - 1,
            len(block) - 1,
            stop_at=stop_at,
            room=row.room,
            outside_vocabulary=not self.proposer.knows(row, block[-1]),
        )
        row.positions.append(self.cache.rows.lengths[place])
        row.steps.append(step)
        new = block[: step.emitted]
        self._emit(row, step, new, stop_at is not None and step.emitted == stop_at + 1)
        return step.emitted

    def _emit(self, row: Row, step: StepCount | None, new: list[int], stopped: bool) -> None:
        row.add(new, stopped)
        if self.on_tokens is not None:
            self.on_tokens(row, step, new)

    @torch.inference_mode()
    def remove(self, row: Row) -> None:
        """Take a row out before its end (its reader has left)."""
        if row in self.rows:
            self._drop([self.rows.index(row)])

    def _drop_finished(self) -> list[Row]:
        places = [i for i, row in enumerate(self.rows) if row.finish_reason is not None]
        finished = [self.rows[i] for i in places]
        self._drop(places)
        return finished

    def _drop(self, places: Sequence[int]) -> None:
        """Take rows out; the last row moves into each free place, and no other is copied."""
        lengths = self.cache.rows.lengths
        for place in sorted(places, reverse=True):
            last = len(self.rows) - 1
            if place != last:
                self.cache.move(last, place)
                self.proposer.move(last, place, lengths[place])
                self.rows[place] = self.rows[last]
            self.rows.pop()
            lengths.pop()


def refuse_sliding_windows(target: Target) -> None:
    """Raise DataError for a target whose layers do not all see the whole context: its cache cannot be cut back
    row by row here."""
    config = target.model.config.get_text_config()
    kinds = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None) or ()
    if odd := sorted(set(kinds) - {"full_attention", "global"}):  # GPT-Neo's name for the same
        raise DataError(
            f"target '{target.id}': decoding requires full attention in every layer; it has {', '.join(odd)}"
        )
