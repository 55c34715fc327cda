"""Where the rows of a training's history go beside the run: a file for schedulers, TensorBoard, Weights & Biases.

None of them changes a training, so none is part of its settings: a training may go on with others.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from analysis.errors import UsageError
from analysis.runlog.manifest import settings_hash
from analysis.runlog.writing import write_atomic
from drafters.config import RunConfig
from drafters.progress import say

PROGRESS = "progress.jsonl"
PROJECT = "draftlab"


class Log(Protocol):
    """Takes a row of each optimizer step."""

    def row(self, row: Mapping[str, Any]) -> None:
        """Columns of the history, with ``steps``, how many there will be, and ``spike``."""

    def close(self) -> None:
        """After the last row, however the training ends."""


class JsonLines:
    """``progress.jsonl`` in the run folder: a line a step, flushed at once."""

    def __init__(self, folder: Path, config: RunConfig, step: int):
        path = folder / PROGRESS
        if path.exists():  # what a stopped training wrote after its last saved state comes again
            lines = path.read_text().splitlines(keepends=True)
            write_atomic(path, "".join(line for line in lines if _step_of(line) <= step))
        self._file = path.open("a")

    def row(self, row: Mapping[str, Any]) -> None:
        """See :class:`Log`."""
        self._file.write(json.dumps(dict(row)) + "\n")
        self._file.flush()

    def close(self) -> None:
        """See :class:`Log`."""
        self._file.close()


class TensorBoard:
    """Scalars under ``tensorboard/`` in the run folder."""

    def __init__(self, folder: Path, config: RunConfig, step: int):
        module = importlib.import_module("torch.utils.tensorboard")
        self._writer = module.SummaryWriter(log_dir=str(folder / "tensorboard"), purge_step=step + 1)

    def row(self, row: Mapping[str, Any]) -> None:
        """See :class:`Log`."""
        for name, value in _scalars(row).items():
            self._writer.add_scalar(name, value, row["step"])

    def close(self) -> None:
        """See :class:`Log`."""
        self._writer.close()


class WandB:
    """A run of the project ``draftlab``; the same training goes on with the same run."""

    def __init__(self, folder: Path, config: RunConfig, step: int):
        module = importlib.import_module("wandb")
        settings = config.model_dump(mode="json")
        self._run = module.init(
            project=PROJECT,
            name=config.name,
            id=f"{config.name}-{settings_hash(settings)[:8]}",
            resume="allow",
            config=settings,
            dir=str(folder),
        )

    def row(self, row: Mapping[str, Any]) -> None:
        """See :class:`Log`."""
        self._run.log(_scalars(row), step=row["step"])

    def close(self) -> None:
        """See :class:`Log`."""
        self._run.finish()


#: By the name that ``--log`` takes: the module that it needs, the package that brings it, and how it is opened.
LOGS: dict[str, tuple[str | None, str, Callable[[Path, RunConfig, int], Log]]] = {
    "jsonl": (None, "", JsonLines),
    "tensorboard": ("torch.utils.tensorboard", "tensorboard", TensorBoard),
    "wandb": ("wandb", "wandb", WandB),
}


def require_logs(names: Sequence[str]) -> None:
    """Raise UsageError if a package is missing that one of ``names`` needs: before hours of answers."""
    for name in names:
        module, package, _ = LOGS[name]
        try:
            if module is not None:
                importlib.import_module(module)
        except ImportError as error:
            raise UsageError(f"--log {name}: the package {package} is not installed; pip install {package}") from error


@contextmanager
def logging_to(
    names: Sequence[str], folder: Path, config: RunConfig, step: int
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function that takes rows, after ``step`` steps were done before.

    A log that fails, as one over a network may, is given up with a line on stderr: the training goes on.
    """
    opened = {name: LOGS[name][2](folder, config, step) for name in dict.fromkeys(names)}

    def attempt(name: str, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            del opened[name]
            say(f"{config.name}: --log {name} failed and is given up ({type(error).__name__}: {error})")

    def row(row: Mapping[str, Any]) -> None:
        for name, log in list(opened.items()):
            attempt(name, lambda log=log: log.row(row))  # type: ignore[misc]

    try:
        yield row
    finally:
        for name, log in list(opened.items()):
            attempt(name, log.close)


def _scalars(row: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value) for name, value in row.items() if isinstance(value, int | float) and name not in _NO_CURVES
    }


_NO_CURVES = {"step", "steps"}


def _step_of(line: str) -> float:
    """Of a line; one that was cut off comes after all."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
