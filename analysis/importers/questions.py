"""A file of questions beside an answer file: what was asked, and in which category."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.errors import DataError
from analysis.importers.model import Imported, RowError, identifier
from analysis.importers.responses import DATASETS_UNKNOWN
from analysis.importers.source import Source
from analysis.importers.specbench import CATEGORIES, MT_BENCH


@dataclass(frozen=True)
class Question:
    """``text``: the user turns, joined by line ends; ``dataset``: by Spec-Bench's grouping of categories."""

    text: str
    category: str | None

    @property
    def dataset(self) -> str | None:
        return "mt_bench" if self.category in MT_BENCH else self.category


Questions = Mapping[str, Question]


def read_questions(path: Path) -> dict[str, Question]:
    """Questions by id, from rows of {"question_id", "turns", "category"}. Raises DataError if there is none."""
    questions = {}
    source = Source.open(path)
    for row in source.rows():
        turns, category = row.value.get("turns"), row.value.get("category")
        try:
            question = identifier(row.value.get("question_id"), "question_id")
        except RowError:
            continue
        if isinstance(turns, list) and turns and all(isinstance(turn, str) for turn in turns):
            questions[question] = Question("\n".join(turns), category if isinstance(category, str) else None)
    if not questions:
        raise DataError(f"{path}: no row has question_id and turns")
    return questions


def with_questions(run: Imported, questions: Questions, path: Path) -> Imported:
    """The run with what ``path`` says of its questions, where the log does not. Raises DataError if it is of none."""
    if not run.responses:
        raise DataError(f"{path}: the log has totals only, no rows of questions; leave --questions out")
    ids = {response.prompt_id for response in run.responses}
    if not (known := ids & questions.keys()):
        raise DataError(
            f"{path}: none of its questions is in the log; ids there: {_some(questions)}; in the log: {_some(ids)}"
        )
    responses = [
        replace(
            response,
            question=response.question or question.text,
            dataset=response.dataset or question.dataset,
            category=response.category or question.category,
        )
        if (question := questions.get(response.prompt_id))
        else response
        for response in run.responses
    ]
    found = f"{len(known)} of {len(ids)}" if len(known) < len(ids) else "all"
    named = all(response.dataset is not None for response in responses)
    return replace(
        run,
        responses=responses,
        unknown=[what for what in run.unknown if not (named and what in (DATASETS_UNKNOWN, CATEGORIES))],
        notes=[*run.notes, f"questions of {found} prompts taken from {path.name}"],
    )


def _some(ids: Collection[str]) -> str:
    few = sorted(ids)[:3]
    return ", ".join(few) + (", ..." if len(ids) > len(few) else "")


def cluster_of(question: str) -> str:
    """Cluster id of a question: a hash of its text in Unicode NFKC, lower case, runs of white space as one space."""
    text = " ".join(unicodedata.normalize("NFKC", question).lower().split())
    return hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()[:16]
