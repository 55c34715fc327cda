"""The reduction of steps to prompts, against plain Python over the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.errors import DataError
from analysis.runlog import steps as module
from analysis.runlog.counting import Counting
from analysis.runlog.load import load
from analysis.runlog.reading import Run
from tests.analysis.runs import prompt, write_run

PROMPTS = [prompt("a", [2, 0, 7]), prompt("b", [1]), prompt("c", []), prompt("d", [3, None])]


def counts_of(folder: Path | str, protocol: str = "generate") -> Any:
    evaluated = load(Run.open(folder), protocol)
    return evaluated.prompts.set_index("prompt_id"), evaluated.counts


def rewrite(folder: Path, change: Any, table: str = "acceptance") -> None:
    """The run's table, changed, with the manifest no longer listing its parts."""
    run = Run.open(folder)
    changed = change(run.read(table))
    manifest = (folder / "run.json").read_text()
    import json

    data = json.loads(manifest)
    for part in data["tables"].pop(table):
        (folder / part["file"]).unlink()
    (folder / "run.json").write_text(json.dumps(data))
    path = folder / f"{table}.parquet"
    if path.is_dir():
        path = path / "all.parquet"
    pq.write_table(changed, path)


def naive(run: Run, protocol: str, width: int) -> dict[str, dict[str, Any]]:
    """Sums by prompt, straight from the definitions."""
    found: dict[str, dict[str, Any]] = {}
    for row in run.read("acceptance").to_pylist():
        of = found.setdefault(row["prompt_id"], {"steps": 0, "tokens": 0, "slots": np.zeros((4, width), int)})
        of["steps"] += 1
        accepted, eligible = row["accepted"], row["eligible"] if row["eligible"] is not None else row["drafted"]
        if accepted is None:
            accepted = -1
        else:
            of["tokens"] += row["emitted"] if protocol == "generate" else accepted + 1
        for k in range(1, min(eligible or 0, width) + 1):
            of["slots"][0, k - 1] += 1
            of["slots"][1, k - 1] += accepted >= k
            of["slots"][2, k - 1] += accepted >= k - 1
            of["slots"][3, k - 1] += accepted == k - 1 and row["ended"] == "vocabulary"
    return found


def assert_equal_to_naive(folder: Path) -> None:
    run = Run.open(folder)
    prompts, counts = counts_of(folder)
    width = counts.at_risk.shape[1]
    expected = naive(run, "generate", width)
    for prompt_id, of in expected.items():
        row = prompts.loc[prompt_id, "row"]
        slots = np.stack([c[row] for c in (counts.at_risk, counts.survived, counts.reached, counts.missed_vocabulary)])
        assert counts.steps[row] == of["steps"] and counts.tokens[row] == of["tokens"]
        np.testing.assert_array_equal(slots, of["slots"])
    assert counts.steps.sum() == sum(of["steps"] for of in expected.values())


def test_by_hand(tmp_path: Path) -> None:
    prompts, counts = counts_of(write_run(tmp_path / "run", PROMPTS, protocol="generate"))
    assert prompts["steps"].tolist() == [3, 1, 0, 2]
    assert prompts["tokens"].tolist()[:2] == [3 + 1 + 8, 2]
    assert counts.survived[0].tolist() == [2, 2, 1, 1, 1, 1, 1]  # accepted 2, 0 and 7
    assert counts.reached[0].tolist() == [3, 2, 2, 1, 1, 1, 1]
    assert_equal_to_naive(tmp_path / "run")


steps = st.lists(st.one_of(st.none(), st.integers(0, 7)), max_size=9)


@settings(max_examples=40, deadline=None)
@given(st.lists(steps, min_size=1, max_size=6), st.integers(0, 2**31), st.booleans(), st.sampled_from([1, 3, 7, 99]))
def test_any_order_of_rows_and_any_parts(
    accepted: list[list[int | None]], seed: int, foreign: bool, at_a_time: int
) -> None:
    """Rows in order or shuffled, eligible partly unknown, endings mixed, types as other writers have them, few read
    at a time."""
    import tempfile

    rng = np.random.default_rng(seed)

    def change(table: pa.Table) -> pa.Table:
        frame = table.to_pandas()
        n = len(frame)
        eligible = np.minimum(rng.integers(0, 8, n), 7)
        frame["accepted"] = np.minimum(frame["accepted"], eligible)
        frame["emitted"] = frame["accepted"] + 1
        frame["eligible"] = [None if rng.random() < 0.3 else e for e in eligible]
        frame["ended"] = rng.choice(["vocabulary", "mismatch"], n)
        frame = frame.iloc[rng.permutation(n) if seed % 2 else np.arange(n)]
        changed = pa.Table.from_pandas(frame, preserve_index=False)
        if not foreign:
            return changed.select(table.column_names).cast(table.schema)
        return changed.set_column(0, "eval_id", changed["eval_id"].dictionary_encode())

    with tempfile.TemporaryDirectory() as folder:
        path = write_run(
            Path(folder) / "run", [prompt(f"p{i}", a) for i, a in enumerate(accepted)], protocol="generate", gates=False
        )
        rewrite(path, change)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_BATCH", at_a_time)
            patch.setattr(module, "_FLUSH", 2)
            assert_equal_to_naive(path)


def test_the_same_prompt_in_other_turns_samples_and_evaluations_is_another(tmp_path: Path) -> None:
    prompts = [prompt("x", [1], turn=0), prompt("x", [2, 3], turn=1), prompt("x", [5], turn=1, sample=2)]
    folder = write_run(tmp_path / "run", prompts, protocol="generate", gates=False)
    assert counts_of(folder)[1].tokens.tolist() == [2, 7, 6]
    rewrite(folder, lambda t: t.set_column(0, "eval_id", pa.array(["another", *t["eval_id"].to_pylist()[1:]])))
    with pytest.raises(DataError, match=r"1 prompts .*prompts\.parquet"):
        counts_of(folder)


def test_more_steps_than_16_bits_count(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [prompt("a", [2]), prompt("b", [0])], protocol="generate", gates=False)
    rewrite(folder, lambda t: pa.concat_tables([*[t.slice(0, 1)] * 70_000, t.slice(1, 1)]).combine_chunks())
    counts = counts_of(folder)[1]
    assert counts.survived.tolist() == [[70_000, 70_000, 0, 0, 0, 0, 0], [0] * 7]
    assert counts.reached[0].tolist() == [70_000] * 3 + [0] * 4
    assert counts.at_risk[0].tolist() == [70_000] * 7


def test_a_run_of_many_parts_is_read_as_one(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", PROMPTS, protocol="generate")
    whole = counts_of(folder)[1]
    table = Run.open(folder).read("acceptance")
    rewrite(folder, lambda t: t.slice(0, 2))
    for rank in range(2, len(table)):
        part = table.slice(rank, 1)
        if rank % 2:  # a rank that wrote wider integers
            part = part.set_column(part.column_names.index("emitted"), "emitted", part["emitted"].cast(pa.int64()))
        if rank % 3:  # a rank with a writer of wider strings
            part = part.set_column(
                part.column_names.index("prompt_id"), "prompt_id", part["prompt_id"].cast(pa.large_string())
            )
        pq.write_table(part, folder / "acceptance.parquet" / f"rank{rank}.parquet")
    found = counts_of(folder)[1]
    for name in ("steps", "counted", "tokens", "at_risk", "survived", "reached", "missed_vocabulary"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))


def test_a_run_behind_an_address(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", PROMPTS, protocol="generate")
    memory = fsspec.filesystem("memory")
    memory.put(str(folder), "/runs/remote", recursive=True)
    try:
        prompts, counts = counts_of("memory://runs/remote")
        assert prompts["steps"].tolist() == [3, 1, 0, 2] and counts.survived[0].sum() == 9
    finally:
        memory.rm("/runs", recursive=True)


def test_steps_without_a_prompt_are_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", PROMPTS, protocol="generate")
    rewrite(folder, lambda t: t.slice(0, 1), "prompts")
    with pytest.raises(DataError, match=r"2 prompts .*prompts.parquet.*\(b, d\)"):
        counts_of(folder)


def test_nulls_in_a_key_are_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", PROMPTS, protocol="generate")

    def change(table: pa.Table) -> pa.Table:
        values = pa.array([None, *table["dataset"].to_pylist()[1:]], pa.string())
        return table.set_column(table.column_names.index("dataset"), "dataset", values)

    rewrite(folder, change)
    with pytest.raises(DataError, match=r"'dataset'.* 1 null"):
        counts_of(folder)


@pytest.mark.parametrize("column", ["prompt_id", "eval_id", "protocol", "ended", "accepted"])
def test_a_column_that_lacks_is_named(tmp_path: Path, column: str) -> None:
    folder = write_run(tmp_path / "run", PROMPTS, protocol="generate")
    rewrite(folder, lambda t: t.drop_columns([column]))
    with pytest.raises(DataError, match=f"'{column}'"):
        counts_of(folder)


@pytest.mark.parametrize("place", [0, 3])  # of the first prompt of a batch, and of another
def test_impossible_counts_stay_in_their_own_prompt(tmp_path: Path, place: int) -> None:
    folder = write_run(tmp_path / "run", PROMPTS, protocol="generate")
    sound = counts_of(folder)[1]

    def change(table: pa.Table) -> pa.Table:
        values = table["accepted"].to_pylist()
        values[place] = -9
        column = pa.array(values, table.schema.field("accepted").type)
        return table.set_column(table.column_names.index("accepted"), "accepted", column)

    rewrite(folder, change)
    prompts, found = counts_of(folder)
    others = prompts.loc[["b" if place == 0 else "a", "d"], "row"]
    for name in ("at_risk", "survived", "reached"):
        np.testing.assert_array_equal(getattr(found, name)[others], getattr(sound, name)[others])


def test_very_long_drafts_have_no_column_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SLOTS", 3)
    counts = counts_of(write_run(tmp_path / "run", PROMPTS, protocol="generate"))[1]
    assert counts.survived[0].tolist() == [2, 2, 1]


def test_a_log_without_steps_states_its_counts(tmp_path: Path) -> None:
    """tokens = output_tokens less the prefill token, unless the log has it inside its steps."""
    for prefill, expected in (("outside", [12, 2]), ("inside", [13, 3])):
        folder = write_run(
            tmp_path / prefill,
            [prompt("a", [2, 0, 7]), prompt("b", [1])],
            protocol="generate",
            change=lambda m, p=prefill: [
                e.settings.update(counting=Counting(prefill_token=p).as_settings()) for e in m.evaluations.values()
            ],
        )
        rewrite(folder, lambda t: t)
        (folder / "acceptance.parquet" / "all.parquet").unlink()
        (folder / "acceptance.parquet").rmdir()
        prompts, _ = counts_of(folder)
        assert prompts["tokens"].tolist() == expected and prompts["steps"].tolist() == [3, 1]
