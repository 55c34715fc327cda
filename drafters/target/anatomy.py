"""The parts of a transformers causal language model, whatever its architecture: found, read out, hashed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from analysis.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def find_parts(model: PreTrainedModel, name: str) -> tuple[nn.Embedding, nn.ModuleList, nn.Linear]:
    """Input embedding, decoder layers and output head of ``model``.

    The decoder layers are the outermost ModuleList as long as the configuration's ``num_hidden_layers``.
    Raises DataError saying which part is missing, or that the three are not of one width.
    """
    config = model.config.get_text_config(decoder=True)
    lists = [
        (path.count("."), module)
        for path, module in model.get_decoder().named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == config.num_hidden_layers
    ]
    parts: dict[str, Any] = {
        "input embeddings": model.get_input_embeddings(),
        "decoder layers": min(lists, key=lambda found: found[0])[1] if lists else None,
        "output head": model.get_output_embeddings(),
    }
    if missing := [part for part, module in parts.items() if module is None]:
        raise DataError(f"target '{name}': {type(model).__name__} shows no {' and no '.join(missing)}")
    embedding, layers, head = parts.values()
    widths = (embedding.weight.shape[1], config.hidden_size, head.weight.shape[1])
    if len(set(widths)) > 1:
        raise DataError(
            f"target '{name}': embedding, layers and output head of {type(model).__name__} have widths "
            f"{', '.join(map(str, widths))}; a drafter shares all three, so they must agree"
        )
    return embedding, layers, head


class Captured:
    """Hidden states of ``count`` layers, [batch, length, count, H]; None until a pass has filled them."""

    def __init__(self, count: int):
        self.count = count
        self.features: Tensor | None = None

    def hook(self, slot: int) -> Callable[[nn.Module, Any, Any], None]:
        def keep(module: nn.Module, args: Any, output: Any) -> None:
            hidden = output if isinstance(output, Tensor) else output[0]
            if self.features is None:
                self.features = hidden.new_empty(*hidden.shape[:-1], self.count, hidden.shape[-1])
            self.features[..., slot, :] = hidden

        return keep


@contextmanager
def captured_outputs(modules: Sequence[nn.Module]) -> Iterator[Captured]:
    """Copy the outputs of the modules as they appear; no hook outlives the block."""
    captured = Captured(len(modules))
    handles = [module.register_forward_hook(captured.hook(slot)) for slot, module in enumerate(modules)]
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()


def find_stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every id that ends an answer, by the generation config, the model's config or the tokenizer."""
    configs = (model.generation_config, model.config.get_text_config(decoder=True))
    named = [getattr(config, "eos_token_id", None) for config in configs]
    named.append(tokenizer.eos_token_id)
    lists = (ids if isinstance(ids, list | tuple) else [ids] for ids in named)
    return frozenset(int(id) for ids in lists for id in ids if id is not None)


def find_pad_id(tokenizer: PreTrainedTokenizerBase, stop_ids: frozenset[int]) -> int:
    """The tokenizer's pad id, else a stop id: what stands in padded places does not matter, they are masked."""
    if tokenizer.pad_token_id is not None:
        return int(tokenizer.pad_token_id)
    return min(stop_ids, default=0)


def weights_sha256(model: nn.Module) -> str:
    """sha256 over names, shapes and float32 values of all weights, in order of name.

    As float32, so that a bfloat16 checkpoint is the same target whether loaded as bfloat16 or float32, and
    rounding a float32 checkpoint to bfloat16 makes another one. Independent of how files are sharded.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().to("cpu", torch.float32).contiguous().numpy())
    return digest.hexdigest()


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Keep transformers from drawing bars while it loads; the caller reports in its own words."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
