"""The most bytes that torch's tensors held at once while a block ran: what ``max_memory_allocated`` is on a GPU.

Every operation's results are seen as torch dispatches them, and a storage counts until it is freed. What an operation
takes for itself inside its kernel, and the allocator's rounding, are not seen.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class Allocations(TorchDispatchMode):
    """Inside, ``held`` is the bytes of all storages that are alive and were seen, ``peak`` its maximum.

    ``before``: tensors that are there already, weights for example.
    """

    def __init__(self, before: Iterable[torch.Tensor] = ()):
        super().__init__()
        self.held = self.peak = 0
        self._seen: dict[int, int] = {}
        self._see(before)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        self._see(leaf for leaf in tree_iter(result) if isinstance(leaf, torch.Tensor))
        return result

    def _see(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key in self._seen or tensor.is_meta:
                continue
            self._seen[key] = storage.nbytes()
            self.held += storage.nbytes()
            self.peak = max(self.peak, self.held)
            weakref.finalize(storage, self._freed, key)

    def _freed(self, key: int) -> None:
        self.held -= self._seen.pop(key, 0)
