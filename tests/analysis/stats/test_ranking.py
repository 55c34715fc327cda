"""Several arms against each other: letters, adjusted pairs, and the probability of each rank."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.stats.families import holm
from analysis.stats.ranking import letters, rank
from analysis.wording import ACCEPTED_LENGTH, TAU_POOLED


def frame(tokens, steps=1, clusters=None):
    n = len(tokens)
    ids = [f"c{c}" for c in (range(n) if clusters is None else clusters)]
    return pd.DataFrame({"tokens": tokens, "steps": np.broadcast_to(steps, n), "cluster_id": ids, "dataset": "d"})


@pytest.mark.parametrize(
    ("arms", "different", "by_hand"),
    [
        (3, [], ("a", "a", "a")),
        (3, [(0, 2)], ("a", "ab", "b")),
        (3, [(0, 1), (0, 2), (1, 2)], ("a", "b", "c")),
        # a chain: neighbours do not differ, all others do
        (5, [(0, 2), (0, 3), (0, 4), (1, 3), (1, 4), (2, 4)], ("a", "ab", "bc", "cd", "d")),
        # the first differs from the third only, the second from the fourth only
        (4, [(0, 2), (1, 3)], ("ab", "ac", "cd", "bd")),
        (2, [(0, 1)], ("a", "b")),
        (1, [], ("a",)),
    ],
)  # fmt: skip
def test_letters_by_hand(arms, different, by_hand):
    assert letters(arms, different) == by_hand


@given(st.integers(1, 6).flatmap(lambda k: st.tuples(st.just(k), st.sets(st.sampled_from(
    list(combinations(range(k), 2)) or [(0, 0)])))))  # fmt: skip
def test_arms_share_a_letter_exactly_if_they_do_not_differ(case):
    arms, different = case
    different = {pair for pair in different if pair[0] != pair[1]}
    found = letters(arms, sorted(different))
    for pair in combinations(range(arms), 2):
        assert bool(set(found[pair[0]]) & set(found[pair[1]])) == (pair not in different)


def test_more_than_26_letters():
    arms = 30
    assert letters(arms, list(combinations(range(arms), 2)))[25:28] == ("z", "a1", "b1")


def test_all_pairs_are_one_family_and_the_order_is_by_mean():
    rng = np.random.default_rng(0)
    base = rng.integers(1, 5, 60)
    tokens = {"low": base, "high": base + 2, "middle": base + (rng.random(60) < 0.5)}
    found = rank(list(tokens), [frame(t) for t in tokens.values()], ACCEPTED_LENGTH)
    assert found.arms == ("high", "middle", "low")
    assert found.means == pytest.approx([tokens[name].mean() for name in found.arms])
    assert [(p.first, p.second) for p in found.pairs] == [(0, 1), (0, 2), (1, 2)]
    assert [p.estimate.p_adjusted for p in found.pairs] == holm([p.estimate.p for p in found.pairs])
    assert {p.estimate.family_size for p in found.pairs} == {3}
    assert found.letters == ("a", "b", "c")
    assert np.array(found.ranks) == pytest.approx(np.eye(3))


def test_ranks_are_those_of_every_possible_draw():
    # two clusters: (0, 0), (0, 1), (1, 0), (1, 1) are drawn with probability 1/4 each
    tokens = np.array([[4, 1], [2, 2], [1, 3]])
    means = [tokens[:, list(d)].mean(axis=1) for d in product((0, 1), repeat=2)]
    order = np.argsort(-tokens.mean(axis=1), kind="stable")
    exact = np.zeros((3, 3))
    for drawn in means:
        for row, arm in enumerate(order):
            better, equal = (drawn > drawn[arm]).sum(), (drawn == drawn[arm]).sum()
            exact[row, better : better + equal] += 1 / equal / 4
    found = rank(["x", "y", "z"], [frame(t) for t in tokens], ACCEPTED_LENGTH)
    assert found.draws == 10_000
    assert np.array(found.ranks) == pytest.approx(exact, abs=0.02)
    assert np.array(found.ranks).sum(axis=0) == pytest.approx(np.ones(3))
    assert np.array(found.ranks).sum(axis=1) == pytest.approx(np.ones(3))


def test_equal_arms_share_their_places():
    same = frame([1, 2, 3, 4] * 5)
    found = rank(["x", "y"], [same, same], ACCEPTED_LENGTH)
    assert found.ranks == ((0.5, 0.5), (0.5, 0.5))
    assert found.letters == ("a", "a")


def test_the_same_data_give_the_same_ranks():
    rng = np.random.default_rng(1)
    frames = [frame(rng.integers(1, 9, 40), clusters=np.arange(40) % 9) for _ in range(4)]
    once, again = (rank(list("wxyz"), frames, ACCEPTED_LENGTH) for _ in range(2))
    assert once == again
    assert once.clusters == 9


def test_pooled_tau_is_a_ratio_of_sums():
    frames = [frame([10, 40], [2, 20]), frame([12, 30], [3, 10])]
    found = rank(["x", "y"], frames, TAU_POOLED)
    assert found.arms == ("y", "x")
    assert found.means == pytest.approx((42 / 13, 50 / 22))


def test_one_cluster_has_no_ranks():
    found = rank(["x", "y"], [frame([1, 2], clusters=[0, 0]), frame([2, 2], clusters=[0, 0])], ACCEPTED_LENGTH)
    assert (found.ranks, found.draws) == ((), 0)
