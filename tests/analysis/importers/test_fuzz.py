"""Damaged logs of every format: each has the outcome that its mutation declares (a slice of ``fuzz_importers``)."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from analysis.importers.registry import FORMATS, read_file
from benchmarks.fuzz_importers import formats
from benchmarks.fuzz_importers.damage import cases_of
from benchmarks.fuzz_importers.declared import OUTCOMES, REDUCED, SAME, Case, Mutated, judge, tokens_and_steps
from benchmarks.fuzz_importers.everything import cases, fuzz


def test_every_mutation_of_every_format_has_a_declared_outcome() -> None:
    found, faults = fuzz(900, seed=7)
    assert not faults
    pairs = {(form, mutation) for form, mutation, _ in found}
    assert len(pairs) >= 150 and len({form for form, _ in pairs}) >= 21
    assert {outcome for _, _, outcome in found} == set(OUTCOMES)


def test_every_importer_is_in_the_fuzz_with_logs_that_it_reads(tmp_path: Path) -> None:
    keys = set()
    for case in cases(Random(2)):
        if case.mutation == "untouched":
            path = tmp_path / f"log{case.suffix}"
            path.write_bytes(case.mutated.data)
            assert read_file(path)[0] == case.key, case.form
            keys.add(case.key)
    assert keys == {form.key for form in FORMATS}


@pytest.mark.parametrize("wrong", ["another value", "a lost record", "a refusal"])
def test_the_judge_finds_what_is_wrong(tmp_path: Path, wrong: str) -> None:
    """So that no fault can hide in a judge that takes all."""
    rng = Random(1)
    form = next(form for form in formats.FORMATS if form.name == "plain JSON lines")
    made = [form.make(rng, number) for number in range(30)]
    records = [dict(record) for record, _ in made]
    if wrong == "another value":
        records[3]["tokens"] += 1
    elif wrong == "a lost record":
        del records[3]
    else:
        records = [{"prompt_id": 1}]
    mutated = Mutated(form.log(records), (SAME,))
    case = Case(form.name, form.key, "by hand", mutated, [count for _, count in made], tokens_and_steps)
    assert judge(tmp_path / "log", case) not in OUTCOMES


def test_a_value_that_lacks_a_record_is_right_only_where_the_record_is_counted(tmp_path: Path) -> None:
    """A log that lacks a record without a word is no ``reduced`` one."""
    form = next(form for form in formats.FORMATS if form.name == "plain JSON lines")
    case = next(case for case in cases_of(form, Random(3)) if case.mutation == "untouched")
    lines = case.mutated.data.splitlines(keepends=True)
    silent = Case(
        case.form, case.key, "by hand", Mutated(b"".join(lines[1:]), (REDUCED,), 0), case.counts, case.measure
    )
    assert judge(tmp_path / "log", silent) not in OUTCOMES
