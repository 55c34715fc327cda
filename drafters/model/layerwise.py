"""Layer-wise fusion (DFlare, arXiv 2606.02091): every draft layer has a view of its own of the T target layers.

* ``layerwise``: alpha^(i) = softmax(W_fuse[i]) for draft layer i, and f_t^(i) = RMSNorm(sum_j alpha_j^(i) h_t^(j));
  D x T scalars in all, one norm shared by the draft layers, no projection W_c.
* ``layerwise_gated``: logits W_fuse[i] + W_i n(h_t^(T)), so that the view changes from token to token; W_i [T, H]
  starts at 0 and n is a parameter-free RMSNorm, as in the gate of ``gated``: untrained, it is ``layerwise``.

Where the norm stands. ``fusion_norm: after``, the default, normalises the sum: so the paper writes it, and so two of
its public implementations do it (AngelSlim, of its authors, and AngelSpec). Raw late states are many times larger
than early ones, so equal weights are not equal contributions; ``fusion.parquet`` has both. ``fusion_norm: before``
normalises every state with the one shared norm and adds those, as vLLM's pull request 49023 does (speculators' 770
has a norm per target layer there).

What a view starts from (``fusion_init``). The paper asks for a view by depth. ``depth``: logits 0, and 2 at target
layer floor(i T / D) (AngelSlim). ``distance``: -2 |j - j*| with j* = round(i (T - 1) / (D - 1)) (AngelSpec).
``uniform``: the mean, in every draft layer the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from drafters.model.fusion import Fusion, RMSNorm, rms_normalise

if TYPE_CHECKING:
    from drafters.axes import DrafterConfig


def initial_logits(choice: str, draft_layers: int, target_layers: int) -> torch.Tensor:
    """W_fuse at the start, fp32 [D, T], by ``fusion_init``."""
    logits = torch.zeros(draft_layers, target_layers)
    for layer in range(draft_layers):
        if choice == "depth":
            logits[layer, layer * target_layers // draft_layers] = 2.0
        elif choice == "distance":
            preferred = round(layer / max(1, draft_layers - 1) * (target_layers - 1))
            logits[layer] = -2.0 * (torch.arange(target_layers) - preferred).abs()
    return logits


class LayerwiseFusion(Fusion):
    """f^(i) = RMSNorm(sum_j softmax(W_fuse[i])_j h^(j)), one per draft layer."""

    def __init__(self, config: DrafterConfig):
        super().__init__()
        self.norm_first = config.fusion_norm == "before"
        logits = initial_logits(config.fusion_init, config.num_layers, len(config.target_layer_ids))
        self.layer_fusion_weights = nn.Parameter(logits)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def is_drawn(self, name: str, parameter: nn.Parameter) -> bool:
        """None is: see ``fusion_init``."""
        return False

    def weights(self, features: torch.Tensor) -> torch.Tensor:
        """alpha [..., D, T] in fp32, for features [..., T, H]."""
        return self.layer_fusion_weights.float().softmax(-1).expand(*features.shape[:-2], -1, -1)

    def forward(self, features: torch.Tensor) -> list[torch.Tensor]:
        states = self.hidden_norm(features) if self.norm_first else features
        fused = self.weights(features).to(features.dtype) @ states
        return list((fused if self.norm_first else self.hidden_norm(fused)).unbind(-2))

    @torch.no_grad()
    def contribution_shares(self, features: torch.Tensor) -> torch.Tensor:
        """<alpha_j s^(j), u> / ||u||^2 [..., D, T] with u = sum_j alpha_j s^(j) and s what is summed: shares add to 1.

        Equal weights are not equal shares: a state of large norm, or one that points along the sum, has more.
        """
        weights = self.weights(features)
        states = (self.hidden_norm(features) if self.norm_first else features).float()
        total = weights @ states
        along = total @ states.transpose(-1, -2)
        return weights * along / total.square().sum(-1, keepdim=True)


class LayerwiseGate(nn.Module):
    """W_i n(h^(T)) for every draft layer i, in fp32; W is [D, T, H], no bias."""

    def __init__(self, config: DrafterConfig):
        super().__init__()
        self.eps = config.rms_norm_eps
        self.weight = nn.Parameter(torch.zeros(config.num_layers, len(config.target_layer_ids), config.hidden_size))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        with torch.autocast(features.device.type, enabled=False):
            state = rms_normalise(features[..., -1, :], self.eps)
            logits = state @ self.weight.float().flatten(0, 1).T
        return logits.unflatten(-1, self.weight.shape[:2])


class LayerwiseGatedFusion(LayerwiseFusion):
    """LayerwiseFusion whose logits move with the token."""

    def __init__(self, config: DrafterConfig):
        super().__init__(config)
        self.gate = LayerwiseGate(config)

    def weights(self, features: torch.Tensor) -> torch.Tensor:
        return (self.layer_fusion_weights.float() + self.gate(features)).softmax(-1)
