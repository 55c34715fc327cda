"""One optimizer step at a time: data in a fixed order, blocks, loss, AdamW, history.

Everything random is keyed by names (drafters.keyed), so a step depends on the configuration, the corpus and
the step number alone. The gradient of a step is sum(w CE) / sum(w) over all its micro-batches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from drafters.checkpoints.folder import load_drafter, load_training_state, save_training_state
from drafters.config import DrafterConfig, RunConfig
from drafters.corpus.build import Corpus, CorpusExample
from drafters.corpus.features import FeatureReader
from drafters.keyed import permutation
from drafters.model.acceptance import count_first_block
from drafters.model.blocks import Blocks, DataHash, make_blocks, sample_anchors
from drafters.model.drafter import Drafter
from drafters.model.fusion import ConcatFusion
from drafters.model.head import Head, OutputRows
from drafters.target.frozen import Target
from drafters.training.losses import BlockLoss, Weights, block_loss, step_weights
from drafters.training.warm_start import warm_start

NORM_EXAMPLES = 64  # of the corpus, for the typical norms of the target's states


def learning_rate(step: int, steps: int, peak: float, warmup: float) -> float:
    """Linear warm-up over ``warmup`` of the steps to ``peak``, then cosine to 0; ``step`` from 0."""
    rising = round(warmup * steps)
    if step < rising:
        return peak * (step + 1) / rising
    return peak * 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))


def native_precision(device: str) -> str:
    """``bfloat16`` where the device multiplies it natively and so faster, else ``float32``.

    A CPU without AVX512-BF16 or AMX emulates it, several times slower than float32.
    """
    kind = torch.device(device).type
    if kind == "cpu":
        native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    else:
        native = kind == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if native else "float32"


@dataclass(frozen=True)
class Batch:
    """Sequences of one forward pass with their blocks: features [b, S, T, H], blocks and label rows."""

    examples: list[CorpusExample]
    features: torch.Tensor
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
    # no block looks further than the last anchor of its sequence
    needed = [int(a.max()) if len(a) else 0 for a in anchors]
    outputs = head.outputs([e.tokens[: e.prompt_length].tolist() for e in examples])
    return Batch(list(examples), reader.padded(examples, needed), blocks, outputs, outputs.rows(blocks.labels))


class Trainer:
    """Trains one drafter on a corpus; state is the step, the weights, the moments and the data hash.

    ``precision``: of the matrix products (``bfloat16`` or ``float32``); weights, moments and sums are float32.
    """

    def __init__(
        self,
        config: RunConfig,
        drafter_config: DrafterConfig,
        corpus: Corpus,
        target: Target,
        device: str,
        precision: str = "float32",
    ):
        self.config, self.corpus, self.device = config, corpus, torch.device(device)
        self.mixed = precision == "bfloat16"
        settings = config.training
        self.drafter = Drafter(drafter_config).initialise(config.seeds.init)
        self.reader = FeatureReader(target, drafter_config.target_layer_ids)
        if settings.projection_init == "basis":
            fusion = self.drafter.fusion
            assert isinstance(fusion, ConcatFusion)
            fusion.keep_basis(self._typical_norms())
        if settings.init_from:
            warm_start(self.drafter, load_drafter(settings.init_from))
        self.drafter.to(self.device)
        self.head = Head(target, drafter_config, None if self.mixed else torch.float32)
        self.optimizer = torch.optim.AdamW(
            self.drafter.parameters(),
            lr=settings.lr,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            fused=True,  # one pass over weights and moments instead of a dozen
        )
        self.per_step = settings.batch * settings.accumulate
        self.total_examples = (
            settings.steps * self.per_step if settings.steps is not None else settings.epochs * len(corpus)
        )
        self.steps = math.ceil(self.total_examples / self.per_step)
        self.step = 0
        self.hash = DataHash()
        self.history: list[dict[str, Any]] = []
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, dtype=np.int64))

    def train_step(self) -> dict[str, Any]:
        """One optimizer step; returns its history row (validation columns not yet filled)."""
        started = time.perf_counter()
        settings = self.config.training
        lr = learning_rate(self.step, self.steps, settings.lr, settings.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.drafter.train()
        self.optimizer.zero_grad(set_to_none=True)
        gamma, weights = self._weights()
        losses: list[BlockLoss] = []
        examples = tokens = 0
        for batch in self._micro_batches():
            loss = self._forward(batch, weights)
            loss.numerator.backward()
            losses.append(loss)
            examples += len(batch.examples)
            tokens += sum(len(e.tokens) for e in batch.examples)
        denominator = float(sum(loss.denominator for loss in losses))
        norm = math.nan
        if denominator > 0:
            for parameter in self.drafter.parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(denominator)
            norm = float(torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), settings.clip))
            self.optimizer.step()
        self.step += 1
        row = {
            "step": self.step,
            "epoch": self._order[0],
            "examples": examples,
            "tokens": tokens,
            "lr": lr,
            "gamma": gamma,
            "grad_norm": None if math.isnan(norm) else norm,
            "data_hash": self.hash.state,
            **_summarise(losses, denominator),
            "seconds": time.perf_counter() - started,
        }
        self.history.append(row)
        return row

    @torch.no_grad()
    def validate(self, corpus: Corpus, batch: int = 16) -> float:
        """Mean accepted length after the first answer token of a held-out corpus, counted as the ``prefix`` protocol
        counts it: answers of one token, which the corpus leaves out, are accepted lengths of 1."""
        self.drafter.eval()
        total = prompts = corpus.short_answers
        size = self.drafter.config.block_size
        for start in range(0, len(corpus), batch):
            examples = [corpus[i] for i in range(start, min(start + batch, len(corpus)))]
            places = [np.array([e.prompt_length]) for e in examples]
            collated = collate(examples, places, self.drafter.config, self.head, self.reader)
            with self._autocast():
                logits = collated.outputs.logits(self._hidden(collated)[:, 0])
            drafts = collated.outputs.ids[logits.argmax(-1)].tolist()
            for example, draft in zip(examples, drafts, strict=True):
                answer = example.tokens[example.prompt_length :][:size].tolist()
                total += count_first_block(draft, answer, self.reader.target.stop_ids).emitted
            prompts += len(examples)
        return total / prompts

    def save(self, folder: Path) -> None:
        """Write the state of this step to ``folder``, whole or not at all."""
        save_training_state(folder, self.drafter, self.optimizer, {"step": self.step, "data_hash": self.hash.state})

    def restore(self, folder: Path, history: list[dict[str, Any]]) -> None:
        """Go back to a saved state; ``history`` may run past it and is cut there."""
        state = load_training_state(folder, self.drafter, self.optimizer)
        self.step, self.hash = state["step"], DataHash(state["data_hash"])
        self.history = [row for row in history if row["step"] <= self.step]

    def _typical_norms(self) -> torch.Tensor:
        """Norms of the target's states, fp32 [T]: means over the tokens of the corpus's first examples."""
        examples = (self.corpus[i] for i in range(min(NORM_EXAMPLES, len(self.corpus))))
        norms = [features.float().norm(dim=-1) for features in self.reader.each(examples)]
        return torch.cat(norms).mean(0).cpu()

    def _micro_batches(self) -> Iterator[Batch]:
        """The batches of the current step, examples in the order of their epoch's permutation."""
        first = self.step * self.per_step
        last = min(first + self.per_step, self.total_examples)
        size = self.config.training.batch
        for start in range(first, last, size):
            places = [self._locate(i) for i in range(start, min(start + size, last))]
            examples = [self.corpus[index] for _, index in places]
            anchors = [
                sample_anchors(
                    example.supervised.numpy(),
                    self.config.training.anchors,
                    self.config.seeds.anchors,
                    epoch,
                    example.example_id,
                )
                for (epoch, _), example in zip(places, examples, strict=True)
            ]
            batch = collate(examples, anchors, self.drafter.config, self.head, self.reader)
            for example, chosen, labels in zip(examples, anchors, batch.blocks.labels.numpy(), strict=True):
                self.hash.update(example.example_id, chosen, labels[: len(chosen)])
            yield batch

    def _locate(self, position: int) -> tuple[int, int]:
        """(epoch, corpus index) of the position-th example of the whole training."""
        epoch, place = divmod(position, len(self.corpus))
        if self._order[0] != epoch:
            self._order = (epoch, permutation(len(self.corpus), "order", self.config.seeds.data, epoch))
        return epoch, int(self._order[1][place])

    def _weights(self) -> tuple[float | None, Weights]:
        """gamma and the loss weights of the current step."""
        return step_weights(self.config.loss, self.drafter.config.block_size, self.step, self.steps)

    def _forward(self, batch: Batch, weights: Weights) -> BlockLoss:
        device, blocks = self.device, batch.blocks
        at_risk = blocks.at_risk(self.reader.target.stop_ids)
        with self._autocast():
            labels, real = batch.rows.to(device), blocks.real.to(device)
            return block_loss(self._hidden(batch), batch.outputs, labels, weights, real, at_risk.to(device))

    def _hidden(self, batch: Batch) -> torch.Tensor:
        """The drafter's hidden states of slots 1..B-1, [b, N, B - 1, H]."""
        device, blocks = self.device, batch.blocks
        with self._autocast():
            # fp32, so that the residual stream is, whatever the target's type
            embeddings = self.head.embed(blocks.ids).to(device, torch.float32)
            return self.drafter.draft_hidden(batch.features.to(device), embeddings, blocks.anchors.to(device))[:, :, 1:]

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.mixed)


def _summarise(losses: Sequence[BlockLoss], denominator: float) -> dict[str, Any]:
    """History columns from the sums of a step's micro-batches; nothing supervised gives nulls."""
    ce, correct, count = (sum(getattr(loss, name) for loss in losses) for name in ("ce_sum", "correct", "count"))
    seen = count.clamp(min=1)
    blocks = int(sum(loss.blocks for loss in losses))
    return {
        "loss": float(sum(loss.numerator.detach() for loss in losses)) / denominator if denominator else None,
        "ce": float(ce.sum() / count.sum()) if denominator else None,
        "ce_at": (ce / seen).tolist(),
        "accuracy_at": (correct / seen).tolist(),
        "accepted_length": 1 + int(sum(loss.accepted for loss in losses)) / blocks if blocks else None,
    }
