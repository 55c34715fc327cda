"""A run with several evaluations of one protocol: one is chosen by name, and the others are not read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis import compare_runs
from analysis.commands.check import check
from analysis.commands.check import main as check_command
from analysis.commands.compare import main as compare
from analysis.commands.power import main as power
from analysis.errors import DataError, Exit, UsageError, run_command
from analysis.runlog.evaluations import choose
from analysis.runlog.load import load
from analysis.runlog.reading import Run
from analysis.runlog.step_rules import RULES
from analysis.runlog.writing import RunWriter
from tests.analysis.runs import prompts_of, write_run

GREEDY, SAMPLED = "aaaa00000001", "bbbb00000001"
COUNTS = {GREEDY: [1, 2, 3, 4, 5, 6, 7], SAMPLED: [1, 1, 1, 1, 1, 1, 1]}
PREFIX = [3, 3, 3, 3, 3, 3, 3]


def add(folder: Path, key: str, accepted: list[Any], protocol: str) -> None:
    """Add an evaluation ``key`` to a run."""
    other = folder.with_name(f".{folder.name}-{key}")
    evaluated = Run.open(write_run(other, prompts_of(accepted), protocol=protocol, history=False))
    writer = RunWriter.resume(folder)
    (record,) = evaluated.manifest.evaluations.values()
    writer.manifest.evaluations[key] = record.model_copy(update={"settings": {**record.settings, "name": key}})
    for name in evaluated.tables():
        table = evaluated.read(name)
        place = table.column_names.index("eval_id")
        writer.append(name, table.set_column(place, "eval_id", pa.array([key] * len(table))), part=key)
    writer.commit()
    shutil.rmtree(other)


def several(folder: Path, counts: dict[str, list[int]] = COUNTS, bonus: int = 0) -> Path:
    """A run of a prefix evaluation and of these generate evaluations, of one step a prompt."""
    write_run(folder, prompts_of(PREFIX), history=False)
    for key, accepted in counts.items():
        add(folder, key, [[min(a + bonus, 7)] for a in accepted], "generate")
    return folder


def test_without_a_choice_the_error_names_the_option_and_the_evaluations(tmp_path: Path) -> None:
    run = Run.open(several(tmp_path / "a"))
    with pytest.raises(DataError, match=rf"--evaluation NAME: {GREEDY} \(generate, 7 prompts\), {SAMPLED} "):
        load(run, "generate")


def test_the_chosen_one_is_read_from_every_table_and_other_protocols_stay(tmp_path: Path) -> None:
    run = Run.open(several(tmp_path / "a"))
    for key, accepted in COUNTS.items():
        (chosen,), protocol = choose([run], key[:3])
        assert protocol == "generate"
        assert load(chosen, "generate").prompts["tokens"].tolist() == [a + 1 for a in accepted]
        assert load(chosen, "prefix").prompts["tokens"].tolist() == [a + 1 for a in PREFIX]
        for name in ("prompts", "acceptance", "gate_stats"):
            table = run.read(name)
            of_others = {k for k in COUNTS if k != key}
            expected = sum(k not in of_others for k in table["eval_id"].to_pylist())
            assert 0 < len(chosen.read(name)) == len(chosen.read(name, ["dataset"])) == expected < len(table)
            assert chosen.read(name, ["dataset"]).column_names == ["dataset"]
        assert set(chosen.manifest.evaluations) == set(run.manifest.evaluations) - of_others


def test_compare_runs_takes_it_and_its_protocol(tmp_path: Path) -> None:
    a, b = several(tmp_path / "a"), several(tmp_path / "b", bonus=1)
    found = compare_runs(a, b, evaluation=GREEDY)
    assert (found.protocol, found.overall.mean_a, found.overall.mean_b) == ("generate", 5.0, pytest.approx(41 / 7))
    assert compare_runs(a, b, evaluation="bbbb").overall.estimate == 1.0
    assert not [c for c in found.cautions if c.code == "other-protocol"]
    with pytest.raises(UsageError, match="'generate', not 'prefix'"):
        compare_runs(a, b, evaluation=GREEDY, protocol="prefix")


def test_a_run_with_one_evaluation_of_the_protocol_needs_no_choice(tmp_path: Path) -> None:
    a, b = several(tmp_path / "a"), several(tmp_path / "b", {"cccc00000001": [2] * 7})
    assert compare_runs(a, b, evaluation=SAMPLED).overall.estimate == 1.0


@pytest.mark.parametrize(
    ("name", "message"),
    [("zz", f"named zz; there are .*{GREEDY}"), ("", "several evaluations begin"), (GREEDY, "b: has no evaluation")],
)
def test_a_name_that_does_not_choose_is_refused(tmp_path: Path, name: str, message: str) -> None:
    b = several(tmp_path / "b", {SAMPLED: [1] * 7, "cccc00000001": [2] * 7})
    runs = [Run.open(several(tmp_path / "a")), Run.open(b)]
    with pytest.raises(UsageError, match=message):
        choose(runs, name)


def test_the_commands_take_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [str(several(tmp_path / name, bonus=bonus)) for name, bonus in (("a", 0), ("b", 1))]
    third = str(several(tmp_path / "c", bonus=2))
    assert run_command(compare, [*runs, "--protocol", "generate"]) == Exit.DATA
    assert "--evaluation NAME" in capsys.readouterr().err
    assert run_command(compare, [*runs, "--evaluation", "aaaa"]) == Exit.OK
    assert run_command(compare, [*runs, third, "--evaluation", "aaaa", "--out", "several"]) == Exit.OK
    assert run_command(power, [*runs, "--evaluation", "aaaa", "--effect", "0.1"]) == Exit.OK
    (tmp_path / "t.csv").write_text("prompt_id,tau\n" + "".join(f"p{i},{i}\n" for i in range(9)), encoding="utf-8")
    assert run_command(compare, ["t.csv", "t.csv", "--evaluation", "aaaa"]) == Exit.USAGE


def test_check_looks_at_each_evaluation(tmp_path: Path, capsys: Any) -> None:
    folder = several(tmp_path / "a")
    report = check(Run.open(folder))
    assert report.faults == ()
    texts = [claim.text for claim in report.can if claim.code == "pairs"]
    assert [text.split(":")[0] for text in texts] == [
        f"evaluation {GREEDY}, generate", f"evaluation {SAMPLED}, generate", "prefix"
    ]  # fmt: skip
    assert run_command(check_command, [str(folder)]) == Exit.OK
    capsys.readouterr()
    part = folder / "acceptance.parquet" / f"{SAMPLED}.parquet"
    table = pq.read_table(part)
    pq.write_table(
        table.set_column(table.column_names.index("emitted"), "emitted", pa.array([9] * 7, pa.int16())), part
    )
    assert any(RULES["emitted-over"][0] in fault for fault in check(Run.open(folder)).faults)
