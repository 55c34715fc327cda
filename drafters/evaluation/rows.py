"""Rows of a run's tables, as the protocols write them (analysis.runlog.schema)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from drafters.evaluation.arms import Arm
from drafters.model.acceptance import StepCount
from drafters.prompts.sources import Prompt

TABLES = ("acceptance", "anchors", "prompts", "timings", "gates", "gate_stats")
Rows = dict[str, list[dict[str, Any]]]  # rows by table


@dataclass
class BatchRows:
    """What one batch of prompts gave for one arm: rows by table, and counts by data set that no table holds.

    Counts: ``covered`` of ``wanted`` target tokens are in the arm's vocabulary; ``baseline_differs``: prompts
    whose plain output was another one when it was repeated.
    """

    tables: Rows = field(default_factory=lambda: {name: [] for name in TABLES})
    facts: dict[str, Counter[str]] = field(default_factory=dict)

    def count(self, dataset: str, **numbers: int) -> None:
        """Add to the counts of a data set."""
        self.facts.setdefault(dataset, Counter()).update(numbers)


def prompt_key(
    eval_id: str, protocol: str, prompt: Prompt, turn: int = 0, sample: int = 0, temperature: float = 0.0
) -> dict[str, Any]:
    """The key columns of every table about prompts, with temperature and data set beside them."""
    return {
        "eval_id": eval_id,
        "protocol": protocol,
        "prompt_id": prompt.prompt_id,
        "turn": turn,
        "sample": sample,
        "temperature": temperature,
        "dataset": prompt.dataset,
    }


def acceptance_row(key: dict[str, Any], step: int, position: int, count: StepCount) -> dict[str, Any]:
    """One verification step as a row of the acceptance table."""
    return {
        **key,
        "step": step,
        "position": position,
        "drafted": count.drafted,
        "eligible": count.eligible,
        "accepted": count.accepted,
        "emitted": count.emitted,
        "ended": count.ended,
    }


def coverage(arm: Arm, prompt: Sequence[int], wanted: Sequence[int]) -> dict[str, int]:
    """How many of the target's tokens the arm can propose, and how many there are."""
    vocabulary = arm.vocabulary(prompt)
    covered = len(wanted) if vocabulary is None else sum(token in vocabulary for token in wanted)
    return {"covered": covered, "wanted": len(wanted)}
