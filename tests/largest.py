"""The largest tensor that a computation makes: what decides whether it fits at the size of a real model."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Largest(TorchDispatchMode):
    """Inside ``with Largest() as largest:`` counts ``largest.numel`` over the storages of all results."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for result in tree_leaves(out):
            if isinstance(result, torch.Tensor):
                self.numel = max(self.numel, result.untyped_storage().nbytes() // result.element_size())
        return out
