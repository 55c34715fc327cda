"""Every format: recognised from content, counted as by hand, and refused where its own sums do not agree."""

from __future__ import annotations

import bz2
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from analysis.commands.check import main as main_of_check
from analysis.errors import DataError
from analysis.importers.model import Imported
from analysis.importers.registry import FORMATS, Options, read_file
from analysis.importers.summary import describe, lengths
from analysis.importers.write import write_run
from analysis.measures.aggregate import totals_of
from analysis.runlog.reading import Run
from tests.analysis.importers import logs


def runs(path: Path, **options: Any) -> list[Imported]:
    return list(read_file(path, Options(**options))[1].runs)


@pytest.mark.parametrize("name", logs.ALL)
def test_a_file_is_known_by_its_content_alone(tmp_path: Path, name: str) -> None:
    data, key = logs.ALL[name]
    found, _ = read_file(logs.write(tmp_path, "log", data))
    assert found == key


@pytest.mark.parametrize(
    "name", ["vllm.log", "llamacpp.log", "metrics.txt", "answers.jsonl", "meta.jsonl", "vllm.json"]
)
def test_what_a_file_is_may_show_late(tmp_path: Path, name: str) -> None:
    data, key = logs.ALL[name]
    path = logs.write(tmp_path, "log", b"INFO loading the weights\n" * 60_000 + data + b"\n")
    assert path.stat().st_size > 1 << 20
    for options in (Options(), Options(format=key)):
        found, _ = read_file(path, options)
        assert found == key


def test_lines_longer_than_what_is_looked_at_first(tmp_path: Path) -> None:
    rows = [{**logs.VLLM, "generated_texts": ["word " * 250_000]}] * 2
    path = logs.write(tmp_path, "log", logs.lines(rows).rstrip(b"\n"))
    key, found = read_file(path)
    assert key == "vllm" and len(found.runs[0].aggregates) == 2


@pytest.mark.parametrize("key", [f.key for f in FORMATS])
@pytest.mark.parametrize("name", logs.ALL)
def test_a_format_that_is_named_is_believed_or_refused_in_one_line(tmp_path: Path, name: str, key: str) -> None:
    path = logs.write(tmp_path, name)
    try:
        found, _ = read_file(path, Options(format=key))
    except DataError as error:
        assert key != logs.ALL[name][1] and "\n" not in str(error)
    else:
        assert found == key


@pytest.mark.parametrize("name", logs.ALL)
def test_no_row_of_a_sound_file_is_left_out(tmp_path: Path, name: str) -> None:
    _, found = read_file(logs.write(tmp_path, name))
    assert not found.problems and all(bool(r.responses) != bool(r.aggregates) for r in found.runs)


@pytest.mark.parametrize(
    ("name", "variant", "pooled", "over_prompts"),
    [
        ("answers.jsonl", None, 30 / 9, (14 / 4 + 3 + 13 / 4) / 3),
        ("eagle.jsonl", None, 10 / 4, 2.5),
        ("trace.jsonl", "C2", 11 / 3, (7 / 2 + 4) / 2),
        ("trace.jsonl", "C1", 1.0, 1.0),
        ("responses.jsonl", None, 26 / 6, (3 + 17 / 3 + 3) / 3),
        ("meta.jsonl", None, 21 / 10, (3 + 1.5) / 2),
        ("steps.csv", None, 18 / 5, (5 / 2 + 13 / 3) / 2),
    ],
)
def test_tokens_per_step_by_hand(
    tmp_path: Path, name: str, variant: str | None, pooled: float, over_prompts: float
) -> None:
    (run,) = (run for run in runs(logs.write(tmp_path, name)) if run.variant == variant)
    found = lengths(run)
    assert found.pooled == pytest.approx(pooled) and found.over_prompts == pytest.approx(over_prompts)


@pytest.mark.parametrize(
    ("name", "taus", "drafts"),
    [
        ("specforge.jsonl", [2.5, 2.0], [None, None]),
        ("bundle.json", [1.0, 2.5], [None, None]),
        ("specforge_sglang.json", [3.25], [130]),
        ("vllm.json", [2.0], [20]),
        ("metrics.txt", [2.0], [20]),
        ("llamacpp.txt", [2.0], [20]),
        ("vllm.log", [1 + 205 / 110], [110]),
        ("llamacpp.log", [1 + 20 / 25], [25]),
        ("printed.txt", [2.0], [20]),
        ("printed_offline.txt", [1.9, 1.9], [10, 10]),
        ("serving.jsonl", [2.75], [None]),
        ("one_batch.jsonl", [3.5, None], [None, None]),
        ("acceptance.csv", [1.9, 1.5], [10, 4]),
        ("acceptance_rate.json", [12 / 5], [5]),
    ],
)
def test_totals_by_hand(tmp_path: Path, name: str, taus: list[float | None], drafts: list[int | None]) -> None:
    totals = [a for run in runs(logs.write(tmp_path, name)) for a in run.aggregates]
    assert [a.tau for a in totals] == [tau if tau is None else pytest.approx(tau) for tau in taus]
    assert [a.drafts for a in totals] == drafts


@pytest.mark.parametrize("name", ["vllm.json", "metrics.txt"])
def test_accepted_tokens_by_position(tmp_path: Path, name: str) -> None:
    (run,) = runs(logs.write(tmp_path, name))
    assert run.aggregates[0].accepted_at == [12, 6, 2]


def test_modelopt_positions_come_from_the_histogram(tmp_path: Path) -> None:
    (run,) = runs(logs.write(tmp_path, "acceptance_rate.json"))
    assert run.aggregates[0].accepted_at == [3, 2, 2]  # steps longer than 1, 2, 3 tokens


def test_the_last_step_may_have_accepted_more_than_it_emitted(tmp_path: Path) -> None:
    (run,) = (run for run in runs(logs.write(tmp_path, "trace.jsonl")) if run.variant == "C2")
    assert [list(r.accepted or ()) for r in run.responses] == [[3, 2], [5]]


def test_warm_ups_count_nowhere(tmp_path: Path) -> None:
    assert [len(run.responses) for run in runs(logs.write(tmp_path, "trace.jsonl"))] == [2, 2]


@pytest.mark.parametrize(
    ("bonus", "prefill"), [(True, "outside"), (True, "inside"), (False, "outside"), (False, "inside")]
)
def test_the_counting_of_lists_is_found_from_their_sums(tmp_path: Path, bonus: bool, prefill: str) -> None:
    rows = []
    for i, emitted in enumerate([[4, 2], [8, 8, 1], [3], [1, 1, 5]]):
        listed = emitted if bonus else [n - 1 for n in emitted]
        total = sum(emitted) + (prefill == "outside")
        rows.append({"id": i, "acceptance_lengths": listed, "num_output_tokens": total})
    (run,) = runs(logs.write(tmp_path, "lists.jsonl", logs.lines(rows)))
    assert run.counting.prefill_token == prefill
    assert [list(r.emitted or ()) for r in run.responses] == [[4, 2], [8, 8, 1], [3], [1, 1, 5]]


def listed(*rows: tuple[list[int], int]) -> bytes:
    return logs.lines(
        [{"id": i, "acceptance_lengths": n, "num_output_tokens": total} for i, (n, total) in enumerate(rows)]
    )


def test_a_last_step_past_the_end_of_the_output_counts_whole(tmp_path: Path) -> None:
    """The output is cut at the stop token, the list is not: over by 0, 1 and 3 of a last step of 5, 2 and 4."""
    path = logs.write(tmp_path, "lists.jsonl", listed(([4, 5], 10), ([3, 2], 5), ([6, 4], 8)))
    _, found = read_file(path)
    (run,) = found.runs
    assert not found.problems and (run.counting.prefill_token, run.counting.last_step) == ("outside", "whole")
    assert lengths(run).pooled == pytest.approx(24 / 6)
    assert any("in 2 of 3 rows the last step goes past the end" in note for note in run.notes)
    write_run(tmp_path / "run", run, name="run")
    assert main_of_check([str(tmp_path / "run")]) == 0


def test_output_that_is_in_no_step_and_a_step_without_output_are_no_last_step(tmp_path: Path) -> None:
    rows = [([4, 5], 10), ([3, 2], 5), ([6, 4], 8), ([6, 4], 12), ([6, 4], 7)]
    _, found = read_file(logs.write(tmp_path, "lists.jsonl", listed(*rows)))
    assert [p.line for p in found.problems] == [4, 5]


def test_one_odd_row_does_not_change_how_the_others_count(tmp_path: Path) -> None:
    """Nineteen of twenty hold the prefill token inside, which a whole last step of 3 would allow too."""
    path = logs.write(tmp_path, "lists.jsonl", listed(*[([4, 3], 7)] * 19, ([4, 3], 6)))
    _, found = read_file(path)
    assert found.runs[0].counting.prefill_token == "inside" and [p.line for p in found.problems] == [20]


def test_a_counting_that_a_minority_keeps_is_not_taken(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no row could be used .3 left out: .* 1 of 3 rows count"):
        runs(logs.write(tmp_path, "lists.jsonl", listed(([4, 2], 7), ([4, 2], 20), ([4, 2], 30))))


def test_a_list_without_a_total_says_that_its_counting_was_not_checked(tmp_path: Path) -> None:
    (run,) = runs(logs.write(tmp_path, "lists.jsonl", logs.lines([{"id": 1, "acceptance_lengths": [2, 3]}])))
    assert any("could not be checked" in note for note in run.notes)


def broken(row: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**json.loads(json.dumps(row)), **changes}


def broken_choice(**changes: Any) -> dict[str, Any]:
    row = broken(logs.ANSWERS[0])
    row["choices"][0].update(changes)
    return row


@pytest.mark.parametrize(
    ("name", "rows", "reason"),
    [
        ("answers.jsonl", [broken_choice(accept_lengths=[4, 3, 5, 3])], "sum to 15, but new_tokens to 14"),
        ("answers.jsonl", [broken_choice(accept_lengths=[4, 4, 4, 2])], "of turn 0 sum to 8"),
        ("answers.jsonl", [broken_choice(turns=["fine", "ERROR"])], "a turn is the word ERROR"),
        ("answers.jsonl", [broken_choice(wall_time=[1.0])], "wall_time and turns differ"),
        ("answers.jsonl", [broken_choice(wall_time=[1.0, float("nan")])], "not a finite number"),
        ("trace.jsonl", [broken(logs.TRACE[-1], acceptance_lengths=[5])], "not to generated_token_count - 1"),
        ("trace.jsonl", [broken(logs.TRACE[-1], verification_calls=2)], "verification_calls is 2"),
        ("trace.jsonl", [broken(logs.TRACE[-1], accepted_tokens=2)], "accepted_tokens is 2"),
        ("trace.jsonl", [broken(logs.TRACE[-1], status="failed")], "not success"),
        ("meta.jsonl", [broken(logs.META[0], meta_info={**logs.META[0]["meta_info"], "spec_accept_length": 2.0})],
         "spec_accept_length is 2, but"),
        ("vllm.json", [broken(logs.VLLM, spec_decode_per_position_acceptance_rates=[0.6, 0.3, 0.3])], "sum of the"),
        ("vllm.json", [broken(logs.VLLM, spec_decode_acceptance_rate=0.3333)], "acceptance rate, in percent"),
        ("vllm.json", [broken(logs.VLLM, spec_decode_acceptance_length=1.0)], "acceptance length is stated as 1"),
        ("vllm.json", [broken(logs.VLLM, total_output_tokens=41, output_throughput=10.25)], "sum of output_lens"),
    ],
)  # fmt: skip
def test_a_row_that_breaks_its_own_identities_is_named(
    tmp_path: Path, name: str, rows: list[dict[str, Any]], reason: str
) -> None:
    sound = logs.ALL[name][0].rstrip(b"\n") + b"\n"
    _, found = read_file(logs.write(tmp_path, name, sound + logs.lines(rows)))
    (problem,) = found.problems
    assert problem.line == sound.count(b"\n") + 1 and reason in problem.reason
    with pytest.raises(DataError, match="no row could be used"):
        read_file(logs.write(tmp_path, "alone", logs.lines(rows)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (logs.prometheus(20, [12, 6, 2]).replace('0"} 12.0', '0"} 25.0'), "25 drafts accepted position 0"),
        (logs.prometheus(20, [12, 6, 2]).replace('2"} 2.0', '2"} 1.0'), "sum to 19"),
        (logs.prometheus(20, [12, 6, 2]).replace('1"} 6.0', '1"} 1.0'), "rise"),
        (logs.vllm_log(3.0, 20, 30, [0.9, 0.6, 0.1]), "rates sum to 1.600"),
        (logs.vllm_log(1.0, 20, 30, [0.9, 0.6, 0.5]), "mean acceptance length is 1"),
        (logs.vllm_log(2.0, 31, 30, [0.5, 0.3, 0.2]), "31 accepted tokens of 30 drafted"),
        (logs.PRINTED.replace("2.00", "3.00"), "acceptance length is stated as 3"),
        (logs.PRINTED_OFFLINE.replace(": 9", ": 31").replace("1.90", "4.10"), "31 accepted tokens of 30 drafted"),
        (logs.SPECULATORS.replace("1.9", "2.9").replace("1.5", "2.5"), "acceptance_length is stated as 2.9"),
        (json.dumps(broken(logs.MODELOPT["acceptance_rate"], Average_AL=2.4)), "Average_AL is stated as 2.4"),
    ],
)
def test_totals_that_contradict_themselves_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        runs(logs.write(tmp_path, "log", text))


def test_a_log_line_may_lack_what_older_versions_lacked(tmp_path: Path) -> None:
    line = "draft acceptance rate = 0.57576 (  171 accepted /   297 generated)\n"
    _, found = read_file(logs.write(tmp_path, "l.log", line + logs.LLAMA_LOG))
    assert [p.line for p in found.problems] == [1] and "number of drafts is not known" in found.problems[0].reason


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"comparisons": {}, "compression": {}}, "a summary of CC-DFlash"),
        ({"datasets": {"x": {"C1_C2": [{"exact_token_parity": True}]}}}, "diagnostics of CC-DFlash"),
        ({"question_id": 1, "turns": ["hi"], "category": "qa"}, "prompts without answers"),
        ({"schema_version": 1, "created_by": "x", "tables": {}}, "the manifest of a run"),
    ],
)
def test_summaries_are_declined_in_one_line(tmp_path: Path, document: dict[str, Any], why: str) -> None:
    with pytest.raises(DataError, match=why) as error:
        runs(logs.write(tmp_path, "x.json", json.dumps(document, indent=1)))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (bz2.compress(b"prompt_id"), "packed with bzip2"),
        (lzma.compress(b"prompt_id"), "packed with xz"),
        (b"PK\x03\x04" + b"\x00" * 40, "a zip archive"),
        (b"ARROW1\x00\x00" + b"\x00" * 40, "an Arrow"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n", "a pointer of git-lfs"),
        (b"\n<!DOCTYPE html>\n<html><body>prompt_id,accepted\n</body></html>\n", "a web page"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"format": "plain"}, {"mapping": {"prompt_id": "id"}}])
def test_what_is_no_log_by_its_first_bytes(tmp_path: Path, data: bytes, why: str, options: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=why):
        runs(logs.write(tmp_path, "x.jsonl", data), **options)


def test_columns_of_a_plain_table_are_mapped(tmp_path: Path) -> None:
    path = logs.write(tmp_path, "t.csv", "qid;n;rounds;secs\r\n7;21;10;0.5\r\n8;31;10;0.7\r\n")
    mapping = {"prompt_id": "qid", "output_tokens": "n", "steps": "rounds", "seconds": "secs"}
    (outside,) = runs(path, mapping=mapping, prefill_token="outside")
    assert lengths(outside).pooled == pytest.approx(2.5)
    (unknown,) = runs(path, mapping=mapping)
    assert lengths(unknown).pooled == pytest.approx(2.6) and any("not known whether" in note for note in unknown.notes)


def test_a_prompt_with_a_bad_step_is_left_out_whole(tmp_path: Path) -> None:
    _, found = read_file(logs.write(tmp_path, "s.csv", logs.STEP_CSV.replace("b,sums,1,2,7", "b,sums,1,9,7")))
    assert [r.prompt_id for r in found.runs[0].responses] == ["sums/a"] and len(found.problems) == 2


SERVED = {
    **logs.VLLM, "completed": 2, "failed": 1, "ttfts": [0.5, 0.7, 0.0], "itls": [[0.25, 0.25], [0.1], []],
    "output_lens": [15, 25, 0], "errors": ["", "", "timed out"], "generated_texts": ["one", "two", ""],
    "mean_ttft_ms": 600.0, "mean_e2el_ms": 900.0,
}  # fmt: skip


@pytest.mark.parametrize("times", [{}, {"latencies": [1.0, 0.8, 0.0]}])
def test_times_of_requests_become_a_table(tmp_path: Path, times: dict[str, Any]) -> None:
    (run,) = runs(logs.write(tmp_path, "v.json", json.dumps({**SERVED, **times})))
    write_run(tmp_path / "run", run, name="run")
    rows = Run.open(tmp_path / "run").read("requests").to_pylist()
    assert [row["status"] for row in rows] == ["ok", "ok", "failed"]
    assert [row["ttft_s"] for row in rows] == [0.5, 0.7, None]
    assert [row["e2e_s"] for row in rows] == [1.0, pytest.approx(0.8), None]
    assert [row["output_tokens"] for row in rows] == [15, 25, None]
    assert len({row["output_hash"] for row in rows}) == 3 and rows[2]["output_hash"] is None
    (total,) = totals_of(Run.open(tmp_path / "run"))
    assert (total.ttft_s, total.e2e_s) == (pytest.approx(0.6), pytest.approx(0.9))
    assert any("times of 3 requests" in line for line in describe(run))


def test_times_are_left_when_nothing_says_which_requests_failed(tmp_path: Path) -> None:
    without = {key: value for key, value in SERVED.items() if key != "errors"}
    (run,) = runs(logs.write(tmp_path, "v.json", json.dumps(without)))
    assert not run.aggregates[0].served


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ttfts": [0.5, 0.7]}, "itls has 3 entries, ttfts or latencies 2"),
        ({"errors": ["", "", ""]}, "completed is 2, but 3 requests have no error"),
        ({"mean_ttft_ms": 700.0}, "mean_ttft_ms is stated as 700"),
        ({"itls": [[0.25, 0.25], [0.9], []]}, "mean_e2el_ms is stated as 900"),
        ({"ttfts": [0.5, "soon", 0.0]}, "ttfts.1. is 'soon', not a number"),
    ],
)
def test_times_that_are_not_what_the_totals_say_are_refused(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DataError, match=reason):
        runs(logs.write(tmp_path, "v.json", json.dumps({**SERVED, **change})))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "[2026-10-06 11:00:59 TP0] Decode batch, #running-req: 13, accept len: 2.60, accept rate: 0.24\n",
            "a mean and no steps",
        ),
        ('sglang:spec_accept_length{model_name="m"} 3.1\n', "a mean of the moment"),
        ("DFlash throughput: 150.55 tok/s\nAverage Acceptance length: 6.54\n", "acceptance_lengths"),
        ("n_draft   = 16\nn_predict = 257\nn_drafted = 320\nn_accept  = 200\n", "not the number of drafts"),
        ("==== Serving Benchmark Result ====\nBackend:  sglang\nAccept length:  3.21\n", "--output-file"),
    ],
)
def test_means_alone_are_declined_with_what_to_import_instead(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(DataError, match=why) as error:
        runs(logs.write(tmp_path, "log", "starting\n" * text.startswith("n_") + text))
    assert "import" in str(error.value) and "\n" not in str(error.value)
