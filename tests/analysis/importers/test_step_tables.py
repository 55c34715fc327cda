"""Tables of steps read by columns, against the same rows one by one; and at a size where rows would not do."""

from __future__ import annotations

import csv
import io
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from analysis.importers import columns, plain
from analysis.importers.cells import value_of
from analysis.importers.collect import collect
from analysis.importers.columns import FIELDS
from analysis.importers.model import RowError
from analysis.importers.registry import Options, read_file
from analysis.importers.source import Problem, Row, Source
from analysis.importers.step_table import _TWICE, key_of, require_sound
from analysis.importers.write import write_run
from analysis.runlog.reading import Run
from tests.analysis.importers import logs

NAMES = ["prompt_id", "accepted", "step", "emitted", "drafted", "dataset", "turn", "sample", "category", "other"]
USUAL = {"prompt_id": "aab", "accepted": "0123", "drafted": ["15"], "dataset": "s", "turn": "0", "category": ["qa"]}
ODD = ["", "x", "-1", "1.0", "2.5", "40000", "1e2", " 3 ", "+2", "1_1", "٣", '"4"', "é", "007", "nan", "1" * 23, "1;2"]
DAMAGE = [b"\x00", b"\r", b'"', b"\n", b"\xff", b"\xef\xbb\xbf", b" ", b",", b""]


def by_rows(rows: list[Row]) -> tuple[dict[tuple[str, int, int], tuple[list[int], list[int]]], list[tuple[int, str]]]:
    """((emitted, accepted) of each key that can be used, (line, reason) of the rest), a row at a time."""
    found: dict[Any, list[tuple[int, int, int, Row]]] = {}
    problems, bad = [], {}
    for row in rows:
        key = None
        try:
            key = key_of(row)
            require_sound(row.value)
        except RowError as error:
            problems.append((row.line, str(error)))
            if key is not None:
                bad.setdefault(key, row.line)
            continue
        emitted, accepted = row.value.get("emitted"), row.value.get("accepted")
        emitted = int(accepted + 1 if emitted is None else emitted)
        step = row.value.get("step")
        of_key = found.setdefault(key, [])
        of_key.append((step, emitted, int(emitted - 1 if accepted is None else accepted), row))
    good = {}
    lacking = lacking_of({key: [step[0] for step in steps] for key, steps in found.items() if key not in bad})
    for key, steps in found.items():
        line = steps[0][3].line
        numbers = [step[0] for step in steps if step[0] is not None]
        if key in bad:
            problems.append((line, f"prompt {key[0]} left out whole: its row on line {bad[key]} is bad"))
        elif numbers and len(numbers) < len(steps):
            problems.append((line, f"prompt {key[0]} left out: some of its steps have no number"))
        elif len(set(numbers)) < len(numbers):
            problems.append((line, f"prompt {key[0]} left out: a step of it occurs twice ({_TWICE})"))
        elif lacking.get(key):
            lost = f"{lacking[key]} step{'s' * (lacking[key] > 1)}"
            problems.append((line, f"prompt {key[0]} left out: by their numbers it lacks {lost}"))
        else:
            steps.sort(key=lambda step: 0 if step[0] is None else step[0])
            good[key] = [step[1] for step in steps], [step[2] for step in steps]
    return good, problems


def lacking_of(numbers: dict[Any, list[int | None]]) -> dict[Any, int]:
    """How many steps each response lacks, where most responses are numbered 0, 1, ... or 1, 2, ..."""
    sound = {key: sorted(n) for key, n in numbers.items() if None not in n and len(set(n)) == len(n)}
    firsts = [min(n[0], 2) for n in sound.values()]
    begin = max(range(3), key=lambda first: (firsts.count(first), -first))
    gaps = {key: max(n[-1] - begin + 1 - len(n), 0) for key, n in sound.items()}
    return gaps if begin < 2 and 2 * list(gaps.values()).count(0) > len(gaps) else {}


def assert_same(path: Path, rows: list[Row], damage: list[tuple[int | None, str]]) -> None:
    good, problems = by_rows(rows)
    ids = [(*key[0].rpartition("/"), key) for key in good]
    if all(re.fullmatch(r"[0-9]+\.0", name) for _, _, name, _ in ids):
        good = {(f"{dataset}{slash}{name[:-2]}", *key[1:]): good[key] for dataset, slash, name, key in ids}
    try:
        found = plain.read(Source.open(path))
    except RowError as error:
        alone = [steps[0][0] for steps in good.values() if len(steps[0]) == 1]
        drafted = [row.value.get("drafted") for row in rows]
        most = max(*(n - 1 for n in alone), *(d for d in drafted if isinstance(d, int | float)), 0, 0)
        totals = 2 * len(alone) > len(good) and most > 64 and all(row.value.get("step") is None for row in rows)
        assert "totals of prompts" in str(error) if totals else "but no row" in str(error) and not rows and not damage
        return
    (responses,) = [run.responses for run in found.runs] or [[]]
    good = {key[:3]: steps for key, steps in good.items()}
    assert {r.key: (list(r.emitted or ()), list(r.accepted or ())) for r in responses} == good
    assert [r.key for r in responses] == list(good)
    assert all((r.steps, r.tokens) == (len(good[r.key][0]), sum(good[r.key][0])) for r in responses)
    told = sorted((p.line or 0, p.reason) for p in found.problems if not p.reason.startswith("no row has"))
    assert told == sorted([*problems, *((line or 0, reason) for line, reason in damage)])


def lines_of(data: bytes) -> tuple[list[Row], list[tuple[int, str]]]:
    """Records of a CSV file, each tried from its first line on with more and more lines, and the damaged lines."""
    raw = data.split(b"\n")
    names: list[str] = []
    rows, damage = [], []
    place = 0
    while place < len(raw):
        number, line = place + 1, raw[place].removeprefix(b"\xef\xbb\xbf").decode(errors="replace").rstrip("\r")
        cells, taken = over_lines(raw[place:]) if '"' in line and "\x00" not in line else ([], 1)
        place += 1
        if taken > 1 and len(cells) == len(names):
            place += taken - 1
        elif not line.strip():
            continue
        elif "\x00" in line:
            damage.append((number, "NUL bytes: the writer was stopped here"))
            continue
        else:
            try:
                records = list(csv.reader([line]))
                is_open = len(list(csv.reader([line + "\n", "next\n"]))) == 1
            except csv.Error as error:
                damage.append((number, f"not CSV ({error})"))
                continue
            if is_open:
                damage.append((number, "a quoted cell is not closed: half a line, or damaged"))
                continue
            cells = records[0]
        if not names:
            names = [cell.strip() for cell in cells]
        elif len(cells) != len(names):
            damage.append((number, f"{len(cells)} cells under {len(names)} columns: half a line"))
        else:
            named = zip(names, cells, strict=True)
            rows.append(Row(number, {n: value_of(c, n, ",") for n, c in named if n in FIELDS}))
    return rows, damage


def over_lines(raw: list[bytes]) -> tuple[list[str], int]:
    """(cells, lines) of the strict CSV record that begins here; 1 line where there is none."""
    for taken in range(1, len(raw) + 1):
        text = (b"\n".join(raw[:taken]) + b"\n").removeprefix(b"\xef\xbb\xbf").decode(errors="replace")
        try:
            records = list(csv.reader(io.StringIO(text, newline=""), strict=True))
        except csv.Error as error:
            if str(error) == "unexpected end of data":
                continue
            return [], 1
        # a lone carriage return within a line would end the record there
        return ([], 1) if "\x00" in text or len(records) != 1 else (records[0], taken)
    return [], 1


def some_rows(rng: random.Random) -> tuple[list[str], list[list[str]]]:
    names = ["prompt_id", "accepted", *rng.sample(NAMES[2:], rng.randint(0, 6))]
    rng.shuffle(names)
    steps = range(rng.randint(1, 14))
    usual = {**USUAL, "step": None}
    return names, [
        [rng.choice(ODD) if rng.random() < 0.06 else str(i) if n == "step" else rng.choice(usual.get(n) or [""])
         for n in names]
        for i in steps
    ]  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.sampled_from([1, 30, 1 << 20]))
@example(9591194, 1)  # a quote after a lone carriage return, and its partner lines below
def test_csv_by_blocks_is_csv_by_lines(tmp_path: Path, seed: int, block: int) -> None:
    """Whatever stands in the cells, and whatever bytes were damaged after the header."""
    rng = random.Random(seed)
    names, cells = some_rows(rng)
    head = ",".join(names).encode() + b"\n"
    body = bytearray(rng.choice(["\n", "\r\n"]).join(map(",".join, cells)).encode() + rng.choice([b"", b"\n"]))
    for _ in range(rng.choice([0, 0, 1, 3])):
        place = rng.randrange(len(body) + 1)
        body[place : place + rng.randint(0, 1)] = rng.choice(DAMAGE)
    path = logs.write(tmp_path, "t.csv", head + bytes(body))
    rows, damage = lines_of(head + bytes(body))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_BLOCK", block)
        assert_same(path, rows, damage)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.sampled_from([1, 4, 1 << 20]))
def test_parquet_by_columns_is_parquet_by_rows(tmp_path: Path, seed: int, at_a_time: int) -> None:
    """Columns of strings, integers, floats with gaps, dictionaries."""
    rng = random.Random(seed)
    names, cells = some_rows(rng)
    arrays = {}
    for name, column in zip(names, zip(*cells, strict=True), strict=True):
        values = [value_of(cell, name, ",") for cell in column]
        try:
            array = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            array = pa.array(column)
        arrays[name] = array.dictionary_encode() if rng.random() < 0.3 and array.type != pa.null() else array
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(arrays), path)
    rows = [
        Row(i, {n: v for n, v in row.items() if n in FIELDS})
        for i, row in enumerate(pq.read_table(path).to_pylist(), 1)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_ROWS", at_a_time)
        assert_same(path, rows, [])


def test_a_bad_row_far_down_a_large_table_is_named_by_its_line(tmp_path: Path) -> None:
    """120,000 steps: all but the prompts of three bad rows are written, with their counts. Two of the rows do not even
    say whose they are; the numbers of the steps do."""
    n, steps = 120_000, 30
    accepted = np.random.default_rng(0).integers(0, 16, n)
    lines = [f"p{i // steps},{i % steps},{accepted[i]},15" for i in range(n)]
    lines[600] = lines[600].replace(",15", ",one")
    lines[90_000] = "p3000,0"
    lines[110_000] += "\x00"
    path = logs.write(tmp_path, "t.csv", "\n".join(["prompt_id,step,accepted,drafted", *lines]) + "\n")
    _, found = read_file(path, Options())
    reasons = {p.line: p.reason for p in found.problems}
    assert reasons == {
        602: "drafted is 'one', not an integer",
        90_002: "2 cells under 4 columns: half a line",
        110_002: "NUL bytes: the writer was stopped here",
        # the steps before and after a bad one are no prompt
        reasons_line(found.problems, "p20"): "prompt p20 left out whole: its row on line 602 is bad",
        **{
            reasons_line(found.problems, name): f"prompt {name} left out: by their numbers it lacks 1 step"
            for name in ("p3000", "p3666")
        },
    }
    write_run(tmp_path / "run", found.runs[0], name="run")
    run = Run.open(tmp_path / "run")
    table = run.read("acceptance").to_pandas()
    assert len(table) == n - 3 * steps
    expected = np.delete(accepted, [*range(600, 630), *range(90_000, 90_030), *range(109_980, 110_010)])
    np.testing.assert_array_equal(table["accepted"], expected)
    assert (table["emitted"] == table["accepted"] + 1).all() and (table["drafted"] == 15).all()
    assert table.groupby("prompt_id")["step"].apply(list).map(lambda s: s == list(range(steps))).all()


def reasons_line(problems: Any, prompt_id: str) -> int | None:
    (problem,) = [p for p in problems if isinstance(p, Problem) and f"prompt {prompt_id} " in p.reason]
    return problem.line


@pytest.mark.parametrize("begin", [0, 1])
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_step_that_is_missing_by_its_number_leaves_its_prompt_out(tmp_path: Path, begin: int, lost: int) -> None:
    rows = [(f"p{i}", begin + k, (i + k) % 4) for i in range(20) for k in range(4)]
    del rows[5 * 4 + lost]
    text = "prompt_id,step,accepted\n" + "".join(f"{p},{k},{n}\n" for p, k, n in rows)
    found = collect([logs.write(tmp_path, "log.csv", text)])
    (run,) = found.runs
    assert "p5" not in {r.prompt_id for r in run.responses} and len(run.responses) == 19
    assert ["it lacks 1 step" in str(problem) for _, problem in found.problems] == [True]


def test_positions_in_the_answer_are_no_numbers_of_steps(tmp_path: Path) -> None:
    # a step's number is here the place of its first token: gaps are what was accepted
    text = "prompt_id,step,accepted\n" + "".join(f"p{i},{3 * k},2\n" for i in range(20) for k in range(4))
    (run,) = collect([logs.write(tmp_path, "log.csv", text)]).runs
    assert len(run.responses) == 20
