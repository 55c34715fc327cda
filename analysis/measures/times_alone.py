"""Comparison of speed only, for two runs if at least one has times of prompts but no verification steps."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.cautions import caution
from analysis.errors import DataError
from analysis.measures.baseline import SpeedUp, speed_alone
from analysis.measures.fairness import require_same_target, same_target
from analysis.runlog.load import of_protocol
from analysis.runlog.reading import Run

PROTOCOL = "generate"


@dataclass(frozen=True)
class TimesComparison:
    """``ratios``: B's speed over A's in each convention, over ``common`` prompts of ``prompts_a`` and ``prompts_b``;
    ``notes``: limits of the comparison."""

    name_a: str
    name_b: str
    label_a: str
    label_b: str
    prompts_a: int
    prompts_b: int
    common: int
    ratios: tuple[SpeedUp, ...]
    notes: tuple[str, ...]


def compare_times(a: Run, b: Run, *, min_coverage: float = 0.95, strict: bool = False) -> TimesComparison:
    """The ratios of two runs' times. Raises DataError for targets that are known and different, without a timed prompt
    in common, and if the common prompts are under ``min_coverage`` of the larger run; under ``strict`` also for an
    unknown target and for any prompt without a pair."""
    require_same_target(a, b, strict=strict)
    ratios = speed_alone(a, b)
    sizes = [_prompts(run) for run in (a, b)]
    where = f"{a.address} and {b.address}"
    if not ratios:
        raise DataError(f"{where}: no timed prompt in common; time both on the same prompts")
    common = ratios[0].n_prompts
    if common < min_coverage * max(sizes):
        raise DataError(
            f"{where}: {common} common timed prompts are {common / max(sizes):.1%} of the larger run, under "
            f"{min_coverage:.0%}; --min-coverage allows less"
        )
    if strict and common < max(sizes):
        raise DataError(f"{where}: {max(sizes) - common} prompts have no pair, which --strict rejects")
    notes = [caution("one-session").text]
    if same_target(a.manifest.target, b.manifest.target) is None:
        notes.append(caution("unknown", what="target").text)
    if common < max(sizes):
        notes.append(f"Excluded (not timed in both runs): {sizes[0] - common} prompts of A, {sizes[1] - common} of B.")
    notes += [f"{side}: {caveat}" for side, run in (("A", a), ("B", b)) for caveat in run.manifest.caveats]
    return TimesComparison(a.name, b.name, a.label, b.label, sizes[0], sizes[1], common, ratios, tuple(notes))


def _prompts(run: Run) -> int:
    """Number of prompts of the run; each sample counts separately."""
    rows = of_protocol(run.read("prompts", ["protocol", "prompt_id", "sample"]), PROTOCOL)
    return len(rows.group_by(["prompt_id", "sample"]).aggregate([]))
