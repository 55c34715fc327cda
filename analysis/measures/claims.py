"""Published claims, and what the reports of this repository say about each.

A claim expects a verdict of one estimate in one report: *reproduced* if that is the report's verdict, *not reproduced*
if the report shows the opposite (or, for a claimed difference, equivalence), *undecided* otherwise. A claim without a
report is *not tested at this scale*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from analysis.errors import DataError

#: Of one H100: dense bfloat16 operations a second, and the share of them that training reaches.
PEAK, UTILISATION = 989e12, 0.35


class Status(StrEnum):
    """What became of a claim here."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    UNDECIDED = "undecided"
    NOT_TESTED = "not tested at this scale"


class Training(BaseModel):
    """What the trainings of a test at full scale take, for its GPU hours."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: int = Field(ge=1)
    examples: float = Field(gt=0)  # of each run, all epochs together
    tokens: float = Field(gt=0)  # of an example, prompt and answer
    anchors: int = Field(gt=0)
    block_size: int = Field(gt=0)
    target_parameters: float = Field(gt=0)
    drafter_parameters: float = Field(gt=0)

    @property
    def gpu_hours(self) -> float:
        """H100 hours: 2 P_target a token to read the answers again, 6 P_drafter a block slot forwards and backwards."""
        slots = self.anchors * self.block_size
        each = self.examples * (2 * self.target_parameters * self.tokens + 6 * self.drafter_parameters * slots)
        return self.runs * each / (PEAK * UTILISATION) / 3600


class Where(BaseModel):
    """An estimate of a report: of a data set, of an effect of a factorial, or the headline."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    report: str  # folder beside the plan
    dataset: str | None = None
    effect: str | None = None  # of a factorial


class Claim(BaseModel):
    """One published claim. ``reads``: what about the report's drafters and target differs from the claim's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    paper: str
    claim: str
    published: str
    expects: Literal["B better", "A better", "equivalent"] | None = None
    here: Where | None = None
    reads: str | None = None
    command: str
    training: Training | None = None


class Claims(BaseModel):
    """The file of claims."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class Found:
    """What a report says: its estimate as result.json has it, and the status of the claim."""

    claim: Claim
    status: Status
    estimate: Mapping[str, Any] | None


def judge_claim(claim: Claim, results: Mapping[str, Mapping[str, Any]]) -> Found:
    """``results``: result.json by folder. Raises DataError for a report, data set or effect that is not there."""
    if claim.here is None or claim.expects is None:
        return Found(claim, Status.NOT_TESTED, None)
    estimate = _estimate(claim.here, results)
    verdict = estimate["verdict"]
    if verdict == claim.expects or (claim.expects == "equivalent" and verdict == "identical"):
        return Found(claim, Status.REPRODUCED, estimate)
    decided = {"B better", "A better", "equivalent", "identical"}
    return Found(claim, Status.NOT_REPRODUCED if verdict in decided else Status.UNDECIDED, estimate)


def _estimate(where: Where, results: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    try:
        result = results[where.report]
        if where.effect is not None:
            chosen = next(e for e in result["effects"] if " x ".join(e["factors"]) == where.effect)
            found: Mapping[str, Any] = chosen["estimate"]
            return found
        found = result["overall"] if where.dataset is None else result["by_dataset"][where.dataset]
        return found.get("estimate", found) if isinstance(found.get("estimate"), Mapping) else found
    except (KeyError, StopIteration) as error:
        raise DataError(f"claims: no such estimate: {where.model_dump(exclude_none=True)}") from error
