"""One optimizer step at a time: data in a fixed order, blocks, loss, AdamW, history; on one rank or many.

Everything random is keyed by names (drafters.keyed), so a step depends on the configuration, the corpus and
the step number alone. The gradient of a step is sum(w CE) / sum(w) over all its micro-batches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from analysis.errors import UsageError
from drafters.axes import DrafterConfig
from drafters.checkpoints.folder import load_drafter, load_training_state, save_training_state
from drafters.config import RunConfig
from drafters.corpus.build import Corpus
from drafters.corpus.features import FeatureReader
from drafters.keyed import permutation
from drafters.model.acceptance import count_first_block
from drafters.model.blocks import DataHash, sample_anchors
from drafters.model.drafter import Drafter
from drafters.model.fusion import ConcatFusion
from drafters.model.head import Head
from drafters.model.selection import walk
from drafters.target.frozen import Target
from drafters.training.batches import Batch, collate
from drafters.training.group import Group, Whole
from drafters.training.losses import BlockLoss, Supervision, Weights, block_loss, step_weights
from drafters.training.objective import Objective
from drafters.training.schedule import learning_rate
from drafters.training.sharding import full
from drafters.training.stopping import NotFiniteError
from drafters.training.sums import StepSums
from drafters.training.warm_start import warm_start

Result = TypeVar("Result")

NORM_EXAMPLES = 64  # of the corpus, for the typical norms of the target's states


class Trainer:
    """Trains one drafter on a corpus; state is the step, the weights, the moments and the data hash.

    ``precision``: of the matrix products; weights, moments and the residual stream are float32 (float64 with that).
    ``group``: the ranks that share the micro-batches of each step.
    """

    def __init__(
        self,
        config: RunConfig,
        drafter_config: DrafterConfig,
        corpus: Corpus,
        target: Target,
        device: str,
        precision: str = "float32",
        group: Group | None = None,
    ):
        self.config, self.corpus, self.device = config, corpus, torch.device(device)
        self.group = group or Group()
        self.mixed = precision == "bfloat16"
        self.dtype = torch.float64 if precision == "float64" else torch.float32  # of weights and residual stream
        settings = config.training
        self.drafter = Drafter(drafter_config).initialise(config.seeds.init)
        self.reader = FeatureReader(target, drafter_config.target_layer_ids, final=config.reads_final_state)
        if settings.projection_init == "basis":
            fusion = self.drafter.fusion
            assert isinstance(fusion, ConcatFusion)
            fusion.keep_basis(self._typical_norms())
        if settings.init_from:
            warm_start(self.drafter, load_drafter(settings.init_from))
        self.drafter.to(self.device).cast(self.dtype)
        self.objective = Objective.of(self.drafter, config.loss)
        self.whole = Whole(self.drafter)
        self.sharded = settings.sharding == "fsdp2" and self.group.world > 1
        self.model = self.whole if self.sharded else self.group.wrap(self.whole)
        self.head = Head(target, drafter_config, None if self.mixed else self.dtype)
        self.optimizer = torch.optim.AdamW(
            self.drafter.parameters(),
            lr=settings.lr,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            fused=True,  # one pass over weights and moments instead of a dozen
        )
        if settings.accumulate < self.group.world:
            raise UsageError(
                f"{self.group.world} ranks share the {settings.accumulate} micro-batches of a step; set "
                f"training.accumulate to {self.group.world} or more (and training.batch to less)"
            )
        self.per_step = settings.batch * settings.accumulate
        kept = math.ceil(settings.share * len(corpus))
        self.examples = np.sort(permutation(len(corpus), "share", config.seeds.data)[:kept])  # indices in the corpus
        self.total_examples = settings.steps * self.per_step if settings.steps is not None else settings.epochs * kept
        self.steps = math.ceil(self.total_examples / self.per_step)
        self.step = 0
        self.hash = DataHash()
        self.history: list[dict[str, Any]] = []
        self._consumed: list[tuple[int, str, np.ndarray, np.ndarray]] = []  # of this step, by this rank
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, dtype=np.int64))

    def begin(self) -> None:
        """After weights and moments are restored, or none are: shard them, if that is asked for."""
        if self.sharded:
            self.optimizer = self.group.shard(self.whole, self.optimizer)

    def complete(self) -> tuple[Drafter, torch.optim.Optimizer]:
        """The drafter and its moments; sharded ones are put together, for which every rank has to ask."""
        return self.group.whole(self.drafter, self.optimizer) if self.sharded else (self.drafter, self.optimizer)

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
        sums = StepSums(self.drafter.config.block_size - 1)
        own = self._own_micro_batches()
        for number, places in enumerate(own, 1):
            batch = self._collate(places)
            with self.group.backward(self.model, last=number == len(own)):
                loss = self._forward(batch, weights)
                loss.numerator.backward()
            sums.add(loss, batch)
        taken = sorted(self.group.gather(self._consumed), key=lambda one: one[0])
        for _, example_id, chosen, labels in taken:
            self.hash.update(example_id, chosen, labels)
        self._consumed = []
        sums.values = self.group.sum(sums.values)
        norm = math.nan
        if sums.denominator > 0:
            for parameter in self.drafter.parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(sums.denominator)
            norm = float(full(torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), settings.clip)))
            if not math.isfinite(norm):  # a step with it would make every weight NaN
                raise NotFiniteError(self.step + 1, lr, sums.row()["loss"], norm, [one[1] for one in taken])
            self.optimizer.step()
        self.step += 1
        row = {
            "step": self.step,
            "epoch": self._order[0],
            "lr": lr,
            "gamma": gamma,
            "grad_norm": None if math.isnan(norm) else norm,
            "data_hash": self.hash.state,
            **sums.row(),
            "seconds": time.perf_counter() - started,
        }
        self.history.append(row)
        return row

    @torch.no_grad()
    def validate(self, corpus: Corpus, batch: int = 16) -> float:
        """Mean accepted length after the first answer token of a held-out corpus, counted as the ``prefix`` protocol
        counts it: answers of one token, which the corpus leaves out, are accepted lengths of 1."""
        drafter = self.complete()[0].eval()
        model = Whole(drafter)
        total = prompts = 0
        if self.group.leads:
            total = prompts = corpus.short_answers
        size = self.drafter.config.block_size
        for start in range(self.group.number * batch, len(corpus), self.group.world * batch):
            examples = [corpus[i] for i in range(start, min(start + batch, len(corpus)))]
            places = [np.array([e.prompt_length]) for e in examples]
            collated = collate(examples, places, self.drafter.config, self.head, self.reader)
            with self._autocast():
                hidden = self._hidden(collated, model)[:, 0]
                first = collated.blocks.ids[:, 0, 0].to(self.device)
                slots = list(walk(drafter.selection, collated.outputs, hidden, collated.outputs.logits(hidden), first))
            drafts = torch.stack(slots, -1).tolist()
            for example, draft in zip(examples, drafts, strict=True):
                answer = example.tokens[example.prompt_length :][:size].tolist()
                total += count_first_block(draft, answer, self.reader.target.stop_ids).emitted
            prompts += len(examples)
        total, prompts = self.group.sum(torch.tensor([total, prompts], dtype=torch.float64)).tolist()
        return total / prompts

    def save(self, folder: Path) -> None:
        """Write the state of this step to ``folder``, whole or not at all; every rank has to ask, the first writes."""
        drafter, optimizer = self.complete()
        if self.group.leads:
            save_training_state(folder, drafter, optimizer, {"step": self.step, "data_hash": self.hash.state})

    def restore(self, folder: Path, history: list[dict[str, Any]]) -> None:
        """Go back to a saved state, before :meth:`begin`; ``history`` may run past it and is cut there."""
        state = load_training_state(folder, self.drafter, self.optimizer)
        self.step, self.hash = state["step"], DataHash(state["data_hash"])
        self.history = [row for row in history if row["step"] <= self.step]

    def _typical_norms(self) -> torch.Tensor:
        """Norms of the target's states, fp32 [T]: means over the tokens of the corpus's first examples."""
        examples = (self.corpus[i] for i in range(min(NORM_EXAMPLES, len(self.corpus))))
        norms = [features.float().norm(dim=-1) for features in self.reader.each(examples)]
        return torch.cat(norms).mean(0).cpu()

    def _own_micro_batches(self) -> list[range]:
        """Places in the whole training of this rank's micro-batches of the current step.

        The step's micro-batches are the same however many ranks share them. A rank that has none in a last, short step
        takes an empty one, since all ranks have to sum their gradients.
        """
        first = self.step * self.per_step
        last = min(first + self.per_step, self.total_examples)
        size = self.config.training.batch
        every = [range(start, min(start + size, last)) for start in range(first, last, size)]
        return every[self.group.number :: self.group.world] or [range(first, first)]

    def _collate(self, places: range) -> Batch:
        """One micro-batch, examples in the order of their epoch's permutation; an empty one supervises nothing."""
        located = [self._locate(i) for i in places] or [self._locate(places.start)]
        examples = [self.corpus[index] for _, index in located]
        anchors = [
            sample_anchors(
                example.supervised.numpy(),
                self.config.training.anchors if places else 0,
                self.config.seeds.anchors,
                epoch,
                example.example_id,
            )
            for (epoch, _), example in zip(located, examples, strict=True)
        ]
        batch = collate(examples, anchors, self.drafter.config, self.head, self.reader)
        labels = batch.blocks.labels.numpy()
        self._consumed += [
            (place, example.example_id, chosen, label[: len(chosen)])
            for place, example, chosen, label in zip(places, examples, anchors, labels, strict=False)
        ]
        return batch if places else replace(batch, examples=[])

    def _locate(self, position: int) -> tuple[int, int]:
        """(epoch, corpus index) of the position-th example of the whole training."""
        epoch, place = divmod(position, len(self.examples))
        if self._order[0] != epoch:
            self._order = (epoch, permutation(len(self.examples), "order", self.config.seeds.data, epoch))
        return epoch, int(self.examples[self._order[1][place]])

    def _weights(self) -> tuple[float | None, Weights]:
        """gamma and the loss weights of the current step."""
        return step_weights(self.config.loss, self.drafter.config.block_size, self.step, self.steps)

    def _forward(self, batch: Batch, weights: Weights) -> BlockLoss:
        device, blocks = self.device, batch.blocks
        asked = Supervision(
            labels=batch.rows.to(device),
            previous=blocks.previous.to(device),
            real=blocks.real.to(device),
            at_risk=blocks.at_risk(self.reader.target.stop_ids).to(device),
            final=None if batch.final is None else batch.final.to(device),
        )

        def loss(hidden: torch.Tensor) -> BlockLoss:
            return block_loss(hidden, batch.outputs, asked, weights, self.objective)

        return self._through(self.model, batch, loss)

    def _hidden(self, batch: Batch, model: nn.Module) -> torch.Tensor:
        """The drafter's hidden states of slots 1..B-1, [b, N, B - 1, H]."""
        return self._through(model, batch, lambda hidden: hidden)

    def _through(self, model: nn.Module, batch: Batch, then: Callable[[torch.Tensor], Result]) -> Result:
        """``then`` of the hidden states, inside the model's forward: DDP has to see every use of its parameters."""
        device, blocks = self.device, batch.blocks
        with self._autocast():
            # the residual stream is fp32, whatever the target's type
            embeddings = self.head.embed(blocks.ids).to(device, self.dtype)
            result: Result
            result, _ = model(batch.features.to(device, self.dtype), embeddings, blocks.anchors.to(device), then)
            return result

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.mixed)
