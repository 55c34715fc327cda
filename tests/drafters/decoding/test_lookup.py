"""Prompt lookup against a plain search, and the cases that its docstring states."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafters.decoding.lookup import lookup


def plainly(tokens, count, longest, least):
    """The same by its definition, with lists: the copy reads what it has just written."""
    for n in range(longest, least - 1, -1):
        for start in range(len(tokens) - n - 1, -1, -1):
            if tokens[start : start + n] == tokens[-n:]:
                text = list(tokens)
                for place in range(start + n, start + n + count):
                    text.append(text[place])
                return text[len(tokens) :]
    return []


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(0, 9), st.integers(1, 4), st.integers(0, 3))
def test_the_draft_is_that_of_a_plain_search(tokens, count, longest, fewer):
    least = max(1, longest - fewer)
    found = lookup(tokens, count, longest, least)
    assert found.dtype == np.int64
    assert found.tolist() == plainly(tokens, count, longest, least)


@pytest.mark.parametrize(
    ("tokens", "draft"),
    [
        ([1, 2, 3, 9, 1, 2], [3, 9, 1]),
        ([1, 2, 3, 1, 2, 4, 1, 2], [4, 1, 2]),  # of two matches the most recent
        ([7, 1, 2, 5, 0, 2, 6, 1, 2], [5, 0, 2]),  # a longer match beats a more recent one
        ([1, 2, 1, 2], [1, 2, 1]),
        ([5, 5], [5, 5, 5]),
        ([1, 2, 3], []),
        ([1], []),
    ],
)
def test_known_cases(tokens, draft):
    assert lookup(tokens, 3).tolist() == draft


def test_impossible_requests_are_refused():
    for count, longest, least in ((-1, 3, 1), (3, 0, 1), (3, 2, 3), (3, 2, 0)):
        with pytest.raises(ValueError):
            lookup([1, 2], count, longest, least)
