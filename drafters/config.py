"""Configurations: every published drafter, and every ablation, as data.

A YAML file may start from another (``extends: other.yaml``, beside it); ``--set a.b=value`` overrides one
field. Everything is checked when it is read, and unknown fields are refused by name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from transformers import Qwen3Config

from analysis.errors import DataError, UsageError
from drafters.prompts.holdout import Holdout
from drafters.prompts.sources import Prompt, PromptSource, parse_source, training_prompts
from drafters.rope import check_rope, rope_of
from drafters.target.frozen import Target, check_layer_ids, default_layer_ids

Kind = TypeVar("Kind", bound=BaseModel)


# in YAML a source may be written in short, as on the command line: gsm_symbolic/unseen:200
PromptList = tuple[
    Annotated[PromptSource, BeforeValidator(lambda v: parse_source(v) if isinstance(v, str) else v)], ...
]


class Settings(BaseModel):
    """A section of a configuration: immutable, and closed to unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


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


class LossSettings(Settings):
    """Weights of the slots in the loss (drafters.training.losses). None: the published value for the block size."""

    weighting: Literal["fixed", "progressive", "dpace"] = "fixed"
    gamma: float | None = Field(default=None, gt=0)  # fixed
    gamma_start: float | None = Field(default=None, gt=0)  # progressive
    gamma_end: float | None = Field(default=None, gt=0)
    alpha: float | None = Field(default=None, ge=0, le=1)  # dpace: what no confidence at all still counts as
    # distance of the draft's distribution from the target's (drafters.training.distances), and its share of the loss,
    # of which the cross-entropy has the rest
    distill: Literal["none", "kl", "tv", "l1"] = "none"
    distill_weight: float | None = Field(default=None, gt=0, le=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.distill_weight is not None and self.distill == "none":
            raise ValueError("distill_weight is for distill: kl, tv or l1")
        readers = {"gamma": "fixed", "gamma_start": "progressive", "gamma_end": "progressive", "alpha": "dpace"}
        for name, weighting in readers.items():
            if getattr(self, name) is not None and weighting != self.weighting:
                raise ValueError(f"{name} is for weighting: {weighting}")
        return self


class CorpusSettings(Settings):
    """Prompts that the target answers, and how its answers and hidden states are kept.

    ``features``: ``stored`` keeps hidden states on disk, so that the target runs once for all arms and epochs;
    ``online`` keeps answers alone, and the target reads them again in every training step. Stored ones take
    2 bytes x layers x hidden size a token: right for a small target, out of reach for millions of examples.
    """

    prompts: PromptList = Field(min_length=1)
    features: Literal["stored", "online"] = "stored"
    max_new_tokens: int = Field(default=1024, ge=2)
    max_length: int = 3072
    batch_size: int = 32
    feature_dtype: Literal["bfloat16", "float16"] = "bfloat16"
    given_answers: bool = False
    holdout: Holdout | None = None  # prompts taken out of the training, to be asked as heldout:RUN

    def training_prompts(self) -> list[Prompt]:
        """What is trained on: the prompts of all sources without those held out."""
        return training_prompts(self.prompts, self.holdout, given_answers=self.given_answers)[0]


class ValidationSettings(Settings):
    """Held-out prompts on which training is followed, by the mean accepted length of the ``prefix`` protocol.

    Empty lists: not followed.
    """

    seen: PromptList = ()
    unseen: PromptList = ()
    every: int = Field(default=100, ge=1)  # optimizer steps


class TrainingSettings(Settings):
    """The published recipe by default (DFlash, arXiv 2602.06036, A.1): AdamW without weight decay, linear
    warm-up over 4% of the steps, cosine to 0, gradients clipped to norm 1."""

    epochs: int = Field(default=1, ge=1)
    steps: int | None = Field(default=None, ge=1)  # stop (and end the cosine) here instead of after the epochs
    batch: int = Field(default=32, ge=1)  # sequences per forward pass
    accumulate: int = Field(default=1, ge=1)  # forward passes per optimizer step, of all ranks together
    anchors: int = Field(default=512, ge=1)  # per sequence, without replacement
    lr: float = 6e-4
    warmup: float = Field(default=0.04, ge=0, lt=1)
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    clip: float = 1.0
    precision: Literal["auto", "bfloat16", "float32", "float64"] = "auto"  # of matrix products; weights are float32
    checkpoint_every: int = Field(default=200, ge=1)
    init_from: str | None = None  # a checkpoint folder to start from (drafters.training.warm_start)
    # of W_c in concat and gated fusions: N(0, 0.02), or the states' own basis at equal norm (ConcatFusion.keep_basis)
    projection_init: Literal["normal", "basis"] = "normal"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.projection_init == "basis" and self.init_from is not None:
            raise ValueError("projection_init: basis has no effect with init_from, which provides the projection")
        return self


class Seeds(Settings):
    """Separate, so that one can be varied alone."""

    init: int = 0
    data: int = 0
    anchors: int = 0


class RunConfig(Settings):
    """One arm: everything that ``python -m drafters.train`` needs."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")  # also the folder under runs/
    label: str | None = None
    target: str
    target_dtype: Literal["float32", "bfloat16"] = "float32"  # in which the target, and its drafter with it, is run
    thinking: bool = False  # the switch of chat templates that have one: in the corpus, validation and evaluations
    drafter: DrafterChoice
    loss: LossSettings = LossSettings()
    corpus: CorpusSettings
    validation: ValidationSettings = ValidationSettings()
    training: TrainingSettings = TrainingSettings()
    seeds: Seeds = Seeds()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.training.projection_init == "basis" and self.drafter.fusion not in ("concat", "gated"):
            raise ValueError(
                f"training.projection_init: basis is for concat and gated; {self.drafter.fusion} has no W_c"
            )
        return self

    @property
    def reads_final_state(self) -> bool:
        """Whether training needs the target's distributions, and so its final hidden state."""
        return self.loss.distill != "none" or self.drafter.confidence == "head"


def complete(choice: DrafterChoice, target: Target, vocab: tuple[int, ...] | None = None) -> DrafterConfig:
    """The full drafter configuration: shapes and layer ids from the target.

    ``vocab``: the target ids of ``draft_vocab`` (drafters.corpus.vocabulary). Raises DataError for a drafter that the
    target cannot have, such as one with an unusable mask token.
    """
    shape = target.model.config.get_text_config()
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
    layers = choice.target_layers
    ids = default_layer_ids(target.num_layers, layers) if isinstance(layers, int) else layers
    heads = choice.num_attention_heads or shape.num_attention_heads
    head_dim = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    fields = dict(
        **choice.model_dump(include=set(DrafterAxes.model_fields)),
        num_layers=choice.num_layers,
        target_layer_ids=tuple(ids),
        block_size=choice.block_size,
        mask_token_id=choice.mask_token_id,
        num_target_layers=target.num_layers,
        vocab_size=target.vocab_size,
        hidden_size=target.hidden_size,
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
    return parse(DrafterConfig, fields, f"a drafter for target '{target.id}'")


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping, with its ``extends`` (a file beside it, read first) merged field by field."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"no configuration {path}") from error
    except yaml.YAMLError as error:
        raise DataError(f"{path}: not YAML ({error})") from error
    if not isinstance(data, dict):
        raise DataError(f"{path}: expected a mapping of settings")
    parent = data.pop("extends", None)
    return merge(read_yaml(path.parent / parent), data) if parent else data


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the fields of ``over`` put over it, mappings inside mappings; lists are replaced whole."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def load_config(path: Path | str, overrides: Sequence[str] = ()) -> RunConfig:
    """Read one arm's configuration; ``overrides`` are ``section.field=value`` with the value in YAML.

    Raises UsageError for a missing file or a malformed override, DataError naming the field that is wrong.
    """
    data = read_yaml(Path(path))
    for override in overrides:
        key, sign, text = override.partition("=")
        if not sign or not key:
            raise UsageError(f"--set requires section.field=value, not '{override}'")
        nested: Any = yaml.safe_load(text)
        for name in reversed(key.split(".")):
            nested = {name: nested}
        data = merge(data, nested)
    return parse(RunConfig, data, str(path))


def parse(kind: type[Kind], data: Any, where: str) -> Kind:
    """Validate settings; DataError names the first field that is wrong, and the nearest one for a misspelt name."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = [str(part) for part in first["loc"]]
        field = f"'{'.'.join(place)}': " if place else ""
        reason = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            known = _fields_at(kind, place[:-1])
            near = difflib.get_close_matches(place[-1], known, n=1)
            reason = f"no such field; did you mean {near[0]}?" if near else f"no such field; known: {', '.join(known)}"
        raise DataError(f"{where}: {field}{reason}") from error


def _fields_at(kind: type[BaseModel], place: Sequence[str]) -> list[str]:
    """Names of the fields of the section at ``place`` inside ``kind``; list positions lead to the section in them."""
    for name in place:
        if name in kind.model_fields:
            kind = next(_sections(kind.model_fields[name].annotation), kind)
    return list(kind.model_fields)


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _sections(part)
