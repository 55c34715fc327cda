"""Where prompts come from: named families, files and hub data sets, by one notation.

    gsm_symbolic:200   gsm_symbolic/unseen:200@3   humaneval   path/test.jsonl:100   hf:meta-math/MetaMathQA:train:1000
    heldout:RUN (what the training of RUN held out by corpus.holdout)

``:COUNT`` takes so many, ``@SEED`` (default 0) seeds the generator or the choice.

``python -m drafters.prompts SOURCE...`` shows what a list of sources holds.
"""

from __future__ import annotations

import difflib
import gzip
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from analysis.errors import DataError, UsageError
from analysis.runlog.addresses import resolve
from analysis.runlog.reading import read_manifest
from drafters.prompts import files as prompt_files
from drafters.prompts.families import FAMILIES, GSM_SYMBOLIC, HUMANEVAL, family_caveat, generate, humaneval_bytes
from drafters.prompts.holdout import Holdout, hold_out
from drafters.prompts.identity import Overlap, Prompt, messages, normalise, prompt_set_hash, remove_overlap

__all__ = [
    "Overlap",
    "Prompt",
    "PromptSource",
    "family_caveat",
    "load_prompts",
    "messages",
    "normalise",
    "parse_source",
    "prompt_set_hash",
    "remove_overlap",
    "training_prompts",
]

_HUB = "hf:"
_HELD_OUT = "heldout:"
_COUNTED = re.compile(r"(?P<source>.+):(?P<count>[0-9]+)(?:@(?P<seed>[0-9]+))?")


class PromptSource(BaseModel):
    """One entry of a list of prompt sources."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str = Field(min_length=1)  # family name, file path, "hf:org/name[:config][:split]" or "heldout:RUN"
    count: int | None = Field(None, gt=0)  # None: all; generated families need one
    seed: int = 0  # of the generator, or of the choice of ``count`` rows
    name: str | None = None  # data set label, instead of the default
    split: Literal["seen", "unseen"] | None = None  # gsm_symbolic: templates trained on, or held out whole
    fields: dict[str, str] = {}  # what is in which column, e.g. {question: my_col, answer: out}
    role: Literal["exploratory", "confirmatory"] | None = None
    per_template: int | None = Field(None, gt=0)  # gsm_symbolic: at most this many prompts of a template

    @model_validator(mode="after")
    def _options_fit(self) -> PromptSource:
        if self.source != GSM_SYMBOLIC and (self.split or self.per_template):
            raise ValueError(f"split and per_template are for {GSM_SYMBOLIC}, not for {self.source}")
        if self.fields and (self.source in FAMILIES or self.source == HUMANEVAL):
            raise ValueError(f"fields are for files and hub data sets, not for {self.source}")
        if self.source.startswith(_HELD_OUT) and self.role and not self.name:
            raise ValueError(f"{self.source} has prompts of several data sets; with a role, give them one name")
        if unknown := self.fields.keys() - set(prompt_files.FIELDS):
            raise ValueError(f"fields has no key {sorted(unknown)[0]!r}; keys: {', '.join(prompt_files.FIELDS)}")
        if len(self.fields.keys() & {"question", "turns", "messages"}) > 1:
            raise ValueError("fields may name one of question, turns and messages")
        return self

    @property
    def label(self) -> str:
        """The data set label of its prompts: ``name``, family[/split], file stem, or hub name."""
        if self.name:
            return self.name
        if self.source in FAMILIES or self.source == HUMANEVAL:
            return f"{self.source}/{self.split}" if self.split else self.source
        if self.source.startswith(_HUB):
            return Path(self.source.removeprefix(_HUB).split(":")[0]).name.lower()
        if self.source.startswith(_HELD_OUT):
            return "heldout"
        return prompt_files.default_label(Path(self.source))


def parse_source(text: str) -> PromptSource:
    """A source in shorthand: ``SOURCE[/SPLIT][:COUNT[@SEED]]``; a path that exists as it stands is that path.

    Raises UsageError if it makes no sense.
    """
    source, split, numbers = text.strip(), None, {}
    if (found := _COUNTED.fullmatch(source)) and not Path(source).exists():
        source = found["source"]
        numbers = {name: int(found[name]) for name in ("count", "seed") if found[name] is not None}
    if source in (f"{GSM_SYMBOLIC}/seen", f"{GSM_SYMBOLIC}/unseen"):
        source, split = source.split("/")
    try:
        return PromptSource.model_validate({"source": source, "split": split, **numbers})
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"prompt source '{text}': {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def load_prompts(sources: Sequence[PromptSource | str], *, answers: bool = False) -> list[Prompt]:
    """The prompts of all sources, in order; of equal prompts (same ``prompt_id``) the first is kept.

    ``answers``: prompts with other answers are not equal; a training with given answers has an example of each.

    Raises UsageError for a missing count, package or an unclear label, DataError for anything unreadable.
    """
    parsed = [parse_source(source) if isinstance(source, str) else source for source in sources]
    meaning: dict[str, tuple[str | None, str | None]] = {}
    for source in parsed:  # tables know a prompt's role and split by its label
        if meaning.setdefault(source.label, (source.role, source.split)) != (source.role, source.split):
            raise UsageError(f"two sources are labelled '{source.label}' but differ in role or split; give one a name")
    return _distinct((prompt for source in parsed for prompt in _load(source, answers)), answers)


def training_prompts(
    sources: Sequence[PromptSource], holdout: Holdout | None, *, given_answers: bool
) -> tuple[list[Prompt], list[Prompt]]:
    """What a training learns from, and what it holds out by name."""
    prompts = load_prompts(sources, answers=given_answers)
    return hold_out(prompts, holdout) if holdout else (prompts, [])


def _held_out_of(reference: str) -> list[Prompt]:
    """The held-out prompts of a run. Raises DataError if it has none, or its sources are not what they were."""
    training = read_manifest(resolve(reference)).training
    corpus = training.settings.get("corpus", {}) if training else {}
    if training is None or not corpus.get("holdout"):
        raise DataError(f"{_HELD_OUT}{reference}: this run held nothing out; its configuration has no corpus.holdout")
    sources = [PromptSource.model_validate(source) for source in corpus["prompts"]]
    holdout, given = Holdout.model_validate(corpus["holdout"]), corpus.get("given_answers", False)
    trained, held = training_prompts(sources, holdout, given_answers=given)
    if prompt_set_hash(trained) != training.prompt_set_sha256:
        raise DataError(
            f"{_HELD_OUT}{reference}: its sources ({', '.join(s.source for s in sources)}) now hold other prompts than "
            "it was trained on; bring those back"
        )
    return held


def _distinct(prompts: Iterable[Prompt], answers: bool = False) -> list[Prompt]:
    first: dict[object, Prompt] = {}
    for prompt in prompts:
        said = (prompt.answers, prompt.thought) if answers else None
        first.setdefault((prompt.prompt_id, said), prompt)
    return list(first.values())


def _load(source: PromptSource, answers: bool) -> list[Prompt]:
    if source.source in FAMILIES:
        if source.count is None:
            raise UsageError(f"{source.label}: say how many prompts, e.g. {source.label}:200")
        return generate(
            source.source,
            source.count,
            label=source.label,
            seed=source.seed,
            split=source.split,
            per_template=source.per_template,
        )
    if source.source.startswith(_HELD_OUT):
        held = _held_out_of(source.source.removeprefix(_HELD_OUT))
        distinct = [replace(prompt, dataset=source.name) for prompt in held] if source.name else held
    else:
        rows = _rows(source.source)
        distinct = _distinct(prompt_files.prompts_of_rows(rows, source.source, source.label, source.fields), answers)
    if source.count is None:
        return distinct
    if source.count > len(distinct):
        raise DataError(f"{source.source}: {source.count} distinct prompts asked for, {len(distinct)} available")
    # by hash, not by a generator: the choice does not depend on row order or on a library's version
    distinct.sort(key=lambda prompt: hashlib.sha256(f"{source.seed}:{prompt.prompt_id}".encode()).digest())
    return distinct[: source.count]


def _rows(source: str) -> list[prompt_files.Row]:
    if source == HUMANEVAL:
        return prompt_files.rows_of_text(gzip.decompress(humaneval_bytes()), HUMANEVAL)
    if source.startswith(_HUB):
        return prompt_files.rows_of_hub(source.removeprefix(_HUB))
    path = Path(source)
    if not path.exists():
        families = [*FAMILIES, HUMANEVAL]
        near = difflib.get_close_matches(source, families, n=1)
        hint = f"did you mean {near[0]}?" if near else f"families: {', '.join(families)}"
        raise DataError(f"prompt source '{source}': no such file, and no such family; {hint}")
    return prompt_files.rows_of_file(path)
