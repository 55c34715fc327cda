"""What servers tell: counters, log lines of every version, requests with their meta_info."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.errors import DataError
from analysis.importers.registry import read_file
from tests.analysis.importers import logs
from tests.analysis.importers.test_formats import runs


def test_counters_are_summed_over_engines_and_less_those_before(tmp_path: Path) -> None:
    before = logs.write(tmp_path, "before", logs.prometheus(5, [5, 0, 0], engines=2))
    after = logs.write(tmp_path, "after", logs.prometheus(20, [12, 6, 2], engines=2))
    (run,) = runs(after, before=before)
    (total,) = run.aggregates
    assert (total.drafts, total.accepted, total.accepted_at) == (30, 30, [14, 12, 4])
    both = logs.write(tmp_path, "both", before.read_text() + after.read_text())
    assert runs(both)[0].aggregates == [total]


@pytest.mark.parametrize("model", ["a}b", "{x} 5", 'say \\"hi\\"', "C:\\\\models"])
def test_counters_with_odd_labels_and_indented(tmp_path: Path, model: str) -> None:
    text = "".join(f"    {line}\n" for line in logs.prometheus(20, [12, 6, 2]).replace("toy", model).splitlines())
    _, found = read_file(logs.write(tmp_path, "m", text))
    (total,) = found.runs[0].aggregates
    assert not found.problems and (total.drafts, total.accepted_at) == (20, [12, 6, 2])


def test_an_engine_whose_counters_contradict_each_other_is_left_out(tmp_path: Path) -> None:
    text = logs.prometheus(20, [12, 6, 2], engines=3)
    wrong = text.replace(
        'engine="1",model_name="toy",position="0"} 12.0', 'engine="1",model_name="toy",position="0"} 25.0'
    )
    _, found = read_file(logs.write(tmp_path, "m", wrong))
    (total,) = found.runs[0].aggregates
    assert (total.drafts, total.accepted, total.accepted_at) == (40, 40, [24, 12, 4])
    assert [str(p) for p in found.problems] == ["engine 1 left out: 25 drafts accepted position 0, but there were 20"]


def test_engines_of_which_one_tells_no_positions_sum_without_them(tmp_path: Path) -> None:
    text = logs.prometheus(20, [12, 6, 2], engines=2)
    kept = [line for line in text.splitlines() if not ("per_pos" in line and 'engine="1"' in line)]
    (run,) = runs(logs.write(tmp_path, "m", "\n".join(kept)))
    (total,) = run.aggregates
    assert (total.drafts, total.accepted, total.draft_tokens, total.accepted_at) == (40, 40, 120, None)


def test_counters_that_fell_since_the_file_before_are_refused(tmp_path: Path) -> None:
    low, high = logs.prometheus(5, [5, 0, 0]), logs.prometheus(20, [12, 6, 2])
    with pytest.raises(DataError, match="started anew"):
        runs(logs.write(tmp_path, "m", low), before=logs.write(tmp_path, "before", high))


def test_snapshots_of_a_server_that_was_started_anew(tmp_path: Path) -> None:
    """10 drafts, 30, anew 5, 15: a rise of 20 + 5 + 10. Position 0 rose over the start, but counts from 0 too."""
    polls = [logs.prometheus(n, at) for n, at in ((10, [4, 1]), (30, [4, 2]), (5, [5, 3]), (15, [9, 3]))]
    (run,) = runs(logs.write(tmp_path, "m", "".join(polls)))
    (total,) = run.aggregates
    assert (total.drafts, total.accepted, total.accepted_at) == (35, 13, [9, 4])
    assert any("started anew 1 time:" in note for note in run.notes)
    assert any("4 snapshots" in note for note in run.notes)


def test_counters_before_of_other_labels_are_refused(tmp_path: Path) -> None:
    before = logs.write(tmp_path, "before", logs.prometheus(5, [5, 0, 0]).replace("toy", "other"))
    after = logs.write(tmp_path, "after", logs.prometheus(20, [12, 6, 2]))
    with pytest.raises(DataError, match=r'is not among the counters before, which are of .*model_name="other"'):
        runs(after, before=before)


def test_drafts_of_one_length_are_counted_and_not_inferred_from_a_rounded_mean(tmp_path: Path) -> None:
    """3 of 468 drafts accepted one token: a mean of 1.0064, printed 1.01, would make 300 drafts of them. 2 of 500 are
    printed 1.00."""
    text = logs.vllm_log(1.01, 3, 1404, [0.006, 0, 0]) + logs.vllm_log(1.00, 2, 1500, [0.004, 0, 0])
    _, found = read_file(logs.write(tmp_path, "v.log", text))
    (run,) = found.runs
    assert not found.problems and run.aggregates[0].drafts == 968
    assert run.aggregates[0].tau == pytest.approx(1 + 5 / 968)
    assert not any("exactly" in what for what in run.unknown)


#: 57 drafts of 3 tokens, 66 accepted; then 62 drafts, 99 accepted.
_LLAMA = (
    (66, 171, 2.16, "0.632, 0.333, 0.193"),
    (99, 186, 2.60, "0.742, 0.500, 0.355"),
)


def _llama(kind: str) -> str:
    lines = []
    drafts, drafted, accepted = 0, 0, 0
    for a, g, mean, shares in _LLAMA:
        drafts, drafted, accepted = drafts + g // 3, drafted + g, accepted + a
        slot = "0.00.873.131 I slot print_timing: id  0 | task 0 | "
        rate = f"draft acceptance = {a / g:.5f} ({a:5d} accepted / {g:5d} generated)"
        lines += {
            "statistics": [
                f"draft acceptance rate = {a / g:.5f} ({a:5d} accepted / {g:5d} generated)",
                f"statistics draft: #calls(b,g,a) = 1 {drafts} 9, #gen drafts = {drafts}, #acc drafts = 9, "
                f"#gen tokens = {drafted}, #acc tokens = {accepted}, dur(b,g,a) = 0.004, 1532.1, 0.1 ms",
                "statistics ngram_mod: #calls = 9, #gen drafts = 0, #acc drafts = 0, #gen tokens = 0, #acc tokens = 0",
            ],
            "mean acceptance length": [
                f"{slot}{rate}, mean acceptance length = {mean:5.2f}, acceptance rate per position = ({shares})"
            ],
            "mean len": [f"{slot}{rate}, mean len = {mean:5.2f}"],
            "acc per pos": [f"{slot}{rate}, mean len = {mean:5.2f}", f"{slot}     acc per pos = ({shares})"],
        }[kind]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("kind", ["statistics", "mean acceptance length", "mean len", "acc per pos"])
def test_lines_of_every_version_of_llama_cpp(tmp_path: Path, kind: str) -> None:
    _, found = read_file(logs.write(tmp_path, "l.log", _llama(kind)))
    (total,) = found.runs[0].aggregates
    assert not found.problems and (total.drafts, total.accepted, total.draft_tokens) == (119, 165, 357)
    assert (total.accepted_at is not None) == (kind in ("mean acceptance length", "acc per pos"))


def test_counts_since_the_server_started_are_not_a_requests_own(tmp_path: Path) -> None:
    """The log begins in the middle of a server's life, so only the second request's rise is its own."""
    text = _llama("statistics").replace("= 171, #acc", "= 999, #acc").replace("= 357, #acc", "= 1185, #acc")
    _, found = read_file(logs.write(tmp_path, "l.log", text))
    assert [p.line for p in found.problems] == [1] and found.runs[0].aggregates[0].drafts == 62


def request(steps: int, correct: int, tokens: int, length: float | None, number: int = 0) -> dict[str, Any]:
    """What SGLang's /generate answers: the id is new at every request."""
    meta: dict[str, Any] = {
        "id": f"uuid-{steps}-{correct}-{tokens}-{number}",
        "completion_tokens": tokens,
        "spec_verify_ct": steps,
        "spec_num_correct_drafts": correct,
        "spec_num_proposed_drafts": 7 * steps,
        "e2e_latency": 1.5,
    }
    return {
        "text": "words",
        "output_ids": [7] * tokens,
        "meta_info": meta | ({"spec_accept_length": length} if length else {}),
    }


def test_rows_that_both_rules_explain_go_with_the_file(tmp_path: Path) -> None:
    """1 + drafts / steps: 4 steps and 8 correct, of which 13 tokens came; then 12, for the output was cut, which
    completion_tokens / steps explains too."""
    path = logs.write(tmp_path, "m.jsonl", logs.lines([request(4, 8, 13, 3.0), request(4, 8, 12, 3.0)]))
    _, found = read_file(path)
    (run,) = found.runs
    assert not found.problems and not any("two versions" in note for note in run.notes)
    assert (run.counting.prefill_token, [r.tokens for r in run.responses]) == ("outside", [12, 12])


def test_rows_of_two_versions_count_as_neither(tmp_path: Path) -> None:
    (run,) = runs(logs.write(tmp_path, "m.jsonl", logs.lines([request(4, 8, 13, 3.0), request(4, 8, 13, 3.25)])))
    assert run.counting.prefill_token == "unknown" and [r.tokens for r in run.responses] == [12, 13]
    assert any("two versions" in note for note in run.notes)


def test_a_length_that_was_rounded_is_the_same_length(tmp_path: Path) -> None:
    """242 / 60 is 4.0333, rounded 4.03, which 1 + 182 / 60 explains too; 100 / 30 is 3.33, which 1 + 69 / 30 is not."""
    rows = [request(60, 182, 242, 4.03), request(30, 69, 100, 3.33)]
    _, found = read_file(logs.write(tmp_path, "m.jsonl", logs.lines(rows)))
    assert not found.problems and [r.tokens for r in found.runs[0].responses] == [242, 100]
    rows[0]["meta_info"]["spec_accept_length"] = 4.02
    _, found = read_file(logs.write(tmp_path, "m.jsonl", logs.lines(rows)))
    assert [p.line for p in found.problems] == [1]


def test_the_id_of_a_request_pairs_nothing(tmp_path: Path) -> None:
    rows = [request(4, 8, 13, 3.25, n) for n in range(2)]
    (by_place,) = runs(logs.write(tmp_path, "m.jsonl", logs.lines(rows)))
    assert [r.prompt_id for r in by_place.responses] == ["row 1", "row 2"]
    assert any("pairs join by it" in note for note in by_place.notes)
    named = [{"question_id": 80 + n, "dataset": "sums", "category": "qa", **row} for n, row in enumerate(rows)]
    (by_id,) = runs(logs.write(tmp_path, "m.jsonl", logs.lines(named)))
    assert [(r.prompt_id, r.dataset, r.category) for r in by_id.responses] == [
        ("sums/80", "sums", "qa"), ("sums/81", "sums", "qa")
    ]  # fmt: skip
    assert not any("place" in note for note in by_id.notes)


@pytest.mark.parametrize("shape", ["response", "chat"])
def test_answers_in_an_envelope(tmp_path: Path, shape: str) -> None:
    row = request(4, 8, 13, 3.25)
    meta = row["meta_info"]
    choice = {"index": 0, "message": {"role": "assistant", "content": "words"}, "meta_info": meta}
    enveloped = {
        "response": {"question_id": 1, "response": row},
        "chat": {"id": meta["id"], "object": "chat.completion", "choices": [choice]},
    }[shape]
    (run,) = runs(logs.write(tmp_path, "m.jsonl", logs.lines([enveloped])))
    (response,) = run.responses
    assert (response.prompt_id, response.tokens) == ({"response": "1", "chat": "row 1"}[shape], 13)


def test_requests_of_a_plain_server_are_times(tmp_path: Path) -> None:
    row = request(4, 8, 13, None)
    plain = {name: value for name, value in row["meta_info"].items() if not name.startswith("spec")}
    (run,) = runs(logs.write(tmp_path, "m.jsonl", logs.lines([{**row, "meta_info": plain}])))
    (response,) = run.responses
    assert (run.mode, response.steps, response.output_tokens, response.seconds) == ("plain", None, 13, 1.5)


def test_rates_that_were_rounded_are_the_same_rates(tmp_path: Path) -> None:
    """67, 41 and 28 of 90 drafts; rounded rates sum to 1.51, and tell no counts of positions."""
    row = {**logs.VLLM, "spec_decode_num_drafts": 90, "spec_decode_draft_tokens": 270,
           "spec_decode_accepted_tokens": 136, "spec_decode_acceptance_rate": 50.37,
           "spec_decode_acceptance_length": 2.51,
           "spec_decode_per_position_acceptance_rates": [0.74, 0.46, 0.31]}  # fmt: skip
    (run,) = runs(logs.write(tmp_path, "v.json", json.dumps(row)))
    assert run.aggregates[0].accepted == 136 and run.aggregates[0].accepted_at is None
