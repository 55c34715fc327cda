"""Logs that were once read wrongly without a word: each gives the right number, or is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.commands.importers import main
from analysis.errors import DataError, run_command
from analysis.importers.collect import collect
from analysis.importers.model import Imported
from analysis.importers.registry import Options, read_file
from analysis.importers.summary import lengths
from tests.analysis.importers import logs

Read = dict[str | None, Imported]


def collected(folder: Path, *files: bytes | str, **options: Any) -> Read:
    """The runs of the files together, by variant."""
    paths = [logs.write(folder, f"part-{i}", data) for i, data in enumerate(files)]
    return {run.variant: run for run in collect(paths, Options(**options)).runs}


def only(folder: Path, *files: bytes | str, **options: Any) -> Imported:
    (run,) = collected(folder, *files, **options).values()
    return run


def table(columns: str, *rows: str) -> str:
    return "\n".join([columns, *rows]) + "\n"


# Arms


@pytest.mark.parametrize("column", ["method", "model", "drafter", "target"])
def test_a_column_that_names_the_arm_makes_runs(tmp_path: Path, column: str) -> None:
    rows = [f"{arm},{q},{steps},60" for arm, steps in (("ash", 20), ("fir", 48)) for q in range(6)]
    found = collected(tmp_path, table(f"{column},prompt_id,steps,tokens", *rows))
    assert {name: lengths(run).pooled for name, run in found.items()} == {"ash": 3.0, "fir": 1.25}
    assert {run.target for run in found.values()} == ({"ash", "fir"} if column == "target" else {None})


def test_a_setting_that_tells_rows_of_a_prompt_apart_makes_runs(tmp_path: Path) -> None:
    rows = [{"prompt_id": q, "k": k, "steps": 30 // k, "tokens": 30} for k in (3, 5) for q in range(6)]
    found = collected(tmp_path, logs.lines(rows))
    assert {name: lengths(run).pooled for name, run in found.items()} == {"3": 3.0, "5": 5.0}


@pytest.mark.parametrize(("column", "how"), [("seed", "--map sample=seed"), ("machine", "--map arm=machine")])
def test_another_column_that_tells_rows_apart_is_named(tmp_path: Path, column: str, how: str) -> None:
    text = table(f"{column},prompt_id,steps,tokens", *(f"{s},{q},20,{60 + s}" for s in (1, 2) for q in range(6)))
    with pytest.raises(DataError, match=f"6 prompts have several rows .* {column} tells apart: {how}"):
        collected(tmp_path, text)
    name = how.split()[1].split("=")[0]
    found = collected(tmp_path, text, mapping={name: column})
    assert sum(len(run.responses) for run in found.values()) == 12


def test_rows_of_steps_have_arms_too(tmp_path: Path) -> None:
    rows = [f"{arm},a,{step},{n}" for arm, n in (("ash", 3), ("fir", 1)) for step in range(4)]
    found = collected(tmp_path, table("method,prompt_id,step,accepted", *rows))
    assert {name: lengths(run).pooled for name, run in found.items()} == {"ash": 4.0, "fir": 2.0}


def test_a_column_of_outcomes_makes_no_arms(tmp_path: Path) -> None:
    """The same prompts twice, and only times differ: the last counts, and the first is told."""
    rows = [{"prompt_id": q, "steps": 10, "tokens": 20 + i, "ms": 7.5 * q + i} for i in (0, 1) for q in range(6)]
    _, found = read_file(logs.write(tmp_path, "t", logs.lines(rows)))
    (run,) = found.runs
    assert [r.tokens for r in run.responses] == [21] * 6
    assert [p.kind for p in found.problems] == ["run again"] * 6


def test_lists_of_two_methods_are_two_runs(tmp_path: Path) -> None:
    rows = [
        {"id": q, "method": arm, "acceptance_lengths": [n, n], "num_output_tokens": 2 * n + 1}
        for arm, n in (("ash", 4), ("fir", 2))
        for q in range(5)
    ]
    found = collected(tmp_path, logs.lines(rows))
    assert {name: lengths(run).pooled for name, run in found.items()} == {"ash": 4.0, "fir": 2.0}


def test_settings_of_two_targets_are_runs_of_their_own(tmp_path: Path) -> None:
    document = {
        name: {"target": target, "seeds": 3, "domains": {"chat": {"old_ms": [8, 8], "new_ms": [new, new]}}}
        for name, target, new in (("small", "toy-1b", 4), ("large", "toy-9b", 8))
    }
    found = collected(tmp_path, json.dumps(document))
    assert set(found) == {"small/new", "small/old", "large/new", "large/old"}
    assert {found[f"{name}/new"].target for name in ("small", "large")} == {"toy-1b", "toy-9b"}
    assert [r.seconds for r in found["small/new"].responses] == [0.004, 0.004]


def test_results_of_two_targets_are_runs_of_their_own(tmp_path: Path) -> None:
    found = collected(tmp_path, logs.lines([logs.VLLM, {**logs.VLLM, "model_id": "toy-70b"}]))
    assert {run.target for run in found.values()} == {"toy-8b", "toy-70b"}


def test_drafters_of_one_target_are_runs_of_their_own(tmp_path: Path) -> None:
    metrics = [{"Name": name, "output_throughput": 50.0 * tau, "accept_length": tau}
               for name, tau in (("without", 1.0), ("org/ash", 2.0), ("org/fir", 2.5))]  # fmt: skip
    settings = {"batch_size": 1, "steps": 3, "topk": 1, "num_draft_tokens": 4}
    bench = {"gsm8k": {"benchmark_name": "gsm8k", "results": [{**settings, "metrics": metrics}]}}
    found = collected(tmp_path, json.dumps({"toy-8b": bench}))
    assert {name: run.aggregates[0].tau for name, run in found.items()} == {
        "without": 1.0, "org/ash": 2.0, "org/fir": 2.5
    }  # fmt: skip
    assert {(run.target, run.aggregates[0].subset) for run in found.values()} == {
        ("toy-8b", "gsm8k, batch_size 1, steps 3, topk 1, num_draft_tokens 4")
    }
    assert found["without"].mode == "plain"


# Records


def test_rows_dropped_by_their_outcome_refuse_the_file(tmp_path: Path) -> None:
    text = table("prompt_id,steps,tokens", *(f"{q},{40 + 4 * q},60" for q in range(10)))
    with pytest.raises(DataError, match=r"4 of 10 records cannot be used, more than 5%.* 4 as line 8: 60 tokens in 64"):
        collected(tmp_path, text)


def test_the_share_is_an_option(tmp_path: Path) -> None:
    rows = [logs.answer(q, [[3]]) for q in range(9)] + [logs.answer(9, [[3]]) | {"choices": [{"index": 0}]}]
    path = logs.write(tmp_path, "a", logs.lines(rows))
    assert run_command(main, [str(path), "--out", str(tmp_path / "x")]) == 65
    assert run_command(main, [str(path), "--out", str(tmp_path / "y"), "--max-bad", "0.1"]) == 0
    with pytest.raises(SystemExit):
        main([str(path), "--out", str(tmp_path / "z"), "--max-bad", "2"])


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("INFO a line of something else", "unrelated"),
        ('{"event": "started"}', "unrelated"),
        (json.dumps(logs.answer(9, [[3]], texts=["ERROR"])), "failed"),
        (json.dumps(logs.answer(9, [[3]]))[:50], "cut off"),
    ],
)
def test_what_is_no_fault_of_the_records_is_counted_apart(tmp_path: Path, line: str, kind: str) -> None:
    data = logs.lines([logs.answer(q, [[3]]) for q in range(4)]) + line.encode()
    found = collect([logs.write(tmp_path, "a", data)])
    assert [problem.kind for _, problem in found.problems] == [kind]
    assert len(found.caveats()) == 1 and found.caveats()[0].startswith("1 row ")


def test_damaged_records_count_as_records(tmp_path: Path) -> None:
    rows = [json.dumps(logs.answer(q, [[3]])) for q in range(6)]
    with pytest.raises(DataError, match="2 of 6 records"):
        collected(tmp_path, "\n".join([*rows[:2], rows[2][:40], rows[3][:40], *rows[4:]]))


def test_ids_made_of_places_never_collide_across_files(tmp_path: Path) -> None:
    a, b = ([{"acceptance_lengths": n, "num_output_tokens": sum(n) + 1}] * 3 for n in ([4, 2], [8, 8, 1]))
    run = only(tmp_path, logs.lines(a), logs.lines(b))
    assert lengths(run).pooled == (3 * 6 + 3 * 17) / 15 and len(run.responses) == 6
    assert {r.prompt_id for r in run.responses} == {f"part-{i}, row {n}" for i in (0, 1) for n in (1, 2, 3)}


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    paths = []
    for rank in ("rank0", "rank1"):
        (tmp_path / rank).mkdir()
        paths.append(logs.write(tmp_path / rank, "out", logs.lines([{"acceptance_lengths": [2], "output_tokens": 3}])))
    (run,) = collect(paths).runs
    assert [r.prompt_id for r in run.responses] == ["rank0/out, row 1", "rank1/out, row 1"]


def test_ids_of_two_files_that_are_the_same_are_refused(tmp_path: Path) -> None:
    rows = [{"id": q, "acceptance_lengths": [2, 2], "num_output_tokens": 5} for q in range(3)]
    with pytest.raises(DataError, match=r"prompt 0 .* is in another of the files too"):
        collected(tmp_path, logs.lines(rows), logs.lines(rows))


# Evidence


def test_a_result_that_speaks_of_a_drafter_is_not_plain(tmp_path: Path) -> None:
    plain = {name: value for name, value in logs.VLLM.items() if not name.startswith("spec")}
    assert only(tmp_path, json.dumps(plain)).mode == "plain"
    for more in ({"NUM_SPEC_TOKENS": 4}, {"speculative_config": {"method": "eagle"}}, {"args": {"draft_model": "x"}}):
        run = only(tmp_path, json.dumps({**plain, **more}))
        assert run.mode is None and run.aggregates[0].tau is None and run.aggregates[0].tokens_per_s == 10.0


def test_counters_under_either_name(tmp_path: Path) -> None:
    row = {"tok_per_s": 9.0, "spec_decode_num_drafts": 40, "spec_decode_num_draft_tokens": 120,
           "spec_decode_num_accepted_tokens": 50}  # fmt: skip
    (total,) = only(tmp_path, json.dumps(row)).aggregates
    assert (total.tau, total.drafts, total.draft_tokens) == (2.25, 40, 120)
    with pytest.raises(DataError, match="differ: 50 and 51"):
        collected(tmp_path, json.dumps({**row, "spec_decode_accepted_tokens": 51}))
    with pytest.raises(DataError, match="without spec_decode_num_drafts"):
        collected(tmp_path, json.dumps({**logs.VLLM, "spec_decode_num_drafts": None}))


def answers(**choice: Any) -> bytes:
    rows = []
    for q in range(8):
        one = {"index": 0, "turns": ["a b"], "new_tokens": [200], "wall_time": [4.0], **choice}
        rows.append({"question_id": q, "model_id": "base", "choices": [one]})
    return logs.lines(rows)


@pytest.mark.parametrize("filler", [{"idxs": [0]}, {"decoding_steps": [0]}, {"decoding_steps": [1]}])
def test_a_filler_is_no_count_of_steps(tmp_path: Path, filler: dict[str, Any]) -> None:
    run = only(tmp_path, answers(**filler))
    assert run.mode is None and lengths(run).pooled is None
    assert {(r.steps, r.tokens, r.output_tokens, r.seconds) for r in run.responses} == {(None, None, 200, 4.0)}


def test_a_count_beside_a_filler_is_a_count(tmp_path: Path) -> None:
    assert lengths(only(tmp_path, answers(idxs=[99]))).pooled == 2.0
    assert only(tmp_path, answers(decoding_steps=[200])).mode == "plain"


def test_a_drafter_that_lost_its_lengths_is_not_plain_decoding(tmp_path: Path) -> None:
    rows = [{**row, "acceptance_lengths": None} for row in logs.TRACE if row["condition_id"] == "C2"]
    with pytest.raises(DataError, match="no acceptance_lengths, though"):
        collected(tmp_path, logs.lines(rows))
    bare = [{k: v for k, v in row.items() if k not in ("draft_calls", "verification_calls", "drafted_tokens",
                                                       "accepted_tokens")} for row in rows]  # fmt: skip
    with pytest.raises(DataError, match="no acceptance_lengths, though the condition"):
        collected(tmp_path, logs.lines(bare))


def test_what_is_left_of_a_bad_file_is_not_called_plain(tmp_path: Path) -> None:
    bad = [logs.answer(q, [[3, 0, 6]]) for q in range(20)]
    with pytest.raises(DataError, match="20 of 21 records"):
        collected(tmp_path, logs.lines([*bad, logs.answer(20, [[1]])]))


def test_a_missing_field_of_an_answer_is_named_and_mapped(tmp_path: Path) -> None:
    rows = [{"article_idx": q, "model_id": "m", "choices": [
        {"index": 0, "summary": "s", "decoding_steps": 20, "new_tokens": 60, "wall_time": 1.5, "accept_lengths": []}]}
        for q in range(4)]  # fmt: skip
    with pytest.raises(DataError, match=r"have no turns .*summary.*--map turns="):
        collected(tmp_path, logs.lines(rows))
    run = only(tmp_path, logs.lines(rows), mapping={"turns": "summary", "question_id": "article_idx"})
    assert lengths(run).pooled == 3.0 and [r.prompt_id for r in run.responses] == ["0", "1", "2", "3"]


def test_a_benchmark_is_of_the_server_that_it_names(tmp_path: Path) -> None:
    row = {**logs.SERVING, "accept_length": None}
    del row["accept_length"]
    key, _ = read_file(logs.write(tmp_path, "s", json.dumps(row)))
    assert key == "sglang" and only(tmp_path, json.dumps(row)).mode is None
    assert only(tmp_path, json.dumps({**logs.SERVING, "backend": "vllm"})).engine == "vllm"
