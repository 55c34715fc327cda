"""The counting rules of a verification step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.runlog.outputs import hash_of_tokens, repetition
from analysis.runlog.schema import ENDINGS
from drafters.model.acceptance import count_step

STOP = frozenset({0})


@pytest.mark.parametrize(
    ("draft", "truth", "vocabulary", "eligible", "accepted", "ended"),
    [
        ([5, 6, 7], [5, 6, 7], None, 3, 3, "block"),
        ([5, 6, 7], [5, 9, 7], None, 3, 1, "mismatch"),  # a later agreement does not count
        ([5, 6, 7], [8, 6, 7], None, 3, 0, "mismatch"),
        ([5, 6, 7], [5, 8, 7], {5, 6, 7}, 3, 1, "vocabulary"),  # the drafter could not have said 8
        ([5, 6, 7], [5, 0], None, 1, 1, "stop"),  # nothing was at risk from the stop token on
        ([5, 0, 7], [5, 0], None, 1, 1, "stop"),  # drafting the stop token is worth nothing more: it is the bonus
        ([6, 0, 7], [5, 0], None, 1, 0, "mismatch"),
        ([5, 6, 7], [0], None, 0, 0, "stop"),
        ([5, 6, 7], [5, 6], None, 2, 2, "length"),  # the limit came before a stop
        ([5, 6, 7], [], None, 0, 0, "length"),
        ([5, 6], [5, 6, 0], None, 2, 2, "stop"),  # the block was full, but nothing was left to accept
    ],
)
def test_counts(draft, truth, vocabulary, eligible, accepted, ended):
    found = count_step(draft, truth, STOP, vocabulary)
    assert (found.eligible, found.accepted, found.ended) == (eligible, accepted, ended)
    assert found.drafted == len(draft)
    assert found.emitted == accepted + 1


tokens = st.lists(st.integers(0, 3), max_size=8)


@given(tokens, tokens)
def test_counts_are_ordered_and_named(draft, truth):
    found = count_step(draft, truth, STOP, {0, 1, 2})
    assert 0 <= found.accepted <= found.eligible <= found.drafted
    assert draft[: found.accepted] == truth[: found.accepted]
    assert found.ended in ENDINGS
    assert (found.ended in ("mismatch", "vocabulary")) == (found.accepted < found.eligible)


def test_repetition():
    assert repetition([1, 1, 1, 1, 1, 1]) == pytest.approx(2 / 3)  # 3 four-grams, 1 distinct
    assert repetition(range(20)) == 0
    assert repetition([1, 2, 1, 2, 1, 2, 1, 2]) == pytest.approx(3 / 5)
    assert repetition([]) == repetition([1, 1, 1]) == 0


def test_output_hash_sees_order():
    assert hash_of_tokens([1, 2]) != hash_of_tokens([2, 1])
    assert hash_of_tokens([1, 2]) == hash_of_tokens((1, 2))
