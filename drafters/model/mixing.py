"""Local convolution of a block's slots: each reads the one before it (DFlash2, August 2026).

A block's slots are filled in one pass, so that none sees what another will hold. A convolution over two slots lets
neighbours agree at the cost of a few multiplications. It starts as the identity.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from drafters.axes import DrafterConfig


def local_convolution(x: torch.Tensor, base: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
    """y[i, c] = sum over taps t of (base[t, c] + delta[i, t, g(c)]) x[i - t, c], 0 before the block's first slot.

    ``x`` [..., B, H]; ``base`` [taps, H]; ``delta`` [..., B, taps, G], of which channel c reads group g(c) = c G // H.
    """
    size, channels = x.shape[-2:]
    groups = delta.shape[-1]
    grouped = x.unflatten(-1, (groups, channels // groups))
    out = torch.zeros_like(grouped)
    for tap in range(min(len(base), size)):
        weight = base[tap].to(x.dtype).view(groups, -1) + delta[..., tap:, tap, :, None]
        shifted = grouped[..., : size - tap, :, :] * weight
        out = out + (shifted if tap == 0 else nn.functional.pad(shifted, (0, 0, 0, 0, tap, 0)))
    return out.flatten(-2)


class LocalConvolution(nn.Module):
    """The two convolutions around a sublayer, whose token-dependent parts come from the sublayer's normed input.

    Parameters are named as in the public DFlash2 checkpoints: ``base_kernel`` [2, taps, H], ``kernel_projection`` from
    H to 2 x taps x groups.
    """

    def __init__(self, config: DrafterConfig):
        super().__init__()
        hidden, taps = config.hidden_size, config.conv_kernel_size
        self.shape = (2, taps, hidden // config.conv_group_size)
        self.base_kernel = nn.Parameter(torch.zeros(2, taps, hidden))
        self.kernel_projection = nn.Linear(hidden, math.prod(self.shape), bias=False)
        with torch.no_grad():
            self.base_kernel[:, 0] = 1
            self.kernel_projection.weight.zero_()

    def before(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The sublayer's input [..., B, H] convolved, and the ``delta`` for its output."""
        delta = self.kernel_projection(x).unflatten(-1, self.shape)
        return local_convolution(x, self.base_kernel[0], delta[..., 0, :, :]), delta[..., 1, :, :]

    def after(self, x: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
        """The sublayer's output convolved, before the residual is added."""
        return local_convolution(x, self.base_kernel[1], delta)
