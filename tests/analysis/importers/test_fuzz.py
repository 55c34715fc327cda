"""Damaged logs of every format: each has the outcome that its mutation declares (a slice of ``fuzz_importers``)."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from benchmarks import fuzz_importers as fuzzing


def test_every_mutation_of_every_format_has_a_declared_outcome() -> None:
    found, faults = fuzzing.fuzz(900, seed=7)
    assert not faults
    pairs = {(form, mutation) for form, mutation, _ in found}
    assert len(pairs) >= 90 and len({form for form, _ in pairs}) >= 13
    outcomes = {outcome for _, _, outcome in found}
    assert outcomes == {"same", "reduced", "unknown", "refused", "per draft"}


@pytest.mark.parametrize("wrong", ["another value", "a lost record", "a refusal"])
def test_the_judge_finds_what_is_wrong(tmp_path: Path, wrong: str) -> None:
    """So that no fault can hide in a judge that takes all."""
    rng = Random(1)
    form = next(form for form in fuzzing.FORMATS if form.name == "plain JSON lines")
    made = [form.make(rng, number) for number in range(30)]
    counts = [count for _, count in made]
    records = [dict(record) for record, _ in made]
    if wrong == "another value":
        records[3]["tokens"] += 1
    elif wrong == "a lost record":
        del records[3]
    else:
        records = [{"prompt_id": 1}]
    mutated = fuzzing.Mutated(fuzzing._bytes(fuzzing._render(form, records)), (fuzzing.SAME,))
    assert fuzzing.judge(tmp_path / "log", mutated, counts) not in (fuzzing.SAME, fuzzing.REDUCED)
