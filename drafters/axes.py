"""A drafter as data: the axes in which published drafters and their ablations differ, and its shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from analysis.errors import DataError
from drafters.rope import check_rope, rope_of
from drafters.settings import Settings, parse
from drafters.target.layers import check_layer_ids, default_layer_ids

if TYPE_CHECKING:  # a configuration is read without torch
    from transformers import Qwen3Config

    from drafters.target.frozen import Target


class DrafterAxes(Settings):
    """What published drafters and their ablations differ in (see drafters.model).

    A field that the fusion does not read has no effect.
    """

    fusion: Literal["concat", "gated", "layerwise", "layerwise_gated"] = "concat"
    gate_activation: Literal["sigmoid", "softmax", "tanh", "affine", "linear"] = "sigmoid"
    gate_input: Literal["last", "none"] = "last"
    fusion_init: Literal["depth", "distance", "uniform"] = "depth"
    fusion_norm: Literal["after", "before"] = "after"
    kv: Literal["shared", "separate"] = "shared"  # projections of context and block
    kv_norm: Literal["shared", "own"] = "shared"  # whether the context's keys have a norm of their own
    mixing: Literal["none", "conv"] = "none"  # of a block's slots (drafters.model.mixing)
    conv_kernel_size: int = Field(default=2, ge=1)  # slots
    conv_group_size: int = Field(default=16, ge=1)  # channels that share a token-dependent kernel
    selection: Literal["argmax", "path", "markov", "markov_gated"] = "argmax"  # (drafters.model.selection)
    selection_rank: int = Field(default=256, ge=1)
    selection_top_k: int = Field(default=16, ge=1)  # candidates of path
    confidence: Literal["none", "head"] = "none"  # (drafters.model.confidence)

    @model_validator(mode="after")
    def _check_axes(self) -> Self:
        if self.kv_norm == "own" and self.kv == "shared":
            raise ValueError("kv_norm: own is for kv: separate")
        return self


class DrafterConfig(DrafterAxes):
    """A drafter, complete: nothing in it is recomputed on load. Shapes are those of a Qwen3 layer."""

    num_layers: int = Field(ge=1)
    target_layer_ids: tuple[int, ...] = Field(min_length=1)
    block_size: int = Field(ge=2)
    mask_token_id: int = Field(ge=0)
    num_target_layers: int | None  # None: a checkpoint that does not say
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-6
    attention_bias: bool = False
    rope_parameters: dict[str, Any] = Field(default_factory=lambda: {"rope_type": "default", "rope_theta": 1e6})
    max_position_embeddings: int = 40960
    draft_vocab: tuple[int, ...] | None = None  # target ids that the drafter predicts, ascending
    prompt_tokens: bool = False  # and those of the sequence's own prompt

    @model_validator(mode="after")
    def _check(self) -> DrafterConfig:
        # not told how many there are: at least one more than it reads, since the last cannot be read
        least = max(self.target_layer_ids) + 2
        check_layer_ids(self.target_layer_ids, least if self.num_target_layers is None else self.num_target_layers)
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError("num_attention_heads must be a multiple of num_key_value_heads")
        check_rope(self.rope_parameters, self.head_dim)
        if self.mixing == "conv" and self.hidden_size % self.conv_group_size:
            raise ValueError(
                f"conv_group_size {self.conv_group_size} does not divide the hidden size {self.hidden_size}"
            )
        if self.mask_token_id >= self.vocab_size:
            raise ValueError(f"mask_token_id {self.mask_token_id} is not a row of the embedding ({self.vocab_size})")
        if self.draft_vocab is not None and list(self.draft_vocab) != sorted(set(self.draft_vocab)):
            raise ValueError("draft_vocab must be ascending, without duplicates")
        return self

    def qwen3(self) -> Qwen3Config:
        """The same shapes as a transformers configuration (rotary embedding, published config.json)."""
        from transformers import Qwen3Config

        return Qwen3Config(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            num_hidden_layers=self.num_layers,
            num_attention_heads=self.num_attention_heads,
            num_key_value_heads=self.num_key_value_heads,
            head_dim=self.head_dim,
            rms_norm_eps=self.rms_norm_eps,
            attention_bias=self.attention_bias,
            max_position_embeddings=self.max_position_embeddings,
            rope_parameters=dict(self.rope_parameters),
            tie_word_embeddings=False,
        )


class DrafterChoice(DrafterAxes):
    """What a user chooses of a drafter; the rest follows from the target (:func:`complete`)."""

    num_layers: int = Field(default=5, ge=1)
    target_layers: int | tuple[int, ...] = 5  # how many, spread by the published rule, or which (0-based)
    block_size: int = Field(default=16, ge=2)
    mask_token_id: int = Field(ge=0)  # required: a mask that is pad or eos by accident trains on the wrong thing
    draft_vocab: int | None = Field(default=None, ge=2)  # None: the target's whole vocabulary
    prompt_tokens: bool = False  # the tokens of the sequence's own prompt join the draft vocabulary
    intermediate_size: int | None = Field(default=None, ge=1)
    num_attention_heads: int | None = Field(default=None, ge=1)
    num_key_value_heads: int | None = Field(default=None, ge=1)
    head_dim: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _check_choice(self) -> Self:
        if self.prompt_tokens and self.draft_vocab is None:
            raise ValueError("prompt_tokens is for a draft_vocab; without one every token can be predicted")
        return self


def complete(choice: DrafterChoice, target: Target, vocab: tuple[int, ...] | None = None) -> DrafterConfig:
    """The full drafter configuration: shapes and layer ids from the target.

    ``vocab``: the target ids of ``draft_vocab`` (drafters.corpus.vocabulary). Raises DataError for a drafter that the
    target cannot have, such as one with an unusable mask token.
    """
    if choice.mask_token_id in {target.pad_id, *target.stop_ids}:
        raise DataError(
            f"drafter.mask_token_id {choice.mask_token_id} is the target's pad or stop token; "
            "choose a token that never occurs in text"
        )
    if choice.mask_token_id >= target.vocab_size:
        raise DataError(
            f"drafter.mask_token_id {choice.mask_token_id} is not a row of the target's embedding: "
            f"0 to {target.vocab_size - 1} are"
        )
    shape = target.model.config.get_text_config()
    return shaped(choice, shape, target.id, num_layers=target.num_layers, vocab_size=target.vocab_size, vocab=vocab)


def shaped(
    choice: DrafterChoice, shape: Any, target: str, *, num_layers: int, vocab_size: int, vocab: tuple[int, ...] | None
) -> DrafterConfig:
    """:func:`complete` from the target's configuration ``shape`` (of transformers) alone, without its tokenizer."""
    layers = choice.target_layers
    ids = default_layer_ids(num_layers, layers) if isinstance(layers, int) else layers
    heads = choice.num_attention_heads or shape.num_attention_heads
    head_dim = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    fields = dict(
        **choice.model_dump(include=set(DrafterAxes.model_fields)),
        num_layers=choice.num_layers,
        target_layer_ids=tuple(ids),
        block_size=choice.block_size,
        mask_token_id=choice.mask_token_id,
        num_target_layers=num_layers,
        vocab_size=vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=choice.intermediate_size or shape.intermediate_size,
        num_attention_heads=heads,
        num_key_value_heads=choice.num_key_value_heads or getattr(shape, "num_key_value_heads", None) or heads,
        head_dim=choice.head_dim or head_dim,
        rms_norm_eps=float(getattr(shape, "rms_norm_eps", 1e-6)),
        rope_parameters=rope_of(getattr(shape, "rope_parameters", None)),
        max_position_embeddings=getattr(shape, "max_position_embeddings", None) or 40960,
        draft_vocab=vocab,
        prompt_tokens=choice.prompt_tokens,
    )
    return parse(DrafterConfig, fields, f"a drafter for target '{target}'")
