"""The check finds what is broken, and says what a comparison could and could not claim."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.commands.check import check, main
from analysis.errors import run_command
from analysis.runlog import step_rules
from analysis.runlog import steps as steps_module
from analysis.runlog.load import load
from analysis.runlog.reading import Run
from analysis.runlog.step_rules import RULES, broken_rules
from tests.analysis.importers import logs
from tests.analysis.runlog.test_steps import PROMPTS, rewrite
from tests.analysis.runs import prompt, prompts_of, study, write_run


@pytest.mark.parametrize("protocol", ["prefix", "generate"])
def test_a_sound_run_has_no_fault(tmp_path: Path, protocol: str) -> None:
    for folder in study(tmp_path, protocol=protocol):
        assert check(Run.open(folder)).faults == ()


def faults(folder: Path, column: str, values: list[Any]) -> tuple[str, ...]:
    def change(table: pa.Table) -> pa.Table:
        index = table.column_names.index(column)
        return table.set_column(index, column, pa.array(values, table.schema.field(column).type))

    rewrite(folder, change)
    return check(Run.open(folder)).faults


@pytest.mark.parametrize(
    ("column", "values", "rule"),
    [
        ("accepted", [2, 8, 7, 1], "accepted-over-drafted"),
        ("eligible", [7, 7, 8, 7], "eligible-over-drafted"),
        ("eligible", [1, 7, 7, 7], "accepted-over-eligible"),
        ("emitted", [4, 1, 8, 2], "emitted-over"),
        ("emitted", [2, 1, 8, 2], "emitted-under"),
        ("step", [0, 1, 3, 0], "numbering"),
        ("ended", ["mismatch", "boredom", "block", "mismatch"], "ending"),
        ("accepted", [2, -1, 7, 1], "negative"),
        ("accepted", [-3, 0, 7, 1], "negative"),
    ],
)
def test_steps_that_break_a_rule_are_named(tmp_path: Path, column: str, values: list[Any], rule: str) -> None:
    folder = write_run(tmp_path / "run", PROMPTS[:2], protocol="generate", gates=False)
    assert any(
        f"generate: 1 step with {RULES[rule][0]}; the first: prompt " in x for x in faults(folder, column, values)
    )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(-1, 4)] * 4, st.sampled_from(["block", "odd"])), min_size=1), st.integers(0, 2**32)
)
def test_the_pass_in_order_finds_what_sorting_finds(counts: list[tuple[int, int, int, int, str]], seed: int) -> None:
    """Mostly sound steps of three prompts with odd ones among them, in order or not."""
    random = Random(seed)
    steps: dict[str, int] = {}
    rows = []
    for drafted, eligible, accepted, emitted, ended in counts:
        prompt_id = random.choice("abc") if random.random() < 0.2 else sorted("abc")[len(rows) * 3 // len(counts)]
        odd = random.random() < 0.1
        sound = {"drafted": 4, "eligible": 4, "accepted": abs(accepted), "emitted": abs(accepted) + 1, "ended": "block"}
        broken = {"drafted": drafted, "eligible": eligible, "accepted": accepted, "emitted": emitted, "ended": ended}
        number = steps.setdefault(prompt_id, 0) + (random.random() < 0.03)
        steps[prompt_id] += 1
        rows.append({"prompt_id": prompt_id, "step": number, **(broken if odd else sound)})
    with TemporaryDirectory() as name:
        folder = write_run(Path(name) / "run", [prompt(p, [1]) for p in "abc"], protocol="generate", gates=False)

        def change(table: pa.Table) -> pa.Table:
            keyed = [{**table.slice(0, 1).to_pylist()[0], **row} for row in rows]
            return pa.Table.from_pylist(keyed, table.schema)

        rewrite(folder, change)
        evaluated = load(Run.open(folder), "generate")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(steps_module, "_BATCH", random.choice([1, 2, 5, 100]))
            in_order = step_rules._in_order(evaluated)
            patch.setattr(step_rules, "_in_order", lambda _: False)
            found = broken_rules(evaluated)
        together = len(list(groupby(row["prompt_id"] for row in rows))) == len(steps)
        assert in_order == (not found and together)


def test_a_cut_last_step_is_no_fault(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", PROMPTS[:2], protocol="generate", gates=False)
    assert not any("emitted less" in fault for fault in faults(folder, "emitted", [3, 1, 5, 2]))


def test_prompts_and_steps_must_agree(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", PROMPTS[:2], protocol="generate", gates=False)

    def change(table: pa.Table) -> pa.Table:
        return table.set_column(table.column_names.index("steps"), "steps", pa.array([3, 2], pa.int32()))

    rewrite(folder, change, "prompts")
    (fault,) = check(Run.open(folder)).faults
    assert "1 prompt" in fault and fault.endswith("(b)")


def test_a_file_that_was_changed_is_found_by_its_hash(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", prompts_of([1, 2]))
    manifest = folder / "run.json"
    run = Run.open(folder)
    digest = run.manifest.tables["prompts"][0].sha256
    manifest.write_text(manifest.read_text().replace(digest, "0" * 64))
    assert any(fault.startswith("prompts.parquet") and "sha256" in fault for fault in check(Run.open(folder)).faults)


def test_what_can_be_claimed_and_what_cannot(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [prompt(f"p{i}", 3, cluster_id=f"c{i % 2}") for i in range(8)], gates=False)
    found = check(Run.open(folder))
    (pairs,) = [claim.text for claim in found.can if claim.code == "pairs"]
    assert "8 prompts" in pairs and "2 clusters" in pairs
    assert {"significance", "other-seeds", "speed"} <= {claim.code for claim in found.cannot}


def test_rows_of_a_log_that_were_left_out_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """7 of 128 rows: most break their sum, two are half a line, one is NUL bytes."""
    rows = [logs.answer(i, [[3, 2]]) for i in range(128)]
    for row in rows[124:]:
        row["choices"][0]["new_tokens"] = [6]
    data = logs.lines(rows).splitlines(keepends=True)
    data[30], data[40], data[50] = b'{"question_id": 30\n', b'{"question_id": 4\n', b"\x00" * 9 + b"\n"
    assert run_command(main, [str(logs.write(tmp_path, "a.jsonl", b"".join(data)))]) == 0
    out = capsys.readouterr().out
    assert "fault:" not in out and "4 as a.jsonl, " in out
    assert "2 as a.jsonl, line 31: " in out and "1 as a.jsonl, line 51: " in out
    assert "121 prompts" in out


def test_the_command_takes_a_run_or_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(main, [str(logs.write(tmp_path, "answers.jsonl"))]) == 0
    out = capsys.readouterr().out
    assert "fault:" not in out and "4 turns of 3 prompts" in out
    assert run_command(main, [str(logs.write(tmp_path, "vllm.json"))]) == 0
    assert "totals" in capsys.readouterr().out
    broken = write_run(tmp_path / "run", PROMPTS[:2], protocol="generate", gates=False)
    faults(broken, "accepted", [2, 8, 7, 1])
    assert run_command(main, [str(broken)]) == 65
    assert run_command(main, [str(tmp_path / "absent")]) == 65
