"""Rows found by key, against a dictionary of Python tuples."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from analysis.keys import KeyIndex, in_order, taken

keys = st.tuples(st.sampled_from(["a", "b", "ab", "", "é"]), st.integers(-2, 3), st.integers(0, 2))


def columns(rows: list[tuple[str, int, int]]) -> list[pa.Array]:
    names, turns, samples = zip(*rows, strict=True)
    return [pa.array(names, pa.string()), pa.array(turns, pa.int16()), pa.array(samples, pa.int16())]


@given(st.lists(keys, min_size=1, max_size=20, unique=True), st.lists(keys, min_size=1, max_size=30), st.booleans())
def test_rows_are_those_of_a_dictionary(there, asked, sparse):
    if sparse:  # more combinations of values than a table from code to row would have places for
        there = [*there, *((f"x{i}", i, i) for i in range(12))]
    index = KeyIndex(columns(there))
    row_of = {key: row for row, key in enumerate(there)}
    assert index.find(columns(asked)).tolist() == [row_of.get(key, -1) for key in asked]
    assert not index.repeated
    assert KeyIndex(columns([*there, there[0]])).repeated


def test_strings_are_found_whatever_their_arrow_type():
    index = KeyIndex([pa.array(["x", "y"], pa.large_string())])
    assert index.find([pa.chunked_array([["y"], ["z", "x"]])]).tolist() == [1, -1, 0]


def test_keys_in_order_are_followed():
    index = KeyIndex([pa.array(["a", "b", "c", "d"])])
    assert index.follow([pa.array(["a", "b"])]) == slice(0, 2)
    assert index.follow([pa.array(["b", "c"])]) == slice(1, 3)  # a prompt whose steps two batches share
    assert index.follow([pa.array(["b"])]) is None
    assert index.follow([pa.array(["d"])]) == slice(3, 4)
    assert index.follow([pa.array(["d", "e"])]) is None


def test_all_rows_in_order_are_not_copied():
    table = pa.table({"x": [3, 4, 5]})
    assert taken(table, np.arange(3)) is table
    assert taken(table, np.array([2, 0]))["x"].to_pylist() == [5, 3]
    assert not in_order(np.array([0, 2, 1]), 3) and not in_order(np.arange(2), 3)
