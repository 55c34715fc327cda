"""The ranks of a training: torch.distributed under torchrun, or one process alone.

Everything reduced is a sum over the whole optimizer step. A mean of the ranks' means would weigh an example by how
many others its rank had.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from analysis.errors import DraftlabError
from drafters.model.drafter import Drafter
from drafters.ranks import Rank
from drafters.training.sharding import gathered, shard

Item = TypeVar("Item")


class LostRankError(DraftlabError):
    """Another rank is gone, so that this one cannot go on."""


class Group:
    """This process's place among the ranks; with one rank nothing is communicated."""

    def __init__(self, rank: Rank | None = None):
        self.rank = rank or Rank()
        self.number, self.world = self.rank.number, self.rank.world

    @property
    def leads(self) -> bool:
        """Whether this rank writes files and speaks."""
        return self.number == 0

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks of ``values`` (float64, on any device)."""
        if self.world == 1:
            return values
        total = values.clone()
        with self._connected():
            dist.all_reduce(total)
        return total

    def gather(self, items: Iterable[Item]) -> list[Item]:
        """Everybody's items (picklable), those of rank 0 first."""
        if self.world == 1:
            return list(items)
        parts: list[list[Item] | None] = [None] * self.world
        with self._connected():
            dist.all_gather_object(parts, list(items))
        return list(itertools.chain.from_iterable(part for part in parts if part is not None))

    def any(self, asked: bool) -> bool:
        """Whether any rank says so."""
        return asked if self.world == 1 else bool(self.sum(torch.tensor([float(asked)], dtype=torch.float64)) > 0)

    def from_leader(self, value: Any) -> Any:
        """Rank 0's value (picklable), on every rank."""
        if self.world == 1:
            return value
        held = [value]
        with self._connected():
            dist.broadcast_object_list(held)
        return held[0]

    def wrap(self, module: nn.Module) -> nn.Module:
        """``module``, whose backward pass sums gradients over the ranks."""
        if self.world == 1:
            return module
        with warnings.catch_warnings():  # the option's successor is not in every torch that is supported
            warnings.simplefilter("ignore", FutureWarning)
            parallel = DistributedDataParallel(module, broadcast_buffers=False)
        parallel.register_comm_hook(None, _summed)
        return parallel

    def shard(self, module: nn.Module, optimizer: torch.optim.AdamW) -> torch.optim.AdamW:
        """``module`` in parts, one a rank, whose backward pass sums gradients; the optimizer of the parts."""
        return optimizer if self.world == 1 else shard(module, optimizer, self.world)

    def whole(self, drafter: Drafter, optimizer: torch.optim.Optimizer) -> tuple[Drafter, torch.optim.Optimizer]:
        """A sharded drafter and its moments put together, on every rank; all of them have to ask."""
        with self._connected():
            return gathered(drafter, optimizer)

    @contextmanager
    def backward(self, module: nn.Module, *, last: bool) -> Iterator[None]:
        """A backward pass through a wrapped module; gradients are summed over the ranks in the ``last`` of a step."""
        waits: AbstractContextManager[Any] = nullcontext()
        if isinstance(module, DistributedDataParallel) and not last:
            waits = module.no_sync()
        if isinstance(module, FSDPModule):
            module.set_requires_gradient_sync(last)
        with self._connected(), waits:
            yield

    @contextmanager
    def _connected(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if self.world == 1 or not _is_of_the_network(error):
                raise
            raise LostRankError(
                f"rank {self.number} of {self.world}: another rank has stopped; the same command goes on from the last "
                "saved state"
            ) from error


def _summed(state, bucket):  # type: ignore[no-untyped-def] # DDP takes no annotations that are strings
    """DDP's own hook divides by the number of ranks; sums need no division."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def _is_of_the_network(error: RuntimeError) -> bool:
    words = ("Connection closed", "Connection reset", "gloo", "NCCL", "Broken pipe", "Timed out")
    return isinstance(error, dist.DistError) or any(word in str(error) for word in words)


@contextmanager
def joined(device: str) -> Iterator[Group]:
    """The group of this process, joined while the context lasts."""
    rank = Rank.of_environment()
    if rank.world == 1:
        yield Group(rank)
        return
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo")
    try:
        yield Group(rank)
    finally:
        dist.destroy_process_group()


def shares(micro_batches: int, ranks: int) -> int:
    """Micro-batches of an optimizer step that the first of ``ranks`` takes."""
    return -(-micro_batches // ranks)


class Whole(nn.Module):
    """A drafter's pass over blocks as one forward, which DDP and FSDP need; FSDP has to see the tensor that is
    differentiated, beside the result that holds it."""

    def __init__(self, drafter: Drafter):
        super().__init__()
        self.drafter = drafter

    def forward(
        self,
        features: Tensor,
        embeddings: Tensor,
        anchors: Tensor,
        then: Callable[[Tensor], Item],
    ) -> tuple[Item, Tensor]:
        hidden = self.drafter.draft_hidden(features, embeddings, anchors)[:, :, 1:]
        result = then(hidden)
        return result, getattr(result, "numerator", hidden)
