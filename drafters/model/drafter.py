"""The block-diffusion drafter: a few transformer layers that fill a block of MASKs in one pass.

Queries come from the block alone. Each layer attends to two sets of keys: the *context* (projected from
the fused hidden states of the target, positions before the anchor) and the block's own slots, in both
directions. The two are kept apart all the way down, so that

* training never builds the (N B) x (S + N B) score matrix of a mask: a block's scores are [B, S + B];
* decoding projects the context feature of a committed token once and keeps it (:class:`Context`).

The layer layout and weight names are those of the published DFlash checkpoints (a Qwen3 layer). With
``kv: separate`` (DFlare, arXiv 2606.02091) the context has key and value projections of its own, named as in the
public DFlare checkpoints; its keys share the block's norm, as there, unless ``kv_norm: own``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from drafters.axes import DrafterConfig
from drafters.keyed import torch_generator
from drafters.model.confidence import ConfidenceHead
from drafters.model.fusion import ConcatFusion, Fusion, GatedFusion, RMSNorm
from drafters.model.layerwise import LayerwiseFusion, LayerwiseGatedFusion
from drafters.model.mixing import LocalConvolution
from drafters.model.rotary import frequencies, rotate
from drafters.model.selection import SELECTIONS, Selection

FUSIONS: dict[str, type[ConcatFusion] | type[LayerwiseFusion]] = {
    "concat": ConcatFusion,
    "gated": GatedFusion,
    "layerwise": LayerwiseFusion,
    "layerwise_gated": LayerwiseGatedFusion,
}
# Matrices that stay 0 until they are trained, so that what they belong to starts as nothing.
_START_AT_ZERO = ("kernel_projection.weight", "successor_codebook", "markov_w2.weight")
# What chooses tokens, by the beginning of its parameters' names.
HEADS = ("candidate_selector.", "markov_head.", "confidence_head.")
# Attention scores of more elements than this are computed block group by block group, and again in the
# backward pass: 2^28 fp32 scores are 1 GiB a layer.
SCORE_LIMIT = 2**28


@dataclass(frozen=True)
class Context:
    """Projected context of a batch: per draft layer, keys and values [b, kv heads, S, head dim].

    Keys are normed and rotated. Only committed tokens are ever projected, each once.
    """

    keys: list[torch.Tensor]
    values: list[torch.Tensor]


def block_attention(
    query: torch.Tensor,
    block_key: torch.Tensor,
    block_value: torch.Tensor,
    context_key: torch.Tensor,
    context_value: torch.Tensor,
    anchors: torch.Tensor,
    sizes: torch.Tensor | None = None,
) -> torch.Tensor:
    """Exact attention of N blocks over the context before their anchors and over themselves.

    ``query`` [b, N, B, heads, d]; ``block_key``, ``block_value`` [b, N, B, kv heads, d];
    ``context_key``, ``context_value`` [b, kv heads, S, d]; ``anchors`` int64 [b, N]: a block sees context
    position j iff j < its anchor. ``sizes`` int64 [b, N]: slots from there on do not exist for the others (a
    last block cut short). Returns [b, N, B, heads, d]. One softmax runs over both kinds of scores.
    """
    batch, blocks, size, heads, dim = query.shape
    kv_heads, length = context_key.shape[1:3]
    group = heads // kv_heads
    # [b, kv, N, group, B, d]: the queries that share a key head lie together, so keys are never repeated
    q = query.unflatten(3, (kv_heads, group)).permute(0, 3, 1, 4, 2, 5) * (1 / math.sqrt(dim))
    k = block_key.permute(0, 3, 1, 2, 4)
    v = block_value.permute(0, 3, 1, 2, 4)
    rows = q.reshape(batch, kv_heads, blocks * group * size, dim)
    context = (rows @ context_key.transpose(-1, -2)).view(batch, kv_heads, blocks, group * size, length)
    hidden = torch.arange(length, device=anchors.device) >= anchors[..., None]
    context = context.masked_fill(hidden[:, None, :, None, :], float("-inf"))
    own = q.reshape(batch, kv_heads, blocks, group * size, dim) @ k.transpose(-1, -2)
    if sizes is not None:
        absent = torch.arange(size, device=sizes.device) >= sizes[..., None]
        own = own.masked_fill(absent[:, None, :, None, :], float("-inf"))
    weights = torch.cat((context, own), dim=-1).softmax(dim=-1, dtype=torch.float32).to(query.dtype)
    from_context = weights[..., :length].reshape(batch, kv_heads, -1, length) @ context_value
    out = from_context.view_as(own[..., :1].expand(*own.shape[:-1], dim)) + weights[..., length:] @ v
    return out.view(batch, kv_heads, blocks, group, size, dim).permute(0, 2, 4, 1, 3, 5).flatten(3, 4)


class BlockAttention(nn.Module):
    """Attention of the block's queries over context and block, grouped heads, normed queries and keys."""

    def __init__(self, config: DrafterConfig):
        super().__init__()
        self.dim = config.head_dim
        hidden, bias = config.hidden_size, config.attention_bias
        self.q_proj = nn.Linear(hidden, config.num_attention_heads * self.dim, bias=bias)
        self.k_proj = nn.Linear(hidden, config.num_key_value_heads * self.dim, bias=bias)
        self.v_proj = nn.Linear(hidden, config.num_key_value_heads * self.dim, bias=bias)
        self.o_proj = nn.Linear(config.num_attention_heads * self.dim, hidden, bias=bias)
        self.q_norm = RMSNorm(self.dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(self.dim, config.rms_norm_eps)
        self.separate, self.own_norm = config.kv == "separate", config.kv_norm == "own"
        if self.separate:
            self.k_proj_target = nn.Linear(hidden, config.num_key_value_heads * self.dim, bias=bias)
            self.v_proj_target = nn.Linear(hidden, config.num_key_value_heads * self.dim, bias=bias)
        if self.own_norm:
            self.k_norm_target = RMSNorm(self.dim, config.rms_norm_eps)

    def project_context(
        self, context: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [b, kv heads, S, d] of context features [b, S, H]; cos, sin [.., S, d]."""
        to_key, to_value = (self.k_proj_target, self.v_proj_target) if self.separate else (self.k_proj, self.v_proj)
        norm = self.k_norm_target if self.own_norm else self.k_norm
        key = norm(to_key(context).unflatten(-1, (-1, self.dim))).transpose(1, 2)
        value = to_value(context).unflatten(-1, (-1, self.dim)).transpose(1, 2)
        return rotate(key, cos, sin), value

    def forward(
        self,
        x: torch.Tensor,
        context_key: torch.Tensor,
        context_value: torch.Tensor,
        anchors: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        sizes: torch.Tensor | None,
    ) -> torch.Tensor:
        """x [b, N, B, H]; cos, sin [b, N, B, 1, d]; the rest as in :func:`block_attention`."""
        query = rotate(self.q_norm(self.q_proj(x).unflatten(-1, (-1, self.dim))), cos, sin)
        key = rotate(self.k_norm(self.k_proj(x).unflatten(-1, (-1, self.dim))), cos, sin)
        value = self.v_proj(x).unflatten(-1, (-1, self.dim))
        batch, blocks, size, heads, _ = query.shape
        per_block = batch * heads * size * (context_key.shape[2] + size)
        group = max(1, SCORE_LIMIT // per_block)
        if group >= blocks or sizes is not None:  # sizes come with decoding: one block a sequence
            out = block_attention(query, key, value, context_key, context_value, anchors, sizes)
        else:
            pieces = zip(
                query.split(group, 1), key.split(group, 1), value.split(group, 1), anchors.split(group, 1), strict=True
            )
            out = torch.cat(
                [
                    checkpoint(block_attention, q, k, v, context_key, context_value, a, use_reentrant=False)
                    for q, k, v, a in pieces
                ],
                dim=1,
            )
        return self.o_proj(out.flatten(-2))


class MLP(nn.Module):
    """SwiGLU feed-forward, no bias."""

    def __init__(self, config: DrafterConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DraftLayer(nn.Module):
    """Pre-norm attention and feed-forward with residuals, each between two local convolutions with ``mixing: conv``."""

    def __init__(self, config: DrafterConfig):
        super().__init__()
        self.self_attn = BlockAttention(config)
        self.mlp = MLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mixes = config.mixing == "conv"
        if self.mixes:
            self.attention_conv, self.mlp_conv = LocalConvolution(config), LocalConvolution(config)

    def forward(self, x: torch.Tensor, *attention: torch.Tensor | None) -> torch.Tensor:
        if not self.mixes:
            x = x + self.self_attn(self.input_layernorm(x), *attention)
            return x + self.mlp(self.post_attention_layernorm(x))
        mixed, delta = self.attention_conv.before(self.input_layernorm(x))
        x = x + self.attention_conv.after(self.self_attn(mixed, *attention), delta)
        mixed, delta = self.mlp_conv.before(self.post_attention_layernorm(x))
        return x + self.mlp_conv.after(self.mlp(mixed), delta)


class Drafter(nn.Module):
    """Fusion, draft layers, final norm, and the heads that choose tokens where there are any. Embedding and output head
    are the target's, frozen, outside."""

    fusion: Fusion
    inv_freq: torch.Tensor

    def __init__(self, config: DrafterConfig):
        super().__init__()
        self.config = config
        self.fusion = FUSIONS[config.fusion](config)
        self.layers = nn.ModuleList(DraftLayer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        if config.selection in SELECTIONS:
            name, kind = SELECTIONS[config.selection]
            self.add_module(name, kind(config))
        self.confidence_head = ConfidenceHead(config) if config.confidence == "head" else None
        inv_freq, self.rope_scale = frequencies(config.qwen3())
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def initialise(self, seed: int) -> Drafter:
        """Matrices from N(0, 0.02), each by its own name and the seed, so that arms of one seed share every
        weight that they have in common; norms and what a fusion starts from keep the values they were made with."""
        for name, parameter in self.named_parameters():
            inside, _, rest = name.partition(".")
            drawn = self.fusion.is_drawn(rest, parameter) if inside == "fusion" else parameter.dim() == 2
            if drawn and not name.endswith(_START_AT_ZERO):
                with torch.no_grad():
                    parameter.normal_(0.0, 0.02, generator=torch_generator(seed, "init", name))
        return self

    @property
    def selection(self) -> Selection | None:
        """What chooses a slot's token by the one before it; None: each slot by itself."""
        if self.config.selection not in SELECTIONS:
            return None
        return cast("Selection", self.get_submodule(SELECTIONS[self.config.selection][0]))

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""
        return self.norm.weight.dtype

    def cast(self, dtype: torch.dtype) -> Drafter:
        """Give the weights this type; the rotary embedding's frequencies, which bfloat16 would spoil, keep theirs."""
        frequencies = self.inv_freq
        self.to(dtype)
        self.inv_freq = frequencies
        return self

    def rotary(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin of the rotary embedding, [..., rotated dimensions], for int64 positions [...]."""
        angle = positions[..., None].float() * self.inv_freq
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos() * self.rope_scale, angle.sin() * self.rope_scale

    def project_context(self, features: torch.Tensor, positions: torch.Tensor) -> Context:
        """Context of target features [b, S, T, H] that stand at ``positions``, int64 [S] or [b, S]."""
        cos, sin = self.rotary(positions)
        if positions.dim() == 2:
            cos, sin = cos[:, None], sin[:, None]
        layers = cast("list[DraftLayer]", self.layers)
        projected = [
            layer.self_attn.project_context(c, cos, sin) for layer, c in zip(layers, self.fusion(features), strict=True)
        ]
        return Context([key for key, _ in projected], [value for _, value in projected])

    def forward(
        self, embeddings: torch.Tensor, anchors: torch.Tensor, context: Context, sizes: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Hidden states [b, N, B, H] of blocks embedded as [b, N, B, H] at ``anchors`` int64 [b, N].

        ``sizes`` int64 [b, N] cuts blocks short: slots from there on are not seen by the others.
        """
        slots = torch.arange(embeddings.shape[2], device=anchors.device)
        cos, sin = (part[..., None, :] for part in self.rotary(anchors[..., None] + slots))
        x = embeddings
        for layer, key, value in zip(self.layers, context.keys, context.values, strict=True):
            x = layer(x, key, value, anchors, cos, sin, sizes)
        return self.norm(x)

    def draft_hidden(self, features: torch.Tensor, embeddings: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
        """Training and one-step drafting: context 0..S-1 from features [b, S, T, H], then the blocks."""
        positions = torch.arange(features.shape[1], device=features.device)
        return self(embeddings, anchors, self.project_context(features, positions))

    def parameter_counts(self) -> dict[str, int]:
        """Parameters by item: each part of the fusion, the layers, their own projections of the context and local
        convolutions, the heads that choose tokens, the norms outside the layers, and all of them."""
        counts: dict[str, int] = {}
        for name, parameter in self.named_parameters():
            if "_target." in name:
                item = "context_kv"
            elif "_conv." in name:
                item = "convolution"
            elif name.startswith(HEADS):
                item = name.split(".")[0]
            elif name.startswith("layers."):
                item = "layers"
            else:
                item = "norms" if "norm" in name else name.split(".")[1]
            counts[item] = counts.get(item, 0) + parameter.numel()
        return {**counts, "total": sum(counts.values())}
