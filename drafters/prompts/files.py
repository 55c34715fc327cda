"""Prompts from rows: files (JSONL, JSON list, Parquet, ``.gz`` of the text forms) and hub data sets.

A row's layout is recognised from its columns (:data:`LAYOUTS`), or given as a mapping ``fields``.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.errors import DataError, UsageError
from drafters.prompts.identity import Prompt, make_prompt

#: Where a row stands (for messages), and the row.
Row = tuple[str, Mapping[str, Any]]

#: File stems that say nothing; the folder's name labels the data set then.
_GENERIC_STEMS = {"test", "train", "question", "questions", "data", "validation"}


@dataclass(frozen=True)
class Layout:
    """Which column holds what. Exactly one of ``question``, ``turns``, ``messages`` is the prompt."""

    question: str | None = None
    body: str | None = None  # text before the question (SVAMP)
    turns: str | None = None  # list of user turns (MT-Bench)
    messages: str | None = None  # list of {role, content}, answers included
    answer: str | None = None  # text, or a list with one per turn
    original_question: str | None = None
    category: str | None = None
    system: str | None = None

    @property
    def prompt_columns(self) -> list[str]:
        """The columns without which there is no prompt."""
        return [c for c in (self.body, self.question, self.turns, self.messages) if c]


#: Fields of a message in which engines put a thought, and finish reasons of an answer that they cut.
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_CUT = ("length", "max_tokens")

#: The keys of a field mapping.
FIELDS = tuple(Layout.__dataclass_fields__)

#: (columns that mark it, layout); the first whose columns are all there, in any case, is taken. Optional
#: columns need not exist. Where a worked solution and a bare result both exist, the solution is the answer.
LAYOUTS: tuple[tuple[set[str], Layout], ...] = (
    ({"messages"}, Layout(messages="messages")),
    ({"turns"}, Layout(turns="turns", answer="reference")),  # MT-Bench, Spec-Bench
    ({"task_id", "prompt", "entry_point"}, Layout("prompt", answer="canonical_solution")),  # HumanEval
    ({"prompt", "code"}, Layout("prompt", answer="code")),  # MBPP, sanitized
    ({"text", "code", "test_list"}, Layout("text", answer="code")),  # MBPP
    ({"body", "question"}, Layout("question", body="body", answer="answer")),  # SVAMP
    ({"query", "response"}, Layout("query", answer="response")),  # MetaMathQA
    ({"question", "response"}, Layout("question", answer="response")),
    ({"problem", "solution"}, Layout("problem", answer="solution")),  # MATH
    ({"problem", "answer"}, Layout("problem", answer="answer")),  # AIME
    ({"question", "answer"}, Layout("question", answer="answer")),  # GSM8K, Orca-Math, AIME
)


def rows_of_file(path: Path) -> list[Row]:
    """Rows of a JSONL, JSON-list or Parquet file, or of a ``.gz`` of the text forms.

    Raises DataError naming the file, and the line where one is at fault.
    """
    if path.suffix.lower() == ".parquet":
        try:
            table = pq.read_table(path)
        except (pa.ArrowInvalid, OSError) as error:
            reason = str(error).splitlines()[0]
            raise DataError(f"{path}: not a readable Parquet file ({reason}); copy or write it again") from error
        return [(f"{path}, row {i}", row) for i, row in enumerate(table.to_pylist(), 1)]
    try:
        data = path.read_bytes()
        return rows_of_text(gzip.decompress(data) if path.suffix.lower() == ".gz" else data, str(path))
    except (OSError, EOFError, zlib.error) as error:  # gzip: bad header, truncated, damaged
        raise DataError(f"{path}: cannot be read ({error})") from error


def rows_of_text(data: bytes, where: str) -> list[Row]:
    """Rows of a JSON list, or of one JSON object a line; UTF-8, with or without BOM, any line ends."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DataError(f"{where}:{line}: not UTF-8 (byte {data[error.start]:#04x}); save the file as UTF-8") from error
    rows = list(_list_items(text, where) if text.lstrip().startswith("[") else _json_lines(text, where))
    for place, row in rows:
        if not isinstance(row, dict):
            raise DataError(f"{place}: a row must be a JSON object with named columns, not {type(row).__name__}")
    return rows


def _list_items(text: str, where: str) -> Iterator[tuple[str, Any]]:
    try:
        items = json.loads(text)
    except ValueError as error:
        raise DataError(f"{where}: not JSON ({error}); the file is damaged or cut off") from error
    yield from ((f"{where}, row {i}", item) for i, item in enumerate(items, 1))


def _json_lines(text: str, where: str) -> Iterator[tuple[str, Any]]:
    # not splitlines(): it also breaks at U+2028 and its like, which JSON allows inside a string
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"{where}:{number}", json.loads(line)
            except ValueError as error:
                raise DataError(f"{where}:{number}: not JSON ({error}); one object a line is expected") from error


def rows_of_hub(address: str) -> list[Row]:
    """Rows of ``org/name[:config][:split]`` or of a local folder, read by the ``datasets`` package.

    One part after the name is a split (a slice such as ``train[:99%]`` too), two are configuration and split. Raises
    UsageError if the package is absent, DataError if there is no such data set, configuration or split.
    """
    try:
        import datasets
    except ImportError as error:
        raise UsageError("hub data sets need the package datasets: pip install 'draftlab[hub]'") from error
    name, *parts = re.split(r":(?![^\[]*\])", address)  # not at the colon of a slice
    if len(parts) > 2:
        raise UsageError(f"hf:{address}: expected hf:org/name[:config][:split]")
    try:
        data = datasets.load_dataset(
            name, name=parts[0] if len(parts) == 2 else None, split=parts[-1] if parts else None
        )
    except Exception as error:  # the package raises many kinds, from KeyError to its own
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"hf:{address}: {reason} (written as hf:org/name[:config][:split])") from error
    if isinstance(data, datasets.DatasetDict):
        if len(data) != 1:
            raise DataError(
                f"hf:{address}: say which split, e.g. hf:{address}:{next(iter(data))}; there: {', '.join(data)}"
            )
        data = next(iter(data.values()))
    return [(f"hf:{address}, row {i}", row) for i, row in enumerate(data, 1)]


def default_label(path: Path) -> str:
    """Data set label of a file: its stem in lower case, or its folder's where the stem says nothing."""
    stem = re.sub(r"(\.(jsonl|json|parquet|gz))+$", "", path.name.lower())
    return (path.resolve().parent.name.lower() or stem) if stem in _GENERIC_STEMS else stem


def prompts_of_rows(rows: Sequence[Row], where: str, label: str, fields: Mapping[str, str]) -> list[Prompt]:
    """One prompt a row, in order. Raises DataError naming the row and what is wrong with it."""
    if not rows:
        raise DataError(f"{where}: no rows")
    layout = recognise(list(dict.fromkeys(column for _, row in rows for column in row)), where, fields)
    prompts = []
    for place, row in rows:
        try:
            prompts.append(_prompt_of_row(row, layout, label))
        except DataError as error:
            raise DataError(f"{place}: {error}") from error
    return prompts


def recognise(columns: Sequence[str], where: str, fields: Mapping[str, str]) -> Layout:
    """The layout of these columns; ``fields`` (key of :data:`FIELDS` to column) adds to it or replaces it.

    Raises DataError, listing the columns, when the layout is unknown or ``fields`` names an absent column.
    """
    if missing := [column for column in fields.values() if column not in columns]:
        raise DataError(f"{where}: fields name the column '{missing[0]}', but the columns are {', '.join(columns)}")
    if fields.keys() & {"question", "turns", "messages"}:
        return Layout(**fields)
    by_lower = {column.lower(): column for column in columns}
    for marks, layout in LAYOUTS:
        if marks <= by_lower.keys():
            # what a row was made from and its kind are named alike everywhere
            kind = next((name for name in ("category", "subject", "type") if name in by_lower), None)
            wanted = replace(layout, original_question="original_question", category=kind)
            found = {f: by_lower[c] for f in FIELDS if (c := getattr(wanted, f)) in by_lower}
            return Layout(**{**found, **fields})
    example = next((c for c in columns if "id" not in c.lower().split("_")), columns[0])
    raise DataError(
        f"{where}: unknown layout, columns {', '.join(columns)}; say which column holds the question, "
        f"e.g. fields={{question: {example}}} (keys: {', '.join(FIELDS)})"
    )


def _prompt_of_row(row: Mapping[str, Any], layout: Layout, label: str) -> Prompt:
    def text(column: str | None) -> str | None:
        return None if column is None else _text(row.get(column), column)

    for column in layout.prompt_columns:
        if row.get(column) is None:
            raise DataError(f"the prompt is empty (column '{column}')")
    system = text(layout.system)
    answers: Sequence[str] = ()
    ending: Mapping[str, Any] = {}
    if layout.messages:
        system, turns, answers, ending = _conversation(row[layout.messages], system)
    elif layout.turns:
        turns = _texts(row[layout.turns], layout.turns)
        # reference answers may exist for some turns only, or be several to a turn: neither is one answer a turn
        given = row.get(layout.answer) if layout.answer else None
        if isinstance(given, list) and len(given) == len(turns) and all(isinstance(a, str) for a in given):
            answers = given
    else:
        turns = [_joined(text(layout.body), text(layout.question) or "")]
        answer = text(layout.answer)
        answers = [answer] if answer else ()
    thoughts = (ending.get(name) for name in _THOUGHTS)
    return make_prompt(
        turns,
        label,
        original=text(layout.original_question),
        system=system,
        answers=answers,
        category=text(layout.category),
        thought=next((thought for thought in thoughts if isinstance(thought, str) and thought.strip()), None),
        cut=(ending.get("finish_reason") or row.get("finish_reason")) in _CUT,
    )


def _joined(body: str | None, question: str) -> str:
    """SVAMP's two halves as one text; a body without a full stop gets one, as evaluations of SVAMP do."""
    if body is None:
        return question
    body = body.strip()
    return f"{body}{'.' if body[-1:].isalnum() else ''} {question.strip()}".strip()


def _conversation(chat: Any, system: str | None) -> tuple[str | None, list[str], list[str], Mapping[str, Any]]:
    """System message, user turns, given answers and the last answer's message; no answers unless every turn has
    one."""
    if not isinstance(chat, list) or not all(isinstance(message, dict) for message in chat):
        raise DataError("messages must be a list of {role, content}")
    turns: list[str] = []
    answers: list[str] = []
    for position, message in enumerate(chat, 1):
        role, content = message.get("role"), message.get("content")
        if content is None and role == "assistant" and any(message.get(name) for name in _THOUGHTS):
            content = ""  # cut within its thought
        if not isinstance(content, str):
            raise DataError(f"message {position} has no text in 'content'")
        if role == "system" and position == 1:
            system = content
        elif role == "user" and len(turns) == len(answers):
            turns.append(content)
        elif role == "assistant" and len(turns) == len(answers) + 1:
            answers.append(content)
        else:
            raise DataError(
                f"message {position} has role {role!r} out of turn; expected is [system,] user, assistant, user, ..."
            )
    whole = len(answers) == len(turns)
    return system, turns, answers if whole else [], chat[-1] if whole and chat else {}


def _texts(value: Any, column: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise DataError(f"column '{column}' must be a list of texts, not {type(value).__name__}")
    return [_text(item, column) or "" for item in value]


def _text(value: Any, column: str) -> str | None:
    """A cell as text; numbers as people write them (145.0 is 145), null and NaN as None."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, int | float):
        return str(value)
    raise DataError(f"column '{column}' must be text, not {type(value).__name__}")
