"""Gated and layer-wise drafters inside vLLM: its own DFlash model with our fusion, for vLLM 0.32's V1 runner.

Where the fusion acts. The engine hands the concatenated hidden states of the target layers to
``combine_hidden_states`` and what that returns to ``precompute_and_store_context_kv``.

* A gate scales the states before the shared projection: in ``combine_hidden_states``.
* Layer-wise fusion needs all states where keys and values of the context are made, but the runner asserts that what
  ``combine_hidden_states`` returns is one hidden size wide (``llm_base_proposer.py``). So the states are kept here in
  between, and found again by the identity of the tensor that stood for them. A runner that copies that tensor first
  (the V2 runner for GPUs does) is refused, not served wrongly.

Only vLLM imports this module, in its own environment; it needs torch and vLLM alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from vllm.distributed import get_tensor_model_parallel_world_size
from vllm.model_executor.models.qwen3_dflash import DFlashQwen3ForCausalLM, DFlashQwen3Model

from drafters.model.fusion import Gate
from drafters.model.layerwise import LayerwiseFusion, LayerwiseGatedFusion

_LAYERWISE = {"layerwise": LayerwiseFusion, "layerwise_gated": LayerwiseGatedFusion}


class FusionDraftModel(DFlashQwen3Model):
    """vLLM's DFlash model whose context features are ours."""

    def __init__(self, *, vllm_config: Any, start_layer_id: int = 0, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, start_layer_id=start_layer_id, prefix=prefix)
        if get_tensor_model_parallel_world_size() > 1:
            raise NotImplementedError("gated and layer-wise drafters run without tensor parallelism")
        axes = self.config.dflash_config
        self.fusion_kind: str = axes["fusion"]
        self.states = len(axes["target_layer_ids"])
        shape: Any = SimpleNamespace(
            num_layers=self.config.num_hidden_layers,
            hidden_size=self.config.hidden_size,
            rms_norm_eps=self.config.rms_norm_eps,
            **{name: axes[name] for name in ("target_layer_ids", "gate_activation", "gate_input")},
            **{name: axes[name] for name in ("fusion_init", "fusion_norm")},
        )
        self.gate = Gate(shape) if self.fusion_kind == "gated" else None
        self.layerwise = _LAYERWISE[self.fusion_kind](shape) if self.fusion_kind in _LAYERWISE else None
        if self.layerwise is not None:
            self.fc = None
        self.separate: bool = axes["kv"] == "separate"
        self.own_norm: bool = axes["kv_norm"] == "own"
        self._target_weights: dict[str, Tensor] = {}
        self._kept: tuple[Tensor, Tensor] | None = None  # what stands for the states, and the states

    def take(self, tensors: dict[str, Tensor]) -> None:
        """Our own weights: gate, fusion weights, the context's own projections."""
        like = self.hidden_norm.weight
        for name, tensor in tensors.items():
            if "_target." in name:
                self._target_weights[name] = tensor.to(like)
                continue
            module: nn.Module | None = self.gate if self.fusion_kind == "gated" else self.layerwise
            parameter = None if module is None else dict(module.named_parameters()).get(_inside(name, self.fusion_kind))
            if parameter is None or parameter.shape != tensor.shape:
                raise ValueError(f"a {self.fusion_kind} drafter has no place for {name} {tuple(tensor.shape)}")
            with torch.no_grad():
                parameter.copy_(tensor)

    def _build_fused_kv_buffers(self) -> None:
        super()._build_fused_kv_buffers()
        if self.layerwise is not None:
            self.layerwise.to(self.hidden_norm.weight.device)
            self.layerwise.hidden_norm.weight.data = self.hidden_norm.weight.data
        if self.own_norm:
            norms = [self._own(i, "k_norm_target.weight") for i in range(len(self.layers))]
            self._k_norm_weights = torch.stack([norm for norm in norms if norm is not None]).contiguous()

    def _own(self, layer: int, name: str) -> Tensor | None:
        return self._target_weights.get(f"layers.{layer}.self_attn.{name}")

    def keep(self, states: Tensor) -> Tensor:
        """Keep the states [n, T H] for the projection that follows; returns what stands for them, [n, H]."""
        stand_in = states[:, : self.config.hidden_size].contiguous()
        self._kept = (stand_in, states)
        return stand_in

    def precompute_and_store_context_kv(
        self, context_states: Tensor, context_positions: Tensor, context_slot_mapping: Any = None
    ) -> None:
        """See vLLM's; a dry run (no slots) comes without states."""
        if self.layerwise is not None:
            if self._kept is not None and self._kept[0] is context_states:
                context_states = self._kept[1]
            elif context_slot_mapping is None:
                context_states = context_states.repeat(1, self.states)
            else:
                raise RuntimeError(
                    "this runner copies the context states before they are projected, so that layer-wise fusion does "
                    "not find the target layers; serve the drafter with draftlab's own server"
                )
            self._kept = None
        super().precompute_and_store_context_kv(context_states, context_positions, context_slot_mapping)

    def _project_context_kv(
        self, context_states: Tensor, num_ctx: int, num_layers: int, num_kv_heads: int, head_dim: int
    ) -> tuple[Tensor, Tensor]:
        if self.layerwise is None and not self.separate:
            return super()._project_context_kv(context_states, num_ctx, num_layers, num_kv_heads, head_dim)
        if self.layerwise is not None:
            fused = self.layerwise(context_states.view(num_ctx, self.states, -1))
        else:
            fused = [self.hidden_norm(context_states)] * num_layers
        parts: tuple[list[Tensor], list[Tensor]] = ([], [])
        for i, context in enumerate(fused):
            for place, name in enumerate(("k_proj_target", "v_proj_target")):
                weight, bias = self._projection(i, name, place)
                parts[place].append(F.linear(context, weight, bias).view(num_ctx, num_kv_heads, head_dim))
        return torch.stack(parts[0]).contiguous(), torch.stack(parts[1]).contiguous()

    def _projection(self, layer: int, name: str, place: int) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of a layer's key (place 0) or value (1) projection of the context."""
        if self.separate:
            weight = self._own(layer, f"{name}.weight")
            assert weight is not None
            return weight, self._own(layer, f"{name}.bias")
        # vLLM's own copy: a CPU build packs the layers' weights and leaves nothing to slice
        weight, bias = self._fused_kv_weight, self._fused_kv_bias
        if weight is None:
            raise NotImplementedError("layer-wise fusion with shared K/V requires draft weights without quantization")
        row = 2 * layer + place
        return weight.unflatten(0, (-1, self._kv_size))[row], None if bias is None else bias.view(-1, self._kv_size)[
            row
        ]


def _inside(name: str, fusion: str) -> str:
    """Name of a published weight inside its module here."""
    return name.removeprefix("gate.") if fusion == "gated" else name


class FusionDrafter(DFlashQwen3ForCausalLM):
    """The drafter that vLLM's runner talks to."""

    model_cls = FusionDraftModel

    def combine_hidden_states(self, hidden_states: Tensor) -> Tensor:
        """Context features [n, H] from concatenated states [n, T H]; under layer-wise fusion what stands for them."""
        if self.model.layerwise is not None:
            return self.model.keep(hidden_states)
        if self.model.gate is not None:
            states = hidden_states.unflatten(-1, (self.model.states, -1))
            gate = self.model.gate(states).to(states.dtype)
            hidden_states = (states * gate[..., None]).flatten(-2)
        return super().combine_hidden_states(hidden_states)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Ours first; the rest as vLLM loads it, which builds what the projection needs."""
        own: dict[str, Tensor] = {}
        rest = []
        for name, tensor in weights:
            if name.startswith(("gate.", "layer_fusion_weights")) or "_target." in name:
                own[name] = tensor
            else:
                rest.append((name, tensor))
        self.model.take(own)
        super().load_weights(rest)
