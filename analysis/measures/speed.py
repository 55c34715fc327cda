"""Speed: how many times faster a drafter decodes than plain decoding, and than the other drafter, and why.

The speed of a generation is decode_s / (output_tokens - 1), seconds per token after the first, which prefill gives
(a log of another tool may time otherwise: :mod:`analysis.runlog.counting`).
A speed-up is a ratio of such times over the same prompts: pooled (total time over total tokens, so long outputs
weigh more) or as the geometric mean of each prompt's own ratio. Both are means on the log scale, paired by prompt
and clustered as prompts are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from analysis.runlog.counting import counting_of
from analysis.runlog.load import Evaluated
from analysis.runlog.pairing import Pairs
from analysis.runlog.reading import Run
from analysis.runlog.schema import PAIR_KEY
from analysis.stats.estimate import Estimate, of_values
from analysis.stats.families import adjust
from analysis.stats.ratio import linearise_log
from analysis.wording import SPEEDUP_MEAN, SPEEDUP_POOLED, Caution, Estimand, Verdict

_PARTS = ("draft_s", "verify_s", "other_s")


@dataclass(frozen=True)
class TimesFaster:
    """A ratio of times per token: above 1, ``what`` is faster than ``against``.

    Interval at 95% and two-sided p against 1, both from a t on the log scale, p adjusted by Holm over data sets;
    ``verdict`` is drawn for one arm against the other, None against plain decoding.
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
    verdict: Verdict | None
    cautions: tuple[Caution, ...]


@dataclass(frozen=True)
class StepCost:
    """Where an arm's time goes: seconds per verification step, beside a plain token's; all measured.

    ``allowed`` = tau * plain_s / (draft_s + verify_s + other_s): the speed-up that the pieces allow. Its limits: tau
    itself if a step cost one plain token, ``free_drafting`` if drafting cost nothing.
    """

    prompts: int
    tau: float
    plain_s: float
    draft_s: float
    verify_s: float
    other_s: float

    @property
    def step_in_tokens(self) -> float:
        """What a step costs, in plain tokens."""
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
    at most; ``left_out``, prompts timed but of one token or no time."""

    ratios: tuple[TimesFaster, ...]
    costs: Mapping[str, StepCost]
    timed: Mapping[str, int]
    repeats: Mapping[str, int]
    left_out: Mapping[str, int]

    def pooled(self, what: str, against: str) -> dict[str | None, TimesFaster]:
        """The pooled ratios of this kind, by data set; None is all prompts."""
        return {r.subset: r for r in self.ratios if (r.what, r.against, r.estimand) == (what, against, SPEEDUP_POOLED)}


def speed(a: Evaluated, b: Evaluated, pairs: Pairs) -> Speed | None:
    """What the timings of two runs say over their paired prompts; None if neither run has any."""
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
    everything = [_ratios(modes, pairs, estimand, None) for estimand in (SPEEDUP_POOLED, SPEEDUP_MEAN)]
    by_dataset = [_ratios(modes, pairs, SPEEDUP_POOLED, name) for name in sorted(pairs.frame["dataset"].unique())]
    ratios = [_times(kind, e) for found in everything for kind, e in found.items()]
    for kind in _KINDS:
        ratios += [_times(kind, e) for e in adjust([found[kind] for found in by_dataset if kind in found])]
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
    repeats."""
    columns = ["prompt", "mode", "decode_s", "tokens", *_PARTS, "repeats"]
    if not run.has("timings"):
        return pd.DataFrame(columns=columns)
    table = run.read("timings")
    rows = table.filter(pc.equal(table["protocol"], protocol)).to_pandas()
    numbered = pairs.frame[list(PAIR_KEY)].assign(prompt=np.arange(len(pairs.frame)))
    untimed = counting_of(run.manifest, protocol).untimed
    rows = rows.merge(numbered, on=list(PAIR_KEY)).assign(tokens=lambda r: r["output_tokens"] - untimed, repeats=1)
    sums = rows.groupby(["prompt", "mode"])[["decode_s", "tokens", *_PARTS, "repeats"]].sum(min_count=1)
    return sums.reset_index()[columns]


_Modes = Mapping[tuple[str, str], pd.DataFrame]


_OF_SPEEDUPS = ("B's speed-up", "A's")
#: What is compared: (faster, than), the log times that add to the slower side, and those that add to the faster.
_KINDS = {
    ("A", "plain"): ([("A", "plain")], [("A", "draft")]),
    ("B", "plain"): ([("B", "plain")], [("B", "draft")]),
    ("B", "A"): ([("A", "draft")], [("B", "draft")]),
    _OF_SPEEDUPS: ([("B", "plain"), ("A", "draft")], [("B", "draft"), ("A", "plain")]),
}
_Kind = tuple[str, str]


def _ratios(modes: _Modes, pairs: Pairs, estimand: Estimand, subset: str | None) -> dict[_Kind, Estimate]:
    """On the log scale, over one data set or all: each arm over plain, B over A, and B's speed-up over A's, which is
    B over A again, and left out, where both runs hold the same timings of plain decoding."""
    inside = np.flatnonzero(pairs.frame["dataset"] == subset) if subset else np.arange(len(pairs.frame))
    found = {}
    for kind, (top, bottom) in _KINDS.items():
        common = inside
        for key in (*top, *bottom):
            common = np.intersect1d(common, modes[key].index)
        if common.size == 0 or (kind == _OF_SPEEDUPS and _same_plain(modes, common)):
            continue
        logs = [[_log_time(modes[key].loc[common], estimand) for key in side] for side in (top, bottom)]
        slow, fast = (np.sum(values, axis=0) for values in logs)
        clusters = pairs.frame["cluster"].iloc[common]
        found[kind] = of_values(fast, slow, fast == slow, clusters, estimand, subset)
    return found


def _same_plain(modes: _Modes, prompts: np.ndarray) -> bool:
    plain = [modes[side, "plain"].loc[prompts, ["decode_s", "tokens"]] for side in "AB"]
    return plain[0].equals(plain[1])


def _log_time(rows: pd.DataFrame, estimand: Estimand) -> np.ndarray:
    """(n,) values whose mean is the log of seconds per token, pooled or as a mean over prompts."""
    if estimand is SPEEDUP_POOLED:
        return linearise_log(rows["decode_s"], rows["tokens"])
    return np.log(rows["decode_s"].to_numpy(dtype=float) / rows["tokens"].to_numpy(dtype=float))


def _times(kind: _Kind, e: Estimate) -> TimesFaster:
    what, against = kind
    estimate, lo, hi = (None if x is None else math.exp(x) for x in (e.estimate, e.lo, e.hi))
    verdict = e.verdict if against in ("A", "A's") else None
    assert estimate is not None
    return TimesFaster(
        what,
        against,
        e.estimand,
        e.subset,
        estimate,
        lo,
        hi,
        e.p_adjusted,
        e.n_pairs,
        e.n_clusters,
        verdict,
        e.cautions,
    )


def _cost(modes: _Modes, side: str, pairs: Pairs) -> StepCost | None:
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
