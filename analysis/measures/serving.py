"""A serving experiment: arms served in turn, block by block, on one machine (``drafters.throughput``).

The unit is the block: every arm's trial of a block is compared with the baseline's of the same block, as a log-ratio;
their mean has a t interval over blocks, and under six blocks there is no word of significance (Kalibera and Jones 2020,
arXiv 2007.10899). Requests of one trial share a server and a batch, so latency percentiles describe and do not test.

Failed trials are shown with their reason, and enter nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.errors import DataError
from analysis.measures.throughput import DONE, block_estimate
from analysis.runlog.reading import Run
from analysis.stats.method import FEWEST
from analysis.wording import Verdict, counted

#: Percentiles of latency that are shown.
PERCENTILES = (50, 90, 99)
#: Times of a request, in seconds: to the first token, per token after it, to the end.
TIMES = ("ttft_s", "tpot_s", "e2e_s")
#: Relative difference of accepted lengths above which an engine and our decoder disagree.
TAU_TOLERANCE = 0.02


@dataclass(frozen=True)
class ServedArm:
    """An arm against the baseline at one concurrency. ``tokens_per_s``: mean over blocks; ``ratios``: per block that
    both finished; ``ratio``: their geometric mean with its t interval; None for the baseline itself, or without such a
    block. ``p`` and ``verdict`` are None under six blocks."""

    arm: str
    concurrency: int
    tokens_per_s: float
    trials: int
    ratios: tuple[float, ...]
    ratio: float | None
    lo: float | None
    hi: float | None
    p: float | None
    verdict: Verdict | None


@dataclass(frozen=True)
class Latency:
    """Percentiles of an arm's request times at one concurrency, all finished trials together: time -> values at
    ``PERCENTILES``. ``goodput``: requests per second within the bounds that were asked for, and their share."""

    arm: str
    concurrency: int
    requests: int
    seconds: Mapping[str, tuple[float, ...]]
    goodput: float | None
    within: float | None


@dataclass(frozen=True)
class Acceptance:
    """What an engine counted for an arm, over all finished trials, beside our own decoder's count of the same prompts.

    ``tau``: 1 + accepted / drafts, over steps with drafted tokens. ``per_position``: share of drafts that were accepted
    up to each slot. ``exact``: the engine's mean counts per trial are the decoder's to the token; None without one.
    """

    arm: str
    trials: int
    drafts: int
    accepted: int
    tau: float
    per_position: tuple[float, ...]
    offline_drafts: int | None
    offline_accepted: int | None
    offline_tau: float | None
    exact: bool | None

    @property
    def disagrees(self) -> bool:
        """Whether the two accepted lengths differ by more than ``TAU_TOLERANCE``."""
        return self.offline_tau is not None and abs(self.tau / self.offline_tau - 1) > TAU_TOLERANCE


@dataclass(frozen=True)
class Crossover:
    """Where an arm's ratio to the baseline falls to 1 as concurrency grows, interpolated in log2 of concurrency; None
    with ``pays`` saying whether it is above 1 at every level, at none, or does not fall steadily."""

    arm: str
    concurrency: float | None
    pays: str


@dataclass(frozen=True, eq=False)
class Serving:
    """``trials``: every trial; ``changes``, ``latencies``: per arm and concurrency, in order; ``acceptance`` and
    ``crossovers``: per arm; ``cautions``: what a reader has to know."""

    name: str
    label: str
    baseline: str
    bounds: Mapping[str, float]
    settings: Mapping[str, Any]
    trials: pd.DataFrame
    changes: tuple[ServedArm, ...]
    latencies: tuple[Latency, ...]
    acceptance: tuple[Acceptance, ...]
    crossovers: tuple[Crossover, ...]
    cautions: tuple[str, ...]


def serving(run: Run, baseline: str | None = None, bounds: Mapping[str, float] | None = None) -> Serving:
    """Evaluate the trials of a run. ``baseline``: the arm that the others are set against (default: the plan's first);
    ``bounds``: seconds by name of ``TIMES`` within which a request counts for goodput.

    Raises DataError for a run without serving trials, an unknown baseline or an unknown bound.
    """
    if not run.has("throughput"):
        raise DataError(f"{run.manifest.name}: no serving trials; python -m drafters.throughput makes some")
    bounds = dict(bounds or {})
    if unknown := sorted(set(bounds) - set(TIMES)):
        raise DataError(f"unknown latency '{unknown[0]}'; known: {', '.join(TIMES)}")
    trials = run.read("throughput").to_pandas(integer_object_nulls=True)
    trials = trials.sort_values("trial", ignore_index=True)
    arms = list(dict.fromkeys(trials.sort_values(["block", "order"])["arm"]))
    baseline = baseline or arms[0]
    if baseline not in arms:
        raise DataError(f"no arm '{baseline}' in {run.manifest.name}; its arms: {', '.join(arms)}")
    record = run.manifest.serving or {}
    done = trials[trials["status"] == DONE]
    requests = run.read("requests").to_pandas() if run.has("requests") else None
    levels = sorted({int(level) for level in trials["concurrency"].dropna()})
    changes = [_change(done, arm, baseline, level) for level in levels for arm in arms]
    found = tuple(change for change in changes if change is not None)
    acceptance = tuple(
        a for arm in arms if (a := _acceptance(done[done["arm"] == arm], arm, record.get("offline", {}))) is not None
    )
    return Serving(
        name=run.manifest.name,
        label=run.manifest.label or run.manifest.name,
        baseline=baseline,
        bounds=bounds,
        settings=record.get("settings", {}),
        trials=trials,
        changes=found,
        latencies=tuple(_latencies(done, requests, arms, levels, bounds)),
        acceptance=acceptance,
        crossovers=tuple(_crossover(arm, found) for arm in arms if arm != baseline) if len(levels) > 1 else (),
        cautions=(*run.manifest.caveats, *_cautions(found, acceptance)),
    )


def _change(done: pd.DataFrame, arm: str, baseline: str, level: int) -> ServedArm | None:
    at = done[done["concurrency"] == level]
    mine = at[at["arm"] == arm].groupby("block")["tokens_per_s"].mean().astype(float)
    if mine.empty:
        return None
    common: dict[str, Any] = {
        "arm": arm,
        "concurrency": level,
        "tokens_per_s": float(mine.mean()),
        "trials": int((at["arm"] == arm).sum()),
    }
    nothing: dict[str, Any] = {"ratios": (), "ratio": None, "lo": None, "hi": None, "p": None, "verdict": None}
    theirs = at[at["arm"] == baseline].groupby("block")["tokens_per_s"].mean().astype(float)
    both = np.log(pd.concat({"A": theirs, "B": mine}, axis=1).dropna())
    if arm == baseline or both.empty:
        return ServedArm(**common, **nothing)
    e = block_estimate(both)
    ratio, lo, hi = (None if x is None else math.exp(x) for x in (e.estimate, e.lo, e.hi))
    return ServedArm(
        **common,
        ratios=tuple(float(r) for r in np.exp(both["B"] - both["A"])),
        ratio=ratio,
        lo=lo,
        hi=hi,
        p=e.p if len(both) >= FEWEST else None,
        verdict=e.verdict if len(both) >= FEWEST else None,
    )


def _latencies(
    done: pd.DataFrame,
    requests: pd.DataFrame | None,
    arms: Sequence[str],
    levels: Sequence[int],
    bounds: Mapping[str, float],
) -> list[Latency]:
    if requests is None:
        return []
    # the first token is the prefill's; the others take the rest of the time
    tpot = (requests["e2e_s"] - requests["ttft_s"]) / (requests["output_tokens"] - 1).where(lambda n: n > 0)
    columns = ["trial", "arm", "concurrency", "duration_s"]
    rows = requests.assign(tpot_s=tpot).merge(done[columns], on="trial")
    found = []
    for level in levels:
        for arm in arms:
            mine = rows[(rows["arm"] == arm) & (rows["concurrency"] == level)]
            if mine.empty:
                continue
            seconds = {
                name: tuple(float(q) for q in np.nanpercentile(mine[name].astype(float), PERCENTILES)) for name in TIMES
            }
            goodput = within = None
            if bounds:
                good = np.logical_and.reduce([mine[name] <= most for name, most in bounds.items()])
                duration = float(mine.drop_duplicates("trial")["duration_s"].sum())
                goodput, within = float(good.sum()) / duration, float(good.mean())
            found.append(Latency(arm, level, len(mine), seconds, goodput, within))
    return found


def _acceptance(trials: pd.DataFrame, arm: str, offline: Mapping[str, Mapping[str, int]]) -> Acceptance | None:
    counted = trials[trials["drafts"].notna()]
    drafts, accepted = int(counted["drafts"].sum()), int(counted["accepted"].sum())
    if not drafts:
        return None
    lists = [list(at) for at in counted["accepted_at"] if at is not None]
    width = max(map(len, lists), default=0)
    at = np.sum([np.pad(one, (0, width - len(one))) for one in lists], axis=0) if lists else np.zeros(0)
    own = offline.get(arm)
    exact = None
    if own is not None:
        exact = bool(((counted["drafts"] == own["drafts"]) & (counted["accepted"] == own["accepted"])).all())
    return Acceptance(
        arm=arm,
        trials=len(counted),
        drafts=drafts,
        accepted=accepted,
        tau=1 + accepted / drafts,
        per_position=tuple(float(x) / drafts for x in at),
        offline_drafts=own["drafts"] if own else None,
        offline_accepted=own["accepted"] if own else None,
        offline_tau=1 + own["accepted"] / own["drafts"] if own and own["drafts"] else None,
        exact=exact,
    )


def _crossover(arm: str, changes: Sequence[ServedArm]) -> Crossover:
    points = [(c.concurrency, c.ratio) for c in changes if c.arm == arm and c.ratio is not None]
    above = [ratio > 1 for _, ratio in points]
    if not points or not any(above):
        return Crossover(arm, None, "at no concurrency" if points else "unknown")
    if all(above):
        return Crossover(arm, None, "at every concurrency measured")
    if above != sorted(above, reverse=True):
        return Crossover(arm, None, "not in one range of concurrency")
    last = above.index(False)
    (low, before), (high, after) = points[last - 1], points[last]
    share = math.log(before) / (math.log(before) - math.log(after))
    return Crossover(arm, 2 ** (math.log2(low) + share * (math.log2(high) - math.log2(low))), "up to there")


def _cautions(changes: Sequence[ServedArm], acceptance: Sequence[Acceptance]) -> list[str]:
    told = []
    fewest = min((len(c.ratios) for c in changes if c.ratios), default=0)
    if 0 < fewest < FEWEST:
        told.append(
            f"{counted(fewest, 'block')}: ratios and intervals describe these trials; "
            f"a test requires at least {FEWEST} blocks"
        )
    for a in acceptance:
        if a.disagrees:
            told.append(
                f"{a.arm}: accepted length {a.tau:.3f} in the engine, {a.offline_tau:.3f} in our decoder; "
                "likely causes: another block size, layer ids counted from another origin, a causal draft, "
                "a draft vocabulary that is dropped, or outputs that differ"
            )
    return told
