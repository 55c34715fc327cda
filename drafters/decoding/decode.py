"""Lossless speculative decoding: :func:`decode` turns a drafter into speed, and leaves the output the target's own.

Greedy output is that of plain decoding to the token, but for near ties: a pass over a block rounds otherwise than
passes over its tokens, which in bfloat16, whose logits have 8 bits, happens every now and then (the prompts table
has the margin there).

One step, for a batch of sequences that stand at different positions: the drafter fills a block after each
anchor from the committed context features; the target runs the block once; the leading agreements stand,
the target's own next token (bonus) becomes the next anchor; caches are cut back to what is committed.
Without a drafter the same loop is plain decoding, the baseline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from analysis.errors import DataError
from drafters.decoding.masks import attention_mask, check_masks
from drafters.decoding.ragged import RaggedCache, Store
from drafters.decoding.sampling import Sampling, accept_sampled, draw
from drafters.keyed import torch_generator
from drafters.model.acceptance import StepCount, close_step
from drafters.model.blocks import IGNORED
from drafters.model.drafter import Context, Drafter
from drafters.model.head import Head
from drafters.target.frozen import Target

#: Called with a sequence's place, the step (None: the prefill) and the tokens that it added.
OnTokens = Callable[[int, StepCount | None, list[int]], None]


@dataclass(frozen=True)
class Decoded:
    """One sequence: its output tokens (the first stop token included) and what every step did.

    The first token comes from the prefill; sum(emitted) = len(tokens) - 1.
    """

    tokens: list[int]
    steps: list[StepCount]
    positions: list[int]  # of each step's anchor
    finish_reason: str  # "stop" or "length"
    text_end: int | None = None  # characters of the decoded text before a stop string, if one ended it


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


@dataclass(frozen=True)
class DecodeOutput:
    """A batch of decoded sequences, in the order of the prompts, and where the time went."""

    sequences: list[Decoded]
    seconds: Seconds


@dataclass
class _Row:
    """A sequence under way."""

    index: int
    tokens: list[int]
    generator: torch.Generator
    steps: list[StepCount] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    text_end: int | None = None


@torch.inference_mode()
def decode(
    target: Target,
    drafter: Drafter | None,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    block_size: int | None = None,
    sampling: Sampling | None = None,
    keys: Sequence[object] | None = None,
    stop_ids: frozenset[int] | None = None,
    stop_strings: Sequence[str] = (),
    on_tokens: OnTokens | None = None,
) -> DecodeOutput:
    """Decode ``prompts`` (token ids) to at most ``max_new_tokens`` each.

    ``block_size``: at most the size that the drafter was trained for (default). ``keys``: what the random
    draws of each sequence are keyed by (default: its place); a sequence's draws do not depend on its batch, but on the
    kind of device, where they are made.
    ``stop_ids``: default the target's. ``on_tokens(index, step, tokens)`` hears of every new run of tokens, the
    prefill's (step None) first. Raises ValueError for empty prompts, a block size that cannot be, or a drafter of
    another type than the target's.
    """
    loop = _Loop(target, drafter, prompts, max_new_tokens, block_size, sampling or Sampling(), keys)
    loop.stop_ids = target.stop_ids if stop_ids is None else stop_ids
    loop.stop_strings, loop.on_tokens = stop_strings, on_tokens
    loop.prefill()
    started = loop.clock()
    while loop.rows:
        loop.step()
    loop.seconds.decode = loop.clock() - started
    done = sorted(loop.done, key=lambda row: row.index)
    sequences = [Decoded(r.tokens, r.steps, r.positions, r.finish_reason or "length", r.text_end) for r in done]
    return DecodeOutput(sequences, loop.seconds)


class _Loop:
    """The state of a batch: rows under way, the target's cache, the drafter's context."""

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        block_size: int | None,
        sampling: Sampling,
        keys: Sequence[object] | None,
    ):
        if not prompts or not all(prompts) or max_new_tokens < 1:
            raise ValueError("decoding needs prompts of at least one token, and room for one")
        trained = drafter.config.block_size if drafter else 1
        self.block_size = trained if block_size is None else block_size
        if not 1 <= self.block_size <= trained:
            raise ValueError(f"block size {block_size} is not within 1..{trained}, the size trained for")
        if drafter is not None and drafter.dtype != target.dtype:
            raise ValueError(f"a drafter in {drafter.dtype} for a target in {target.dtype}: cast it")
        refuse_sliding_windows(target)
        check_masks(target)
        self.target, self.drafter, self.sampling = target, drafter, sampling
        self.prompts, self.room = prompts, max_new_tokens
        self.device = target.device
        self.head = Head(target, drafter.config) if drafter else None
        self.outputs = self.head.outputs(prompts) if self.head else None  # of the rows under way
        self.layer_ids = drafter.config.target_layer_ids if drafter else ()
        named = keys if keys is not None else range(len(prompts))
        self.rows = [_Row(i, [], torch_generator("sampling", key, device=self.device)) for i, key in enumerate(named)]
        self.done: list[_Row] = []
        self.cache = RaggedCache(target.num_layers, len(prompts), self.device)
        depth = drafter.config.num_layers if drafter else 0
        self.context = [(Store(), Store()) for _ in range(depth)]
        self.seconds = Seconds()
        self.stop_ids: frozenset[int] = target.stop_ids
        self.stop_strings: Sequence[str] = ()
        self.on_tokens: OnTokens | None = None

    def clock(self) -> float:
        """Seconds, after all work on the device is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def prefill(self) -> None:
        """Run the prompts, take each sequence's first token, and project the prompts' features."""
        started = self.clock()
        lengths = torch.tensor([len(p) for p in self.prompts], device=self.device)
        width = int(lengths.max())
        ids = torch.full((len(self.prompts), width), self.target.pad_id)
        for row, prompt in enumerate(self.prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt)
        self.cache.rows.begin(width)
        # padding on the right comes after everything that causal attention lets a token see: no mask is needed
        output = self.target.forward(
            ids.to(self.device),
            layer_ids=self.layer_ids,
            position_ids=self.cache.rows.positions,
            cache=self.cache,
            logits=lengths[:, None] - 1,  # logits of all positions would be far more than anything else here
        )
        assert output.logits is not None
        logits = output.logits[:, 0]
        if self.sampling.greedy:
            first = logits.argmax(-1).tolist()
        else:
            p = self.sampling.probabilities(logits)
            first = [draw(p[i], row.generator) for i, row in enumerate(self.rows)]
        self._project(output.features, lengths)
        self.cache.rows.lengths = lengths
        for begun, token in zip(self.rows, first, strict=True):
            self._emit(begun, None, [token])
        self._drop_finished()
        self.seconds.prefill = self.clock() - started

    def step(self) -> None:
        """One block for every sequence: draft, verify, accept, commit."""
        lengths = self.cache.rows.lengths
        # as the reference does, the last block is one longer than what is left; its bonus is then cut off
        sizes = [min(self.block_size, self.room - len(row.tokens) + 1) for row in self.rows]
        width = max(sizes)
        block = torch.empty(len(self.rows), width, dtype=torch.int64, device=self.device)
        block[:, 0] = torch.tensor([row.tokens[-1] for row in self.rows], device=self.device)
        started = self.clock()
        q = None
        if width > 1:
            q = self._draft(block, sizes)
        drafted = self.clock()
        self.cache.rows.begin(width)
        alone = len(self.rows) == 1 and width == 1
        output = self.target.forward(
            block,
            layer_ids=self.layer_ids,
            attention_mask=None if alone else attention_mask(self.target, self.cache.rows.mask()),
            position_ids=self.cache.rows.positions,
            cache=self.cache,
            logits="all",
        )
        assert output.logits is not None
        agreed, bonus = self._verify(block, q, output.logits, sizes)
        verified = self.clock()
        self.seconds.draft += drafted - started
        self.seconds.verify += verified - drafted
        self._commit(block, sizes, agreed, bonus, lengths, output.features)

    def _draft(self, block: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor | None:
        """Fill slots 1.. of ``block`` in place; returns q [b, n-1, V] where drafts are sampled."""
        assert self.drafter is not None and self.head is not None
        ids = block.clone()
        ids[:, 1:] = self.drafter.config.mask_token_id
        used = int(self.cache.rows.lengths.max())
        context = Context([k.view(used) for k, _ in self.context], [v.view(used) for _, v in self.context])
        hidden = self.drafter(
            self.head.embed(ids)[:, None],
            self.cache.rows.lengths[:, None],
            context,
            torch.tensor(sizes, device=self.device)[:, None],
        )
        assert self.outputs is not None
        logits, vocabulary = self.outputs.logits(hidden[:, 0, 1:]), self.outputs.ids
        if self.sampling.greedy or self.sampling.greedy_draft:
            block[:, 1:] = vocabulary[logits.argmax(-1)]
            return None
        narrow = self.sampling.probabilities(logits)
        for i, (row, size) in enumerate(zip(self.rows, sizes, strict=True)):
            block[i, 1:] = ids[i, 1:]  # slots past the row's own size draw nothing: its draws are its own
            if size > 1:
                picks = torch.multinomial(narrow[i, : size - 1], 1, generator=row.generator)[:, 0]
                block[i, 1:size] = vocabulary[picks]
        q = narrow.new_zeros(*narrow.shape[:-1], self.target.vocab_size)
        return q.index_copy(-1, vocabulary, narrow)

    def _verify(
        self, block: torch.Tensor, q: torch.Tensor | None, logits: torch.Tensor, sizes: Sequence[int]
    ) -> tuple[list[int], list[int]]:
        """Leading agreements and bonus token of every row, from logits [b, n, V]."""
        if self.sampling.greedy:
            best = logits.argmax(-1)
            within = (
                torch.arange(1, block.shape[1], device=self.device) < torch.tensor(sizes, device=self.device)[:, None]
            )
            agreed = ((block[:, 1:] == best[:, :-1]) & within).long().cumprod(-1).sum(-1)
            bonus = best.gather(1, agreed[:, None])[:, 0]
            return agreed.tolist(), bonus.tolist()
        p = self.sampling.probabilities(logits)
        results = []
        for i, (row, size) in enumerate(zip(self.rows, sizes, strict=True)):
            draft = block[i, 1:size]
            if q is None:
                certain = torch.nn.functional.one_hot(draft, p.shape[-1]).to(p) if size > 1 else p[i, :0]
            else:
                certain = q[i, : size - 1]
            results.append(accept_sampled(draft, certain, p[i, :size], row.generator))
        return [a for a, _ in results], [b for _, b in results]

    def _commit(
        self,
        block: torch.Tensor,
        sizes: Sequence[int],
        agreed: Sequence[int],
        bonus: Sequence[int],
        lengths: torch.Tensor,
        features: torch.Tensor | None,
    ) -> None:
        """Enter what stands: tokens, counts, context features, cache lengths."""
        added = []
        drafts, starts = block[:, 1:].tolist(), lengths.tolist()
        known = [True] * len(bonus)
        if self.outputs is not None:
            known = (self.outputs.rows(torch.tensor(bonus)[:, None]) != IGNORED)[:, 0].tolist()
        zipped = zip(self.rows, drafts, sizes, agreed, bonus, starts, known, strict=True)
        for row, draft, size, count, token, start, drafted in zipped:
            new = [*draft[:count], token]
            stop_at = self._find_stop(row, new)
            step = close_step(
                size - 1,
                count,
                stop_at=stop_at,
                room=self.room - len(row.tokens),
                outside_vocabulary=not drafted,
            )
            row.positions.append(start)
            row.steps.append(step)
            self._emit(row, step, new[: step.emitted])
            added.append(step.emitted)
        taken = torch.tensor(added, device=self.device)
        self._project(features, taken)
        self.cache.rows.lengths = lengths + taken
        self._drop_finished()

    def _find_stop(self, row: _Row, new: Sequence[int]) -> int | None:
        """How many of the ``new`` tokens come before the one that ends the sequence, if one does."""
        for i, token in enumerate(new):
            if token in self.stop_ids or self._text_end(row.tokens + list(new[: i + 1])) is not None:
                return i
        return None

    def _text_end(self, tokens: Sequence[int]) -> int | None:
        """Characters before the first stop string in the text of ``tokens``, if there is one."""
        if not self.stop_strings:
            return None
        text = self.target.decode(tokens)
        found = [at for s in self.stop_strings if (at := text.find(s)) >= 0]
        return min(found, default=None)

    def _emit(self, row: _Row, step: StepCount | None, new: list[int]) -> None:
        row.tokens += new
        row.text_end = self._text_end(row.tokens)
        if new[-1] in self.stop_ids or row.text_end is not None:
            row.finish_reason = "stop"
        elif len(row.tokens) >= self.room:
            row.finish_reason = "length"
        if self.on_tokens is not None:
            self.on_tokens(row.index, step, new)

    def _project(self, features: torch.Tensor | None, counts: torch.Tensor) -> None:
        """Project the features of the first ``counts`` [b] tokens of a pass, packed, and put them in place."""
        if self.drafter is None or features is None:
            return
        taken = torch.arange(features.shape[1], device=self.device) < counts[:, None]
        row, slot = taken.nonzero(as_tuple=True)
        position = self.cache.rows.positions[row, slot]
        new = self.drafter.project_context(features[row, slot][None], position[None])
        for (keys, values), key, value in zip(self.context, new.keys, new.values, strict=True):
            keys.put(key[0], row, position, self.cache.rows)
            values.put(value[0], row, position, self.cache.rows)

    def _drop_finished(self) -> None:
        going = [i for i, row in enumerate(self.rows) if row.finish_reason is None]
        if len(going) == len(self.rows):
            return
        self.done += [row for row in self.rows if row.finish_reason is not None]
        self.rows = [self.rows[i] for i in going]
        kept = torch.tensor(going, dtype=torch.int64, device=self.device)
        self.cache.select(kept)
        if self.head is not None and self.rows:
            self.outputs = self.head.outputs([self.prompts[row.index] for row in self.rows])
        for keys, values in self.context:
            keys.select(kept)
            values.select(kept)


def refuse_sliding_windows(target: Target) -> None:
    """Raise DataError for a target whose layers do not all see the whole context: its cache cannot be cut back
    row by row here."""
    config = target.model.config.get_text_config()
    kinds = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None) or ()
    if odd := sorted(set(kinds) - {"full_attention", "global"}):  # GPT-Neo's name for the same
        raise DataError(f"target '{target.id}': decoding needs full attention in every layer; it has {', '.join(odd)}")
