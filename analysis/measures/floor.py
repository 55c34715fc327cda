"""Whether an arm is below what needs no training: prompt lookup, or the most frequent next token."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.cautions import Caution, caution
from analysis.runlog.load import Evaluated, load, protocols
from analysis.runlog.pairing import pair
from analysis.runlog.reading import Run
from analysis.stats.estimate import of_pairs
from analysis.wording import Estimand, interval, number

#: ``kind`` in the drafter's configuration.
TRAINING_FREE = ("prompt-lookup", "next-token")


def below_floor(arms: Sequence[tuple[str, Evaluated]], given: Sequence[Run], estimand: Estimand) -> tuple[Caution, ...]:
    """A caution for every arm (with its label) whose mean is below that of a training-free run among those ``given``,
    over the prompts that both have under the arm's protocol."""
    told = []
    for run in given:
        drafter = run.manifest.drafter
        if drafter is None or drafter.config.get("kind") not in TRAINING_FREE:
            continue
        for label, arm in arms:
            if arm.protocol not in protocols(run) or arm.run.address == run.address:
                continue
            found = of_pairs(pair(load(run, arm.protocol), arm, min_coverage=0).frame, estimand)
            if found.estimate is not None and found.estimate < 0:
                told.append(
                    caution(
                        "below-floor",
                        arm=label,
                        floor=run.label,
                        metric=estimand.name,
                        value=number(found.mean_b, 2),
                        of_floor=number(found.mean_a, 2),
                        interval=interval(found.lo, found.hi, 2),
                        n=found.n_pairs,
                    )
                )
    return tuple(told)
