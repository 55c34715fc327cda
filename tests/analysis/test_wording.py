"""Formats of numbers and p-values, and names that hold anything."""

from __future__ import annotations

import pytest

from analysis.cautions import caution
from analysis.wording import (
    ACCEPTED_LENGTH,
    Verdict,
    counted,
    equals_p,
    headline,
    interval,
    number,
    one_line,
    p_value,
    percent,
    signed,
)


@pytest.mark.parametrize(
    ("p", "text", "sentence"),
    [
        (1.0, "1", "p = 1"),
        (0.03125, "0.0312", "p = 0.0312"),
        (2.5e-7, "2.5e-07", "p = 2.5e-07"),
        (9e-13, "<1e-12", "p < 1e-12"),
        (1e-300, "<1e-12", "p < 1e-12"),
        (None, "—", "p = —"),
    ],
)
def test_p_is_never_zero(p, text, sentence):
    assert p_value(p) == text
    assert equals_p(p) == sentence


def test_numbers():
    assert signed(0.15, 2) == "+0.15"
    assert signed(-0.0001, 2) == "0.00"
    assert number(-0.0) == "0.000"
    assert interval(-0.07, 0.2204) == "-0.070 to +0.220"
    assert interval(None, 1.0) == "—"
    assert percent(0.9545) == "95.5%"
    assert counted(1, "prompt") == "1 prompt"
    assert counted(1200, "prompt") == "1,200 prompts"


def test_names_are_put_on_one_line():
    assert one_line("a\n b\t|c\x07") == "a b |c"
    assert one_line("می\u200cخواهم") == "می\u200cخواهم"  # a joiner is part of the word
    assert one_line("\u202eعربي") == "عربي"  # without the override that would turn the rest of the line around
    assert one_line(" \n") == "(none)"


def test_a_headline_names_the_arms_their_means_and_the_facts():
    arms = [("DFlash", 2.0), ("gated (B)", 1.0)]
    assert headline(Verdict.A_BETTER, ACCEPTED_LENGTH, arms, "a difference of -1.000") == (
        "DFlash (A) is better than gated (B): mean accepted length 2.000 against 1.000 tokens, a difference of -1.000."
    )
    assert headline(Verdict.IDENTICAL, ACCEPTED_LENGTH, [("x", 1.0), ("y", 1.0)], "equal on each of 70 prompts") == (
        "x (A) and y (B) are identical here: mean accepted length 1.000 tokens in both, equal on each of 70 prompts."
    )


def test_cautions_hold_their_facts():
    assert caution("few-pairs", n=3, least=0.25).text == (
        "Only 3 pairs: an exact two-sided p cannot be below 0.25, so no conclusion is possible at 5%."
    )
    with pytest.raises(KeyError):
        caution("few-pairs", n=3)
