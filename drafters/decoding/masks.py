"""Attention masks in the form that the target's attention implementation reads.

Decoding hides other tokens from each row of a batch, so it brings masks of its own. Implementations disagree about
their form: SDPA takes a boolean mask, eager and flex attention add one to the scores. A boolean mask that is added
hides nothing, and nothing fails (speculators #686).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from analysis.errors import DataError
from drafters.decoding.ragged import RaggedCache
from drafters.target.frozen import Target


def _boolean(visible: Tensor, dtype: torch.dtype) -> Tensor:
    return visible


def _additive(visible: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, torch.finfo(dtype).min)


_FORMS: dict[str, Callable[[Tensor, torch.dtype], Tensor]] = {
    "sdpa": _boolean,
    "eager": _additive,
    "flex_attention": _additive,  # transformers adds a tensor to the scores; a block mask would be another way
}


def attention_mask(target: Target, visible: Tensor) -> Tensor:
    """``visible``, bool [b, 1, n, m], in the form that the attention of ``target`` reads.

    Raises DataError for an implementation that takes no such mask (flash attention and other kernels).
    """
    if target.attention not in _FORMS:
        raise DataError(
            f"target '{target.id}': its attention implementation {target.attention} takes no mask per row, which "
            f"decoding needs; load it with one of {', '.join(_FORMS)}"
        )
    return _FORMS[target.attention](visible, target.dtype)


@torch.inference_mode()
def check_masks(target: Target) -> None:
    """Raise DataError unless the model hides what a mask says: model classes with attention of their own may not.

    Looks once at every target. Three tokens of one row, one of another, then two more of each: the second row's must
    come out as they do alone, without any mask.
    """
    if target.masks_checked:
        return
    ids = torch.arange(6, device=target.device) * (target.vocab_size // 6)
    first, second, more = ids[:3], ids[3:4], ids[4:6]
    cache = RaggedCache(target.num_layers, 2, target.device)
    cache.rows.begin(3)
    prompt = torch.stack((first, second.expand(3)))  # what follows the second row's only token is overwritten
    target.forward(prompt, position_ids=cache.rows.positions, cache=cache)
    cache.rows.lengths = [3, 1]
    cache.rows.begin(2)
    mask = attention_mask(target, cache.rows.mask())
    try:
        ragged = target.forward(
            more.expand(2, 2), attention_mask=mask, position_ids=cache.rows.positions, cache=cache, logits="all"
        ).logits
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise DataError(f"{_cannot(target)} ({type(error).__name__})") from error
    plain = target.forward(torch.cat((second, more))[None], logits=2).logits
    assert ragged is not None and plain is not None
    rounding = torch.finfo(plain.dtype).eps ** 0.5  # 0.03% of the logits in float32, 9% in bfloat16
    if float((ragged[1] - plain[0]).float().norm()) > rounding * float(plain[0].float().norm()):
        raise DataError(_cannot(target))
    target.masks_checked = True


def _cannot(target: Target) -> str:
    return (
        f"target '{target.id}': {type(target.model).__name__} does not decode rows of different lengths: it ignores "
        "attention masks or positions"
    )
