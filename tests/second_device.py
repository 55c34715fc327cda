"""A second device made of tensors that say they are elsewhere, so that the paths of a GPU run without one.

Inside ``with second_device():`` anything made on, or moved to, the device ``cuda`` is a :class:`Elsewhere`: a tensor
of that device whose values lie on the CPU. An operation that mixes the two devices is refused as CUDA refuses it;
everything else is computed by the CPU, so that results can be compared bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

CUDA = torch.device("cuda", 0)
_aten = torch.ops.aten
#: Operations whose business it is to cross devices.
_CROSSING = {_aten._to_copy.default, _aten.copy_.default}
#: Index tensors may lie on the CPU while the indexed tensor does not.
_INDEXING = {_aten.index.Tensor, _aten.index_put_.default, _aten.index_put.default, _aten._index_put_impl_.default}
#: Operations that read single numbers where they compute.
_FUSED = {_aten._fused_adamw_.default}


class Generator(torch.Generator):
    """A generator of either device, with the same numbers on both."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        made = super().__new__(cls)
        made.kind = torch.device(device).type
        return made


class Elsewhere(torch.Tensor):
    """A tensor on the second device."""

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> Elsewhere:
        return torch.Tensor._make_wrapper_subclass(
            cls, values.size(), strides=values.stride(), storage_offset=values.storage_offset(),
            dtype=values.dtype, device="meta", requires_grad=False,
        )  # fmt: skip

    def __init__(self, values: torch.Tensor):
        self.values_here = values

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CUDA

    @property
    def is_meta(self) -> bool:  # type: ignore[override]
        return False

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Elsewhere({self.values_here})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Compute on the CPU; the result is where its arguments are, or where ``device`` says."""
    kwargs = dict(kwargs)
    given, _ = tree_flatten((args, kwargs))
    tensors = [value for value in given if isinstance(value, torch.Tensor)]
    away = any(isinstance(t, Elsewhere) for t in tensors)
    if away and func not in _CROSSING:
        refuse_mixture(func, args, tensors)
    device = kwargs.get("device")
    if device is not None:
        away = torch.device(device).type in (CUDA.type, "meta")
        kwargs["device"] = torch.device("cpu")
    elif func is _aten.copy_.default:
        away = isinstance(args[0], Elsewhere)
    here, there = tree_map(unwrap, (args, kwargs))
    out = func(*here, **there)
    if func is _aten._local_scalar_dense.default:
        return out
    if away:
        own = {id(t.values_here): t for t in tensors if isinstance(t, Elsewhere)}
        # a view of a weight is no inference tensor, although it is made in inference mode
        with torch.inference_mode(torch.is_inference_mode_enabled() and all(t.is_inference() for t in own.values())):
            return tree_map(lambda t: _away(t, own), out)
    return out


def _away(value: Any, own: dict[int, Elsewhere]) -> Any:
    """A result on the second device; what an operation in place gives back is its argument."""
    if not isinstance(value, torch.Tensor):
        return value
    return own[id(value)] if id(value) in own else Elsewhere(value)


def refuse_mixture(func: Any, args: Any, tensors: list[torch.Tensor]) -> None:
    # single numbers are taken from the CPU, but not by a fused optimizer, whose kernel reads its step counts itself
    strangers = [t for t in tensors if not isinstance(t, Elsewhere) and (t.dim() > 0 or func in _FUSED)]
    if func in _INDEXING and isinstance(args[0], Elsewhere):
        strangers = [t for t in strangers if t.dtype not in (torch.int64, torch.int32, torch.bool, torch.uint8)]
    if strangers:
        raise RuntimeError(f"{func}: Expected all tensors to be on the same device, but found cuda:0 and cpu")


def unwrap(value: Any) -> Any:
    return value.values_here if isinstance(value, Elsewhere) else value


class _Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


class _Factories(TorchFunctionMode):
    """Functions that make a tensor on a device look for its driver before anything is dispatched."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        device = kwargs.get("device")
        named = getattr(func, "__name__", "")
        generator = kwargs.get("generator")
        if isinstance(generator, Generator) and (args or device is not None):
            kind = torch.device(device).type if device is not None else args[0].device.type
            if kind != generator.kind:
                raise RuntimeError(f"{func}: Expected a '{kind}' device type for generator, found '{generator.kind}'")
        if named == "tolist" and isinstance(args[0], Elsewhere):
            return args[0].values_here.tolist()
        if named == "to":
            return _to(*args, **kwargs)
        if named == "numpy" and isinstance(args[0], Elsewhere):
            raise TypeError("can't convert cuda:0 device type tensor to numpy; copy it to the CPU first")
        if device is not None and torch.device(device).type == CUDA.type:
            kwargs["device"] = "cpu"
            out = func(*args, **kwargs)
            return tree_map(lambda t: Elsewhere(t) if isinstance(t, torch.Tensor) else t, out)
        return func(*args, **kwargs)


def _to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``Tensor.to`` without a look for a driver."""
    copy = kwargs.pop("copy", False)
    if args and isinstance(args[0], torch.Tensor):
        args, kwargs = (), {"device": args[0].device, "dtype": args[0].dtype}
    device, dtype, _, _ = torch._C._nn._parse_to(*args, **kwargs)
    device, dtype = device or tensor.device, dtype or tensor.dtype
    if not copy and device.type == tensor.device.type and dtype == tensor.dtype:
        return tensor
    return _aten._to_copy.default(tensor, device=device, dtype=dtype)


@contextmanager
def second_device() -> Iterator[str]:
    """The name of the device, for ``--device`` and ``.to()``."""
    overwrite = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with (
            mock.patch("torch.cuda.synchronize"),
            mock.patch("torch.Generator", Generator),
            mock.patch("torch.cuda.get_device_name", return_value="second device"),
            _Factories(),
            _Dispatch(),
        ):
            yield "cuda"
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(overwrite)
