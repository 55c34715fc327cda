"""Exploratory and confirmatory evaluation: what was declared in advance, and whether the prompts can confirm it.

A hypothesis formed on some prompts must be confirmed on others. The report therefore shows what was declared, the role
of the prompts as recorded before use, and whether a confirmatory prompt was explored before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.cautions import Caution, caution
from analysis.runlog.pairing import Pairs
from analysis.runlog.reading import Run
from analysis.wording import Estimand

CONFIRMATORY, EXPLORATORY, UNRECORDED = "confirmatory", "exploratory", "not recorded"


@dataclass(frozen=True)
class Declaration:
    """What the user declared: ``hypothesis`` in the user's words; the headline ``metric``, and whether it was
    requested; ``chosen_over``: other protocols of both runs, if none was requested; ``margin`` of equivalence;
    ``picked``: the requested data sets, None for all; ``roles``: paired prompts by recorded role; ``overlap``:
    confirmatory prompts, and clusters of them, that were explored before."""

    hypothesis: str | None
    metric: Estimand
    metric_declared: bool
    margin: float | None
    picked: tuple[str, ...] | None
    roles: Mapping[str, int]
    overlap: tuple[int, int]
    chosen_over: tuple[str, ...] = ()

    @property
    def confirmatory(self) -> bool:
        """Whether every prompt is recorded as confirmatory and none was explored before."""
        return set(self.roles) == {CONFIRMATORY} and not any(self.overlap)

    @property
    def post_hoc(self) -> bool:
        """Whether data sets were picked and not all of their prompts are recorded as confirmatory."""
        return self.picked is not None and set(self.roles) != {CONFIRMATORY}


def declare(
    pairs: Pairs,
    runs: Sequence[Run],
    *,
    hypothesis: str | None,
    metric: Estimand,
    metric_declared: bool,
    margin: float | None,
    picked: Sequence[str] | None,
    chosen_over: Sequence[str] = (),
) -> Declaration:
    """The declaration for these pairs. ``runs``: those whose exploratory evaluations count as earlier use."""
    roles = pairs.frame["study_role"].fillna(UNRECORDED).value_counts().sort_index()
    return Declaration(
        hypothesis=hypothesis,
        metric=metric,
        metric_declared=metric_declared,
        margin=margin,
        picked=tuple(sorted(picked)) if picked else None,
        roles={str(role): int(count) for role, count in roles.items()},
        overlap=_overlap(pairs.frame, runs),
        chosen_over=tuple(chosen_over),
    )


def cautions_of(declaration: Declaration, datasets_in_all: int) -> tuple[Caution, ...]:
    """Cautions about the role of the prompts."""
    d, cautions = declaration, []
    if d.post_hoc and d.picked is not None:
        cautions.append(caution("post-hoc", names=", ".join(d.picked), total=datasets_in_all))
    if set(d.roles) == {EXPLORATORY}:
        cautions.append(caution("exploratory"))
    elif len(d.roles) > 1:
        cautions.append(caution("mixed-roles", roles=roles_in_words(d.roles)))
    if any(d.overlap):
        cautions.append(caution("overlap", prompts=d.overlap[0], clusters=d.overlap[1]))
    return tuple(cautions)


def roles_in_words(roles: Mapping[str, int]) -> str:
    """``300 confirmatory, 20 exploratory``."""
    return ", ".join(f"{count:,} {role}" for role, count in roles.items()) or UNRECORDED


def _overlap(frame: pd.DataFrame, runs: Iterable[Run]) -> tuple[int, int]:
    """Confirmatory prompts, and clusters of them, that an exploratory evaluation of the runs also used."""
    confirming = frame[frame["study_role"] == CONFIRMATORY]
    if confirming.empty:
        return 0, 0
    prompts: set[str] = set()
    clusters: set[str] = set()
    for run in runs:
        rows = run.read("prompts", ["prompt_id", "cluster_id", "study_role"]).to_pandas()
        explored = rows[rows["study_role"] == EXPLORATORY]
        prompts |= set(explored["prompt_id"])
        clusters |= set(explored["cluster_id"])
    return len(set(confirming["prompt_id"]) & prompts), len(set(confirming["cluster_id"]) & clusters)
