"""The configuration of a training run: its drafter (drafters.axes), loss, corpus, validation, training and seeds.

A YAML file may start from another (``extends: other.yaml``, beside it); ``--set a.b=value`` overrides one
field. Everything is checked when it is read, and unknown fields are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BeforeValidator, Field, model_validator

from analysis.errors import DataError, UsageError
from drafters.axes import DrafterChoice
from drafters.prompts.holdout import Holdout
from drafters.prompts.sources import Prompt, PromptSource, parse_source, training_prompts
from drafters.settings import Settings, parse

# in YAML a source may be written in short, as on the command line: gsm_symbolic/unseen:200
PromptList = tuple[
    Annotated[PromptSource, BeforeValidator(lambda v: parse_source(v) if isinstance(v, str) else v)], ...
]


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
    answers: str | None = None  # a file of the target's answers by an engine (python -m drafters.corpus)
    holdout: Holdout | None = None  # prompts taken out of the training, to be asked as heldout:RUN

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.given_answers and self.answers is not None:
            raise ValueError("answers are the target's by an engine; given_answers takes those in the data")
        return self

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
    share: float = Field(default=1.0, gt=0, le=1)
    # of the corpus's examples; a smaller share is part of a larger one, the draft vocabulary that of all of them
    batch: int = Field(default=32, ge=1)  # sequences per forward pass
    accumulate: int = Field(default=1, ge=1)  # forward passes per optimizer step, of all ranks together
    anchors: int = Field(default=512, ge=1)  # per sequence, without replacement
    lr: float = Field(default=6e-4, ge=0)
    warmup: float = Field(default=0.04, ge=0, lt=1)
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    clip: float = 1.0
    precision: Literal["auto", "bfloat16", "float32", "float64"] = "auto"  # of matrix products; weights are float32
    # of weights, gradients and moments over the ranks (drafters.training.sharding); experimental
    sharding: Literal["none", "fsdp2"] = "none"
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
