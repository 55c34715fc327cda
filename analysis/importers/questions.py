"""A file of questions beside an answer file: what was asked, and in which category."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.errors import DataError
from analysis.importers.model import RowError, identifier
from analysis.importers.source import Source
from analysis.importers.specbench import MT_BENCH


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


def cluster_of(question: str) -> str:
    """Cluster id of a question: a hash of its text in Unicode NFKC, lower case, runs of white space as one space."""
    text = " ".join(unicodedata.normalize("NFKC", question).lower().split())
    return hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()[:16]
