"""Fusion: from T hidden states of the target to the context features that the drafter attends to.

Every fusion maps features [..., T, H] (raw hidden states, before the target's final norm) to one context
feature [..., H] per draft layer. Here are those that project with one matrix W_c; the layer-wise ones, which do
not, are in drafters.model.layerwise.

* ``concat`` (DFlash, arXiv 2602.06036): c_t = RMSNorm(W_c [h^(1); ...; h^(T)]), the same for every layer.
* ``gated`` (DynaDFlash): g_t = phi(W_g n(h_t^(T))), one weight per target layer and token, no bias, and
  c_t = RMSNorm(W_c [g_1 h^(1); ...; g_T h^(T)]). The write-up says "a linear gate" and states neither
  activation, norm nor initialisation. ``linear`` is the literal reading, g = W_g h on the raw state. The
  others start at exactly 1 (W_g = 0), so that an untrained gate is DFlash bit for bit and a DFlash checkpoint
  warm-starts it; they read the state through a parameter-free RMSNorm n, because raw late states have massive
  activations that saturate a gate. ``gate_input: none`` learns T constants instead, the trained static
  control: it folds into W_c exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F

if TYPE_CHECKING:  # vLLM's plugin uses these modules where nothing else of ours is installed
    from drafters.axes import DrafterConfig


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, computed in fp32."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * rms_normalise(x, self.eps).to(x.dtype)


def rms_normalise(x: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) over the last axis, fp32."""
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


ACTIVATIONS = {
    "sigmoid": lambda z: 2 * torch.sigmoid(z),
    "softmax": lambda z: z.shape[-1] * torch.softmax(z, -1),
    "tanh": lambda z: 1 + torch.tanh(z),
    "affine": lambda z: 1 + z,
    "linear": lambda z: z,
}


@dataclass(frozen=True)
class Contributions:
    """What each target layer adds to the projected sum u = sum_l W_c^(l) g_l h^(l), all [..., T] fp32.

    ``share`` is <W_c^(l) g_l h^(l), u> / ||u||^2, so that shares add to 1 (NaN where u = 0).
    """

    gate: torch.Tensor
    feature_norm: torch.Tensor
    gated_norm: torch.Tensor
    contribution_norm: torch.Tensor
    contribution_share: torch.Tensor


class Fusion(nn.Module):
    """What every fusion does."""

    def forward(self, features: torch.Tensor) -> list[torch.Tensor]:
        """Context features, one [..., H] per draft layer, from [..., T, H]."""
        raise NotImplementedError

    def contributions(self, features: torch.Tensor) -> Contributions | None:
        """Decomposition by target layer of features [..., T, H]; None without a projection that all layers share."""
        return None

    def is_drawn(self, name: str, parameter: nn.Parameter) -> bool:
        """Whether the parameter ``name`` of this module is drawn at random, or keeps the value it was made with."""
        return parameter.dim() == 2


class ConcatFusion(Fusion):
    """c = RMSNorm(fc [h^(1); ...; h^(T)]) for every draft layer."""

    def __init__(self, config: DrafterConfig):
        super().__init__()
        self.layers = config.num_layers
        self.fc = nn.Linear(len(config.target_layer_ids) * config.hidden_size, config.hidden_size, bias=False)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    @torch.no_grad()
    def keep_basis(self, norms: torch.Tensor) -> None:
        """Start the projection as W_c^(l) = s I / ||h^(l)||, from typical norms [T] of the states.

        The context feature is then the sum of the states in their own basis, each with equal norm. s gives the matrix
        the Frobenius norm that it has when drawn from N(0, 0.02).
        """
        weight = self.fc.weight
        share = 1 / norms.to(weight)
        scale = 0.02 * weight.shape[1] ** 0.5 / share.norm()  # of H x T H draws: 0.02 sqrt(H T H), to sqrt(H) ||share||
        eye = torch.eye(weight.shape[0], dtype=weight.dtype, device=weight.device)
        weight.copy_((eye[:, None] * (scale * share)[:, None]).flatten(1))

    def gate_values(self, features: torch.Tensor) -> torch.Tensor | None:
        """g [..., T] in fp32, or None where the fusion has no gate."""
        return None

    def forward(self, features: torch.Tensor) -> list[torch.Tensor]:
        """See :class:`Fusion`; it is the same object D times."""
        gate = self.gate_values(features)
        gated = features if gate is None else features * gate.to(features.dtype)[..., None]
        return [self.hidden_norm(self.fc(gated.flatten(-2)))] * self.layers

    @torch.no_grad()
    def contributions(self, features: torch.Tensor) -> Contributions:
        """Decompose the projected sum of features [..., T, H] by target layer."""
        feature_norm = features.float().norm(dim=-1)
        gate = self.gate_values(features)
        if gate is None:
            gate = torch.ones_like(feature_norm)
        gated = features * gate.to(features.dtype)[..., None]
        # W_c^(l) applied to the l-th slice: [H, T, H] against [..., T, H]
        weight = self.fc.weight.float().unflatten(1, (features.shape[-2], -1))
        parts = torch.einsum("otd,...td->...to", weight, gated).float()
        total = parts.sum(-2, keepdim=True)
        return Contributions(
            gate=gate,
            feature_norm=feature_norm,
            gated_norm=gated.float().norm(dim=-1),
            contribution_norm=parts.norm(dim=-1),
            contribution_share=(parts * total).sum(-1) / total.square().sum(-1),
        )


class Gate(nn.Module):
    """g = phi(W n(h^(T))) in fp32: W is [T, H], or [T] constants where nothing is read."""

    def __init__(self, config: DrafterConfig):
        super().__init__()
        count = len(config.target_layer_ids)
        self.activation = config.gate_activation
        self.reads_state = config.gate_input == "last"
        self.eps = config.rms_norm_eps
        # a literal linear gate at 0 would switch every feature off for good; the others are 1 at 0
        self.starts_at_zero = self.activation != "linear"
        self.weight = nn.Parameter(torch.zeros(count, config.hidden_size) if self.reads_state else torch.zeros(count))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        weight = self.weight.float()
        with torch.autocast(features.device.type, enabled=False):
            if not self.reads_state:
                logits = weight.expand(*features.shape[:-2], -1)
            else:
                last = features[..., -1, :].float()
                logits = F.linear(last if self.activation == "linear" else rms_normalise(last, self.eps), weight)
            return ACTIVATIONS[self.activation](logits)


class GatedFusion(ConcatFusion):
    """ConcatFusion whose features are scaled by a gate before the projection."""

    def __init__(self, config: DrafterConfig):
        super().__init__(config)
        self.gate = Gate(config)

    def is_drawn(self, name: str, parameter: nn.Parameter) -> bool:
        """A gate that starts at 1 keeps that."""
        return not self.gate.starts_at_zero if name.startswith("gate.") else super().is_drawn(name, parameter)

    def gate_values(self, features: torch.Tensor) -> torch.Tensor:
        return self.gate(features)
