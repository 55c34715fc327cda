"""Counts of verification steps by prompt and draft slot: of a batch, added up, and in the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Counts = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Steps:
    """What the steps of n prompts add up to.

    (n,) int64: ``steps``, those of them with a count (``counted``), ``tokens``. (n, K) unsigned, column k - 1 for
    draft slot k: ``at_risk`` steps in which slot k could be accepted; ``survived``: in which it was; ``reached``: in
    which all before it were; ``missed_vocabulary``: in which it failed for a token that the drafter cannot propose.
    These are read-only views where one follows from another.
    ``orphans``: a few prompt ids of steps that have no prompt, and ``n_orphans`` how many such ids there are.
    """

    steps: NDArray[np.int64]
    counted: NDArray[np.int64]
    tokens: NDArray[np.int64]
    at_risk: Counts
    survived: Counts
    reached: Counts
    missed_vocabulary: Counts
    orphans: tuple[str, ...] = ()
    n_orphans: int = 0


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of steps by prompt: ``keys`` (columns FOUND_BY) of m prompts, and per prompt what `Total` adds up.

    Histograms (m, w + 1) over 0..w, w the most slots at risk in the batch: ``full`` is of steps with w at risk, by
    accepted count. By name, where not all 0: of the others by the largest k that was ``at_risk``, ``survived``,
    ``reached``; and of all by the k that was ``missed`` for lack of vocabulary. Column 0 is for none.
    """

    keys: list[pa.Array]
    steps: Counts
    counted: Counts
    tokens: Counts
    full: Counts
    histograms: dict[str, Counts]


class Total:
    """What batches add up to, by row of n prompts. ``histograms``: as in `Batch`, "full" among them."""

    def __init__(self, n: int):
        self.n, self.width = n, 0
        self.small: type[np.uint16 | np.uint32] = np.uint16  # of the counts per prompt
        self.steps, self.counted, self.tokens = (np.zeros(n, np.int64) for _ in range(3))
        self.histograms: dict[str, Counts] = {}

    def add(self, batch: Batch, rows: NDArray[np.int64] | slice) -> None:
        """``rows``: of the batch's prompts, -1 for those that are not wanted."""
        known: NDArray[np.bool_] | slice = slice(None)
        if not isinstance(rows, slice) and (rows < 0).any():
            known = rows >= 0
            rows = rows[known]
        self.steps[rows] += batch.steps[known]
        self.counted[rows] += batch.counted[known]
        self.tokens[rows] += batch.tokens[known]
        if self.small is np.uint16 and self.steps[rows].max(initial=0) >= 2**16:
            self.small = np.uint32
            self.histograms = {name: held.astype(self.small) for name, held in self.histograms.items()}
        width = batch.full.shape[1] - 1
        if width > self.width:
            self._widen(width)
        if width == self.width:
            self._add("full", rows, batch.full[known])
        else:
            self._spread(batch.full[known], rows)
        for name, added in batch.histograms.items():
            self._add(name, rows, added[known])

    def _add(self, name: str, rows: NDArray[np.int64] | slice, added: Counts) -> None:
        if name not in self.histograms:
            self.histograms[name] = np.zeros((self.n, self.width + 1), self.small)
        self.histograms[name][rows, : added.shape[1]] += added.astype(self.small)

    def _spread(self, full: Counts, rows: NDArray[np.int64] | slice) -> None:
        """Steps of which a known number of slots was at risk, as the three histograms of steps in general."""
        at_risk, reached = np.zeros_like(full), np.zeros_like(full)
        at_risk[:, -1] = full.sum(axis=1, dtype=full.dtype)
        reached[:, 1:] = full[:, :-1]
        reached[:, -1] += full[:, -1]
        for name, added in (("at_risk", at_risk), ("survived", full), ("reached", reached)):
            self._add(name, rows, added)

    def _widen(self, width: int) -> None:
        full = self.histograms.pop("full", None)
        self.histograms = {
            name: np.pad(held, ((0, 0), (0, width - self.width))) for name, held in self.histograms.items()
        }
        self.width = width
        if full is not None:
            self._spread(full, slice(None))

    def finish(self, orphans: tuple[str, ...], n_orphans: int) -> Steps:
        """The counts by slot. Arrays are laid out by slot, as they are read."""
        n, width = self.n, self.width
        if "full" in self.histograms and len(self.histograms.keys() - {"missed"}) == 1:
            # all slots were at risk in every step: the survivors of each slot tell all
            survivors = _at_least(self.histograms.pop("full"))
            at_risk = np.broadcast_to(survivors[0], (width, n)).T
            survived, reached = survivors[1:].T, survivors[:-1].T
        else:
            if (full := self.histograms.pop("full", None)) is not None:
                self._spread(full, slice(None))
            at_risk, survived, reached = (
                _at_least(self.histograms.pop(name))[1:].T if name in self.histograms else self._nothing()
                for name in ("at_risk", "survived", "reached")
            )
        missed = self.histograms["missed"][:, 1:] if "missed" in self.histograms else self._nothing()
        return Steps(self.steps, self.counted, self.tokens, at_risk, survived, reached, missed, orphans, n_orphans)

    def _nothing(self) -> Counts:
        return np.broadcast_to(np.zeros((), self.small), (self.n, self.width))


def _at_least(histogram: Counts) -> Counts:
    """(w + 1, n): how many counts of the histogram (n, w + 1) are k or more."""
    sums = np.empty(histogram.shape[::-1], histogram.dtype)
    so_far = np.zeros(len(histogram), histogram.dtype)
    for k in reversed(range(len(sums))):
        so_far += histogram[:, k]
        sums[k] = so_far
    return sums
