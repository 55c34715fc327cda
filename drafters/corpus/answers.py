"""Answers of an engine that ran the target, as token ids in a JSON-lines file that grows while they are asked for.

The first line says what was asked and how: the target, its chat template, the switch for thinking, the longest answer,
the sampling and the engine's own name of the model. Every other line is an answer: ``{"prompt_id", "tokens",
"finish_reason"}``. Who reads the file checks the first line; a last line that was cut off is dropped, and asked again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.errors import DataError
from drafters.target.frozen import Target

FORMAT = 1


def asked_of(target: Target, max_new_tokens: int) -> dict[str, Any]:
    """What an answer depends on beside the sampling: fields of the first line."""
    info = target.info()
    return {
        "format": FORMAT,
        "target": info.sha256,
        "chat_template": info.chat_template_sha256,
        "thinking": target.thinking,
        "max_new_tokens": max_new_tokens,
    }


def read_answers(path: Path | str, expected: Mapping[str, Any]) -> dict[str, list[int]]:
    """Tokens by prompt id. Raises DataError for a file that is not there, or whose first line says something else than
    ``expected`` (:func:`asked_of`)."""
    return {answer["prompt_id"]: answer["tokens"] for answer in _read(Path(path), expected)[0]}


class AnswerFile:
    """The file, open for more answers; ``done`` holds the ids that it has."""

    def __init__(self, path: Path, header: Mapping[str, Any]):
        self.done: set[str] = set()
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size:
            answers, whole = _read(path, header)
            self.done = {answer["prompt_id"] for answer in answers}
            with path.open("r+b") as file:
                file.truncate(whole)
        else:
            path.write_text(json.dumps(dict(header)) + "\n")
        self._file = path.open("a")

    def add(self, prompt_id: str, tokens: list[int], finish_reason: str) -> None:
        """Write an answer at once."""
        line = {"prompt_id": prompt_id, "tokens": tokens, "finish_reason": finish_reason}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        self.done.add(prompt_id)

    def close(self) -> None:
        """No more answers."""
        self._file.close()


def _read(path: Path, expected: Mapping[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """The answers, and bytes of the lines that are whole."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise DataError(f"{path}: no answers there ({error.strerror}); python -m drafters.corpus makes them") from error
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    try:
        header, *answers = (json.loads(line) for line in lines)
        if other := [name for name, value in expected.items() if header.get(name) != value]:
            raise DataError(f"{path}: answers under other settings ({', '.join(other)}); name another file")
        for answer in answers:
            if not answer["tokens"] or not all(type(token) is int for token in answer["tokens"]):
                raise ValueError(f"the answer to {answer['prompt_id']} is no list of token ids")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: not a file of answers ({error}); name another file") from error
    return answers, sum(map(len, lines))
