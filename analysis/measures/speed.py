"""Speed: speed-ups over plain decoding and over the other drafter, and where the time goes.

The speed of a generation is decode_s / (output_tokens - 1), seconds per token after the first, which comes from
prefill (logs of other tools may differ: :mod:`analysis.runlog.counting`).
A speed-up is a ratio of such times over the same prompts: pooled (total time over total tokens, so long outputs
weigh more) or as the geometric mean of each prompt's own ratio. Both are means on the log scale, paired by prompt
and clustered as prompts are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.cautions import Caution
from analysis.errors import DataError
from analysis.measures.sessions import (
    Design,
    Modes,
    arms_by_turns,
    cautions_of,
    over_sessions,
    plain_by_turns,
    same_plain,
)
from analysis.runlog.counting import counting_of
from analysis.runlog.load import Evaluated
from analysis.runlog.pairing import Pairs
from analysis.runlog.reading import Run
from analysis.runlog.schema import PAIR_KEY
from analysis.stats.estimate import Estimate, Weights, of_values
from analysis.stats.families import adjust
from analysis.stats.ratio import linearise_log, weights
from analysis.wording import SPEEDUP_MEAN, SPEEDUP_POOLED, Estimand, Verdict

_PARTS = ("draft_s", "verify_s", "other_s")


@dataclass(frozen=True)
class TimesFaster:
    """A ratio of times per token: above 1, ``what`` is faster than ``against``.

    Interval at 95% and two-sided p against 1, both from a t on the log scale, p adjusted by Holm over data sets;
    ``verdict`` is drawn for one arm against the other, None against plain decoding. ``design``: how the two were timed;
    with one session each there is neither p nor verdict, and the interval covers prompts only.
    """

    what: str
    against: str
    estimand: Estimand
    subset: str | None
    estimate: float
    lo: float | None
    hi: float | None
    p: float | None
    n_pairs: int
    n_clusters: int
    n_effective: float | None
    verdict: Verdict | None
    design: Design
    cautions: tuple[Caution, ...]


@dataclass(frozen=True)
class StepCost:
    """Measured cost of an arm: seconds per verification step, beside the time of a plain token.

    ``allowed`` = tau * plain_s / (draft_s + verify_s + other_s): the speed-up that these costs allow. Limits: tau
    if a step cost one plain token, ``free_drafting`` if drafting were free.
    """

    prompts: int
    tau: float
    plain_s: float
    draft_s: float
    verify_s: float
    other_s: float

    @property
    def step_in_tokens(self) -> float:
        """Cost of a step, in plain tokens."""
        return (self.draft_s + self.verify_s + self.other_s) / self.plain_s

    @property
    def allowed(self) -> float:
        return self.tau / self.step_in_tokens

    @property
    def free_drafting(self) -> float:
        return self.tau * self.plain_s / (self.verify_s + self.other_s)


@dataclass(frozen=True)
class Speed:
    """``ratios``: every speed-up that the timings give, overall first, pooled per data set; ``costs``: per side, where
    time goes. Per side too: ``timed``, prompts with usable timings; ``repeats``, generations of each prompt and mode
    at most; ``left_out``, timed prompts that are excluded (one token, or no time recorded)."""

    ratios: tuple[TimesFaster, ...]
    costs: Mapping[str, StepCost]
    timed: Mapping[str, int]
    repeats: Mapping[str, int]
    left_out: Mapping[str, int]

    def pooled(self, what: str, against: str) -> dict[str | None, TimesFaster]:
        """The pooled ratios of this kind, by data set; None is all prompts."""
        return {r.subset: r for r in self.ratios if (r.what, r.against, r.estimand) == (what, against, SPEEDUP_POOLED)}


def speed(
    a: Evaluated, b: Evaluated, pairs: Pairs, sessions: tuple[Sequence[Run], Sequence[Run]] = ((), ())
) -> Speed | None:
    """Speed-ups from the timings of two runs, over their paired prompts; None if neither run has timings. ``sessions``:
    runs that timed arm A, and arm B, again. Raises DataError if one of them has no timing of these prompts."""
    timings = {side: timings_of(arm.run, arm.protocol, pairs) for side, arm in (("A", a), ("B", b))}
    if all(frame.empty for frame in timings.values()):
        return None
    usable, left_out = {}, {}
    for side, frame in timings.items():
        fit = (frame["tokens"] > 0) & (frame["decode_s"] > 0)
        usable[side] = frame[fit]
        left_out[side] = int(frame.loc[~fit, "prompt"].nunique())
    modes = {
        (side, mode): frame[frame["mode"] == mode].set_index("prompt")
        for side, frame in usable.items()
        for mode in ("plain", "draft")
    }
    again = tuple(
        [_draft_timings(run, arm.protocol, pairs) for run in runs] for arm, runs in zip((a, b), sessions, strict=True)
    )
    everything = [_ratios(modes, again, pairs, estimand, None) for estimand in (SPEEDUP_POOLED, SPEEDUP_MEAN)]
    names = sorted(pairs.frame["dataset"].unique())
    by_dataset = [_ratios(modes, again, pairs, SPEEDUP_POOLED, name) for name in names]
    fewest = 1 + min(map(len, again))
    ratios = [_times(kind, *e, fewest) for by_kind in everything for kind, e in by_kind.items()]
    for kind in _KINDS:
        of_kind = [by_kind[kind] for by_kind in by_dataset if kind in by_kind]
        adjusted = adjust([e for e, _ in of_kind])
        ratios += [_times(kind, e, design, fewest) for e, (_, design) in zip(adjusted, of_kind, strict=True)]
    costs = {side: cost for side in "AB" if (cost := _cost(modes, side, pairs)) is not None}
    return Speed(
        ratios=tuple(ratios),
        costs=costs,
        timed={side: int(frame["prompt"].nunique()) for side, frame in usable.items()},
        repeats={side: int(frame["repeats"].max()) if len(frame) else 0 for side, frame in usable.items()},
        left_out=left_out,
    )


def timings_of(run: Run, protocol: str, pairs: Pairs) -> pd.DataFrame:
    """Sums over repeats: one row per (row of the pairs' frame, mode) with decode_s, tokens after the first, parts,
    repeats, and the first order."""
    columns = ["prompt", "mode", "decode_s", "tokens", *_PARTS, "repeats", "order"]
    if not run.has("timings"):
        return pd.DataFrame(columns=columns)
    table = run.read("timings")
    rows = table.filter(pc.equal(table["protocol"], protocol)).to_pandas()
    numbered = pairs.frame[list(PAIR_KEY)].assign(prompt=np.arange(len(pairs.frame)))
    untimed = counting_of(run.manifest, protocol).untimed
    rows = rows.merge(numbered, on=list(PAIR_KEY)).assign(tokens=lambda r: r["output_tokens"] - untimed, repeats=1)
    groups = rows.groupby(["prompt", "mode"])
    sums = groups[["decode_s", "tokens", *_PARTS, "repeats"]].sum(min_count=1)
    return sums.assign(order=groups["order"].min()).reset_index()[columns]


def _draft_timings(run: Run, protocol: str, pairs: Pairs) -> pd.DataFrame:
    """Timings of drafting of a further session, by prompt."""
    rows = timings_of(run, protocol, pairs)
    rows = rows[(rows["mode"] == "draft") & (rows["tokens"] > 0) & (rows["decode_s"] > 0)]
    if rows.empty:
        raise DataError(f"{run.address}: no timing of the paired prompts under protocol '{protocol}', so no session")
    return rows.set_index("prompt")


_OF_SPEEDUPS = ("B's speed-up", "A's")
_OF_ARMS = ("B", "A")
#: What is compared: (faster, than), the log times that add to the slower side, and those that add to the faster.
_KINDS = {
    ("A", "plain"): ([("A", "plain")], [("A", "draft")]),
    ("B", "plain"): ([("B", "plain")], [("B", "draft")]),
    _OF_ARMS: ([("A", "draft")], [("B", "draft")]),
    _OF_SPEEDUPS: ([("B", "plain"), ("A", "draft")], [("B", "draft"), ("A", "plain")]),
}
_Kind = tuple[str, str]


def _ratios(
    modes: Modes, sessions: tuple[Sequence[pd.DataFrame], ...], pairs: Pairs, estimand: Estimand, subset: str | None
) -> dict[_Kind, tuple[Estimate, Design]]:
    """On the log scale, over one data set or all: each arm over plain, B over A, and B's speed-up over A's, which is
    B over A again, and left out, where both runs hold the same timings of plain decoding."""
    inside = np.flatnonzero(pairs.frame["dataset"] == subset) if subset else np.arange(len(pairs.frame))
    ratios: dict[_Kind, tuple[Estimate, Design]] = {}
    for kind, (top, bottom) in _KINDS.items():
        repeated = kind == _OF_ARMS and any(sessions)
        frames = [modes[key] for key in (*top, *bottom)]
        frames += [frame for more in sessions for frame in more] if repeated else []
        common = inside
        for frame in frames:
            common = np.intersect1d(common, frame.index)
        if common.size == 0 or (kind == _OF_SPEEDUPS and same_plain(modes, common)):
            continue
        clusters = pairs.frame["cluster"].iloc[common]
        if repeated:
            a, b = (
                [_log_time(frame.loc[common], estimand) for frame in (modes[side, "draft"], *more)]
                for side, more in zip("AB", sessions, strict=True)
            )
            ratios[kind] = over_sessions(a, b, clusters, estimand, subset), Design.REPEATED
            continue
        logs = [[_log_time(modes[key].loc[common], estimand) for key in side] for side in (top, bottom)]
        slow, fast = (np.sum(values, axis=0) for values in logs)
        shares = _weights(modes[top[0]].loc[common], modes[bottom[0]].loc[common], estimand)
        estimate = of_values(fast, slow, fast == slow, clusters, estimand, subset, weights=shares)
        ratios[kind] = estimate, _design(kind, modes, common)
    return ratios


def _design(kind: _Kind, modes: Modes, prompts: NDArray[np.int64]) -> Design:
    if kind == _OF_ARMS:
        by_turns = arms_by_turns(modes, prompts)
    else:
        by_turns = all(plain_by_turns(modes, side, prompts) for side in ("AB" if kind == _OF_SPEEDUPS else kind[0]))
    return Design.BY_TURNS if by_turns else Design.ONE_EACH


def _weights(slow: pd.DataFrame, fast: pd.DataFrame, estimand: Estimand) -> Weights | None:
    """What prompts weigh in the faster and in the slower side, None where all weigh the same."""
    return (weights(fast["tokens"]), weights(slow["tokens"])) if estimand is SPEEDUP_POOLED else None


def _log_time(rows: pd.DataFrame, estimand: Estimand) -> np.ndarray:
    """(n,) values whose mean is the log of seconds per token, pooled or as a mean over prompts."""
    if estimand is SPEEDUP_POOLED:
        return linearise_log(rows["decode_s"], rows["tokens"])
    return np.log(rows["decode_s"].to_numpy(dtype=float) / rows["tokens"].to_numpy(dtype=float))


def _times(kind: _Kind, e: Estimate, design: Design, sessions: int) -> TimesFaster:
    what, against = kind
    estimate, lo, hi = (None if x is None else math.exp(x) for x in (e.estimate, e.lo, e.hi))
    assert estimate is not None
    conclusive = design is not Design.ONE_EACH
    return TimesFaster(
        what=what,
        against=against,
        estimand=e.estimand,
        subset=e.subset,
        estimate=estimate,
        lo=lo,
        hi=hi,
        p=e.p_adjusted if conclusive else None,
        n_pairs=e.n_pairs,
        n_clusters=e.n_clusters,
        n_effective=e.n_effective if e.se is not None else None,
        verdict=e.verdict if conclusive and against in ("A", "A's") else None,
        design=design,
        cautions=cautions_of(e, design, sessions),
    )


def _cost(modes: Modes, side: str, pairs: Pairs) -> StepCost | None:
    """None without both modes, or without the parts of the drafting time."""
    plain, draft = modes[side, "plain"], modes[side, "draft"].dropna(subset=list(_PARTS))
    common = np.intersect1d(plain.index, draft.index)
    if common.size == 0:
        return None
    plain, draft = plain.loc[common], draft.loc[common]
    pair = pairs.frame.iloc[common]
    steps = pair[f"steps_{side.lower()}"].to_numpy()
    timed_steps = float((steps * draft["repeats"].to_numpy()).sum())
    return StepCost(
        prompts=int(common.size),
        tau=float(pair[f"tokens_{side.lower()}"].sum() / steps.sum()),
        plain_s=float(plain["decode_s"].sum() / plain["tokens"].sum()),
        **{part: float(draft[part].sum()) / timed_steps for part in _PARTS},
    )
