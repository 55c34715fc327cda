"""Pairs: the same prompt under both arms, joined by key, and a table of every prompt that found no partner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.errors import DataError
from analysis.load import Evaluated, listing
from analysis.schema import PAIR_KEY

_KEY = list(PAIR_KEY)
#: What belongs to the prompt, not to the arm: it must not differ between the two rows of a pair.
_OF_THE_PROMPT = ("dataset", "cluster_id")
_OF_EITHER = ("dataset", "cluster_id", "category", "study_role", "seen")


@dataclass(frozen=True)
class Pairs:
    """Joined prompts.

    ``frame``, one row per pair in key order: the key, dataset, cluster_id, category, study_role, seen, and per arm
    ``tokens_a``, ``steps_a``, ``repetition_a`` and so on (int64 counts), and ``row_a``, its row in the arm's counts.
    ``lost``, one row per prompt without a pair: the key, dataset and ``reason``.
    ``evaluated_a``, ``evaluated_b``: prompts that each arm evaluated.
    """

    frame: pd.DataFrame
    lost: pd.DataFrame
    evaluated_a: int
    evaluated_b: int

    @property
    def coverage(self) -> float:
        """Pairs as a share of the prompts of the smaller run."""
        return len(self.frame) / min(self.evaluated_a, self.evaluated_b)

    def counts(self, side: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(tokens, steps) of arm ``a`` or ``b``, (n,) each."""
        return self.frame[f"tokens_{side}"].to_numpy(), self.frame[f"steps_{side}"].to_numpy()


def pair(a: Evaluated, b: Evaluated, *, min_coverage: float = 0.95, strict: bool = False) -> Pairs:
    """Join two arms on (protocol, prompt_id, turn, sample).

    A pair in which either arm has no value is lost whole, with a reason. Raises DataError for a prompt whose
    dataset or cluster differs between the arms, for no pairs at all, for pairs under ``min_coverage`` of the
    smaller run, and under ``strict`` for any lost prompt.
    """
    columns = [*_KEY, *_OF_EITHER, "row", "tokens", "steps", "repetition", "problem"]
    both = a.prompts[columns].merge(
        b.prompts[columns], on=_KEY, how="outer", suffixes=("_a", "_b"), indicator=True, validate="one_to_one"
    )
    for column in _OF_THE_PROMPT:
        _refuse_contradiction(both, column, a, b)

    for column in _OF_EITHER:
        both[column] = both[f"{column}_a"].where(both["_merge"] != "right_only", both[f"{column}_b"])
    both["reason"] = _reasons(both)
    both = both.sort_values(_KEY, ignore_index=True)
    kept = both["reason"].isna()
    lost = both.loc[~kept, [*_KEY, "dataset", "reason"]].reset_index(drop=True)
    of_arms = [f"{c}_{s}" for s in "ab" for c in ("row", "tokens", "steps", "repetition")]
    frame = both.loc[kept, [*_KEY, *_OF_EITHER, *of_arms]]
    frame = frame.astype({f"{c}_{s}": "int64" for s in "ab" for c in ("row", "tokens", "steps")}).reset_index(drop=True)
    pairs = Pairs(frame, lost, len(a.prompts), len(b.prompts))
    _require_coverage(pairs, a, b, min_coverage, strict)
    return pairs


def _reasons(both: pd.DataFrame) -> pd.Series:
    reason = pd.Series(None, index=both.index, dtype=object)
    for side in "ba":  # a reason in A, if there is one, is the one told
        problem = both[f"problem_{side}"]
        reason = reason.mask(problem.notna(), problem.astype(object) + f" in {side.upper()}")
    reason = reason.mask(both["_merge"] == "left_only", "only in A")
    return reason.mask(both["_merge"] == "right_only", "only in B")


def _refuse_contradiction(both: pd.DataFrame, column: str, a: Evaluated, b: Evaluated) -> None:
    differs = both[(both["_merge"] == "both") & (both[f"{column}_a"] != both[f"{column}_b"])]
    if len(differs):
        first = differs.iloc[0]
        raise DataError(
            f"{a.run.address} and {b.run.address} give {len(differs)} prompts a different {column} "
            f"({listing(differs['prompt_id'])}; the first: '{first[f'{column}_a']}' against '{first[f'{column}_b']}'); "
            "evaluate both on the same prompt set"
        )


def _require_coverage(pairs: Pairs, a: Evaluated, b: Evaluated, min_coverage: float, strict: bool) -> None:
    told = "; ".join(f"{count} {reason}" for reason, count in pairs.lost["reason"].value_counts().sort_index().items())
    where = f"{a.run.address} and {b.run.address}"
    if pairs.frame.empty:
        raise DataError(f"no pairs: {where} have no prompt in common with a value in both ({told})")
    if pairs.coverage < min_coverage:
        raise DataError(
            f"{where}: {len(pairs.frame)} pairs are {pairs.coverage:.1%} of the smaller run, under {min_coverage:.0%} "
            f"({told}); --min-coverage allows less"
        )
    if strict and len(pairs.lost):
        raise DataError(f"{where}: {len(pairs.lost)} prompts have no pair ({told}), and --strict allows none")
