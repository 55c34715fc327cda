"""The manifest of a run (``run.json``): what was run, with what, and which files belong to it."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from analysis.runlog.schema import SCHEMA_VERSION

Status = Literal["running", "complete", "failed"]


class _Record(BaseModel):
    # unknown fields are kept: a newer minor writer may add some, and a re-save must not lose them
    model_config = ConfigDict(extra="allow")


class Part(_Record):
    """One Parquet file of a table, by its path inside the run folder."""

    file: str
    rows: int
    sha256: str


class Target(_Record):
    """The frozen model that verifies."""

    id: str
    sha256: str | None = None
    architecture: str | None = None
    num_layers: int | None = None
    hidden_size: int | None = None
    vocab_size: int | None = None
    note: str | None = None  # e.g. that the weights were dequantised from 4 bits
    chat_template_sha256: str | None = None


class Drafter(_Record):
    """The trained drafter: its configuration, and its parameters counted by item."""

    config: dict[str, Any]
    parameters: dict[str, int] = Field(default_factory=dict)
    init_sha256: str | None = None
    checkpoint_sha256: str | None = None


class Training(_Record):
    """One training: settings, consumed data, and progress."""

    status: Status
    settings: dict[str, Any]
    settings_sha256: str
    seeds: dict[str, int]
    precision: str | None = None  # of the matrix products, as the device of the first step decided it
    corpus_sha256: str | None = None
    prompt_set_sha256: str | None = None
    examples: int | None = None
    steps: int | None = None
    data_hash: str | None = None  # rolling hash after the last step


class Evaluation(_Record):
    """One evaluation; its key in the manifest is its ``eval_id``, the hash of these settings."""

    status: Status
    protocol: Literal["prefix", "generate", "replay"]
    settings: dict[str, Any]
    prompt_set_sha256: str
    prompts: int
    block_size: int | None = None  # None: not recorded
    checkpoint_sha256: str | None = None
    datasets: dict[str, Any] = Field(default_factory=dict)  # per dataset: prompts, role, vocabulary coverage, ...


class Environment(_Record):
    """Where it ran. Times and commit may differ between two bit-equal runs; nothing else here should."""

    versions: dict[str, str] = Field(default_factory=dict)
    threads: int | None = None
    device: str | None = None
    git_commit: str | None = None


class SourceFile(_Record):
    """A log file of another tool that the run was imported from. ``path``: as it was given; ``options``: what the user
    said about it, as on the command line."""

    path: str
    bytes: int
    sha256: str
    importer_version: int
    options: str = ""


class Manifest(_Record):
    """``run.json``. ``status`` is ``complete`` only when every stage in it is."""

    schema_version: int = SCHEMA_VERSION
    name: str
    status: Status = "running"
    created_by: str
    label: str | None = None  # display name of the arm
    parent: str | None = None  # the run whose weights this one evaluates, modified as described by `variant`
    variant: str | None = None
    target: Target | None = None
    drafter: Drafter | None = None
    training: Training | None = None
    evaluations: dict[str, Evaluation] = Field(default_factory=dict)
    serving: dict[str, Any] | None = None  # a serving experiment: its plan, and what our own decoder counted
    environment: Environment = Field(default_factory=Environment)
    timings: dict[str, float] = Field(default_factory=dict)  # seconds per stage
    caveats: list[str] = Field(default_factory=list)
    sources: list[SourceFile] | None = None  # of an imported run
    tables: dict[str, list[Part]] = Field(default_factory=dict)

    def overall_status(self) -> Status:
        """``failed`` if any stage failed, ``running`` if any is unfinished, else ``complete``."""
        states = {evaluation.status for evaluation in self.evaluations.values()}
        if self.training:
            states.add(self.training.status)
        if "failed" in states:
            return "failed"
        return "running" if "running" in states else "complete"

    def to_json(self) -> str:
        """Readable and stable: equal manifests are equal bytes."""
        data = self.model_dump(mode="json", exclude_none=True)
        return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def settings_hash(settings: Any) -> str:
    """sha256 of settings as canonical JSON (sorted keys, no spaces): equal settings, equal hash."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
