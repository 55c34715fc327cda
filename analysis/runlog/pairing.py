"""Pairs: the same prompt under both arms, joined by key, and a table of every prompt that found no partner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.errors import DataError
from analysis.keys import KeyIndex, flat, in_order
from analysis.runlog.load import Evaluated, listing
from analysis.runlog.schema import PAIR_KEY
from analysis.stats.cluster import partition
from analysis.wording import counted

_KEY = list(PAIR_KEY)
#: What belongs to the prompt, not to the arm: it must not differ between the two rows of a pair.
_OF_THE_PROMPT = ("dataset", "cluster_id")
_OF_EITHER = ("dataset", "cluster_id", "category", "study_role", "seen")


@dataclass(frozen=True, eq=False)
class Pairs:
    """Joined prompts.

    ``frame``, one row per pair in key order: the key, dataset, cluster_id, category, study_role, seen, and per arm
    ``tokens_a``, ``steps_a``, ``repetition_a`` and so on (int64 counts), and ``row_a``, its row in the arm's counts;
    ``cluster``: the number of cluster_id among those of all pairs, sorted, so that no one need compare strings again.
    ``lost``, one row per prompt without a pair: the key, dataset, cluster_id, the counts of the arm that has them
    (``tokens_a`` and so on, NA for the other arm), and ``reason``.
    ``evaluated_a``, ``evaluated_b``: prompts that each arm evaluated.
    """

    frame: pd.DataFrame
    lost: pd.DataFrame
    evaluated_a: int
    evaluated_b: int

    @property
    def prompts(self) -> int:
        """How many prompts the pairs are of; a prompt may have several turns and samples, each a pair."""
        return len(self.frame[["dataset", "prompt_id"]].drop_duplicates())

    @property
    def described(self) -> str:
        """``20 prompts``, or ``16 responses to 8 prompts`` where prompts have several turns or samples."""
        prompts = counted(self.prompts, "prompt")
        return prompts if self.prompts == len(self.frame) else f"{counted(len(self.frame), 'response')} to {prompts}"

    @property
    def coverage(self) -> float:
        """Pairs as a share of the prompts of the larger run."""
        return len(self.frame) / max(self.evaluated_a, self.evaluated_b)

    def counts(self, side: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(tokens, steps) of arm ``a`` or ``b``, (n,) each."""
        return self.frame[f"tokens_{side}"].to_numpy(), self.frame[f"steps_{side}"].to_numpy()


def pair(a: Evaluated, b: Evaluated, *, min_coverage: float = 0.95, strict: bool = False) -> Pairs:
    """Join two arms on (protocol, prompt_id, turn, sample).

    A pair in which either arm has no value is lost whole, with a reason. Raises DataError for a prompt whose
    dataset or cluster differs between the arms, for no pairs at all, for pairs under ``min_coverage`` of the
    larger run, and under ``strict`` for any lost prompt.
    """
    rows_a, rows_b = _joined(a.prompts, b.prompts)
    for column in _OF_THE_PROMPT:
        _refuse_contradiction(rows_a, rows_b, column, a, b)
    reason = _reasons(a.prompts, b.prompts, rows_a, rows_b)
    kept = pd.isna(reason)
    frame = _taken(a.prompts, rows_a[kept], [*_KEY, *_OF_EITHER])
    for side, arm, rows in (("a", a, rows_a[kept]), ("b", b, rows_b[kept])):
        for column in ("row", "tokens", "steps", "repetition"):
            values = _taken(arm.prompts, rows, [column])[column]
            whole = column != "repetition" and values.dtype.kind != "f"  # values of a user's own metric may be floats
            frame[f"{column}_{side}"] = values.astype("int64" if whole else "float64")
    frame["cluster"] = partition(frame["cluster_id"]).index
    lost = _lost(a.prompts, b.prompts, rows_a[~kept], rows_b[~kept]).assign(reason=reason[~kept])
    pairs = Pairs(frame, lost, len(a.prompts), len(b.prompts))
    _require_coverage(pairs, a, b, min_coverage, strict)
    return pairs


def _joined(a: pd.DataFrame, b: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of both tables for every key that either has, in key order; -1 in the table that lacks it."""
    keys_a, keys_b = ([flat(pa.array(frame[name])) for name in _KEY] for frame in (a, b))
    if all(first.equals(second) for first, second in zip(keys_a, keys_b, strict=True)):
        rows_b = np.arange(len(b))
    else:
        rows_b = KeyIndex(keys_b).find(keys_a)
    alone = np.ones(len(b), dtype=bool)
    alone[rows_b[rows_b >= 0]] = False
    rows_a = np.concatenate([np.arange(len(a)), np.full(alone.sum(), -1)])
    rows_b = np.concatenate([rows_b, np.flatnonzero(alone)])
    if alone.any():
        keys_b = [key.filter(pa.array(alone)) for key in keys_b]
        keys_a = [pa.concat_arrays(both) for both in zip(keys_a, keys_b, strict=True)]
    if (order := _order(keys_a)) is None:
        return rows_a, rows_b
    return rows_a[order], rows_b[order]


def _order(keys: list[pa.Array]) -> NDArray[np.int64] | None:
    """The permutation that sorts distinct keys; None if they are sorted."""
    ids = keys[_KEY.index("prompt_id")]
    same_protocol = len(pc.unique(keys[_KEY.index("protocol")])) <= 1
    if same_protocol and pc.all(pc.less(ids[:-1], ids[1:])).as_py():
        return None
    table = pa.table(keys, names=_KEY)
    return pc.sort_indices(table, sort_keys=[(name, "ascending") for name in _KEY]).to_numpy()


def _taken(frame: pd.DataFrame, rows: NDArray[np.int64], columns: list[str]) -> pd.DataFrame:
    """These rows and columns, renumbered, without a copy if they are all rows in order."""
    if in_order(rows, len(frame)):
        return frame[columns].reset_index(drop=True)
    return frame[columns].take(rows).reset_index(drop=True)


def _reasons(a: pd.DataFrame, b: pd.DataFrame, rows_a: NDArray[Any], rows_b: NDArray[Any]) -> NDArray[Any]:
    """The reason why each key has no pair, or None."""
    reason = np.full(rows_a.size, None, dtype=object)
    for side, frame, rows in (("B", b, rows_b), ("A", a, rows_a)):  # a reason in A takes precedence
        problem = frame["problem"].to_numpy(dtype=object)
        has = (rows >= 0) & pd.notna(problem)[rows]
        reason[has] = [f"{text} in {side}" for text in problem[rows[has]]]
    reason[rows_b < 0] = "only in A"
    reason[rows_a < 0] = "only in B"
    return reason


def _lost(a: pd.DataFrame, b: pd.DataFrame, rows_a: NDArray[Any], rows_b: NDArray[Any]) -> pd.DataFrame:
    """Key, data set and cluster of these rows, from the arm that has them, and what each arm counted."""
    columns = [*_KEY, "dataset", "cluster_id"]
    in_a = rows_a >= 0
    both = pd.concat([_taken(a, rows_a[in_a], columns), _taken(b, rows_b[~in_a], columns)], ignore_index=True)
    places = np.concatenate([np.flatnonzero(in_a), np.flatnonzero(~in_a)])
    lost = both.take(np.argsort(places)).reset_index(drop=True)
    for side, frame, rows in (("a", a, rows_a), ("b", b, rows_b)):
        has = rows >= 0
        has[has] = frame["problem"].isna().to_numpy()[rows[has]]
        for column in ("tokens", "steps"):
            counts = pd.array(np.zeros(rows.size), dtype="Float64" if frame[column].dtype.kind == "f" else "Int64")
            counts[has] = frame[column].to_numpy(dtype=object)[rows[has]]
            counts[~has] = pd.NA
            lost[f"{column}_{side}"] = counts
    return lost


def _refuse_contradiction(
    rows_a: NDArray[np.int64], rows_b: NDArray[np.int64], column: str, a: Evaluated, b: Evaluated
) -> None:
    both = (rows_a >= 0) & (rows_b >= 0)
    rows_a, rows_b = rows_a[both], rows_b[both]
    of_a, of_b = (flat(pa.array(_taken(arm.prompts, r, [column])[column])) for arm, r in ((a, rows_a), (b, rows_b)))
    if of_a.equals(of_b):
        return
    differs = np.flatnonzero(pc.not_equal(of_a, of_b).to_numpy(zero_copy_only=False))
    ids = a.prompts["prompt_id"].iloc[rows_a[differs]]
    first = int(differs[0])
    raise DataError(
        f"{a.run.address} and {b.run.address} give {len(differs)} prompts a different {column} "
        f"({listing(ids)}; the first: '{of_a[first]}' against '{of_b[first]}'); "
        "evaluate both on the same prompt set"
    )


def _require_coverage(pairs: Pairs, a: Evaluated, b: Evaluated, min_coverage: float, strict: bool) -> None:
    reasons = "; ".join(
        f"{count} {reason}" for reason, count in pairs.lost["reason"].value_counts().sort_index().items()
    )
    where = f"{a.run.address} and {b.run.address}"
    if pairs.frame.empty:
        same = ""
        if a.run.manifest.evaluations and b.run.manifest.evaluations:  # logs of draftlab, which can ask again
            same = f"; to ask B what A was asked: python -m drafters.evaluate {b.run.address} --like {a.run.address}"
        raise DataError(f"no pairs: {where} have no common prompt with a value in both ({reasons}){same}")
    if pairs.coverage < min_coverage:
        raise DataError(
            f"{where}: {len(pairs.frame)} pairs are {pairs.coverage:.1%} of the larger run, under {min_coverage:.0%} "
            f"({reasons}); --min-coverage allows less"
        )
    if strict and len(pairs.lost):
        raise DataError(f"{where}: {len(pairs.lost)} prompts have no pair ({reasons}), which --strict rejects")
