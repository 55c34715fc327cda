"""Verification steps of servers' logs and tables: all are counted, once, or the log is refused or says per draft."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.commands.importers import main
from analysis.errors import DataError, run_command
from analysis.importers.model import PER_DRAFT
from analysis.importers.registry import read_file
from analysis.importers.summary import lengths
from tests.analysis.importers import logs
from tests.analysis.importers.test_truths import collected, only, table

# Steps


def window(accepted: int, drafted: int, rates: str = "", *, mean: str = "", end: str = "") -> str:
    stated = f"Mean acceptance length: {mean}, " if mean else ""
    shares = f", Per-position acceptance rate: {rates}" if rates else ""
    return (
        f"INFO SpecDecoding metrics: Draft acceptance rate: {100 * accepted / max(drafted, 1):.1f}%, {stated}"
        f"Accepted: {accepted} tokens, Drafted: {drafted} tokens{shares}{end}\n"
    )


@pytest.mark.parametrize("end", ["", " ", ", Avg Draft acceptance rate: 1.0%"])
def test_rates_at_the_end_of_a_line_and_windows_of_no_acceptance(tmp_path: Path, end: str) -> None:
    """60 drafts with 60 accepted, then 60 with none."""
    text = window(60, 120, "0.700, 0.300", mean="2.00", end=end) + window(0, 120, "0.000, 0.000", mean="1.00", end=end)
    (total,) = only(tmp_path, text).aggregates
    assert (total.tau, total.drafts, total.accepted_at) == (1.5, 120, [42, 18])


def test_counts_that_are_exact_go_before_a_rounded_mean(tmp_path: Path) -> None:
    """30,000 drafts of 4, 2,130 accepted: the mean is 1.0710, printed 1.07."""
    text = window(2130, 120_000, "0.050, 0.015, 0.005, 0.001", mean="1.07")
    (total,) = only(tmp_path, text).aggregates
    assert total.drafts == 30_000 and total.tau == pytest.approx(1.071)


def test_a_window_without_a_mean_goes_by_the_length_of_the_others(tmp_path: Path) -> None:
    text = window(60, 120, "0.700, 0.300", mean="2.00") + window(0, 120) + window(9, 18)
    (total,) = only(tmp_path, text).aggregates
    assert (total.drafts, total.accepted) == (60 + 60 + 9, 69)
    with pytest.raises(DataError, match="2 windows of time do not state their number of drafts"):
        collected(tmp_path, window(0, 120) + window(9, 18))


def test_idle_windows_have_no_draft(tmp_path: Path) -> None:
    idle = window(0, 0).replace("0.0%", "nan%")
    (total,) = only(tmp_path, idle * 2 + window(60, 120, "0.700, 0.300", mean="2.00")).aggregates
    assert (total.tau, total.drafts) == (2.0, 60)
    with pytest.raises(DataError, match="2 lines of vLLM, none of a window in which anything was drafted"):
        collected(tmp_path, idle * 2)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("length: 2.00", "length: 2.0x"),
        ("0.300", "0.3o0"),
        ("120 tokens", "120 tok"),
        ("Accepted: 60", "Accepted: "),
        (", Drafted: 120 tokens, Per-position acceptance rate: 0.700, 0.300", ""),
    ],
)
def test_a_part_that_cannot_be_read_refuses_the_line(tmp_path: Path, old: str, new: str) -> None:
    line = window(60, 120, "0.700, 0.300", mean="2.00")
    _, found = read_file(logs.write(tmp_path, "v", line + line.replace(old, new)))
    assert [p.line for p in found.problems] == [2] and found.runs[0].aggregates[0].drafts == 60


def test_drafters_that_skip_are_per_draft(tmp_path: Path) -> None:
    said = "INFO speculative_config=SpeculativeConfig(method='ngram', model=None, num_spec_tokens=2)\n"
    line = window(60, 120, "0.700, 0.300", mean="2.00")
    assert only(tmp_path, line).aggregates[0].mean_of is None
    assert only(tmp_path, said + line).aggregates[0].mean_of == PER_DRAFT


def test_counters_that_miss_steps_without_a_draft(tmp_path: Path) -> None:
    """200 tokens of 2 requests with 38 accepted took 160 steps, of which 20 had a draft."""
    row = {**logs.VLLM, "total_output_tokens": 200, "output_throughput": 50.0, "output_lens": [100, 100],
           "spec_decode_num_drafts": 20, "spec_decode_draft_tokens": 60, "spec_decode_accepted_tokens": 38,
           "spec_decode_acceptance_rate": None, "spec_decode_acceptance_length": None,
           "spec_decode_per_position_acceptance_rates": None}  # fmt: skip
    counters = logs.prometheus(20, [12, 6, 2]) + "vllm:generation_tokens_total{engine=\"0\"} 182.0\n" + (
        'vllm:request_success_total{engine="0",finished_reason="stop"} 2.0\n'
    )  # fmt: skip
    for text, about in ((json.dumps(row), 1 + 38 / 160), (counters, 1 + 20 / 160)):
        run = only(tmp_path, text)
        assert run.aggregates[0].mean_of == PER_DRAFT
        assert any(f"tokens per step about {about:.4f}" in note for note in run.notes)
    assert only(tmp_path, json.dumps(logs.VLLM)).aggregates[0].mean_of is None


V0 = (
    "INFO metrics.py:367] Speculative metrics: Draft acceptance rate: {:.3f}, System efficiency: {:.3f}, "
    "Number of speculative tokens: 4, Number of accepted tokens: {}, Number of draft tokens: {}, "
    "Number of emitted tokens: {}.\n"
)


def test_totals_of_vllm_v0(tmp_path: Path) -> None:
    """50 drafts, later 100: 240 tokens in 100 steps; then the server started anew, with 60 in 20."""
    texts = [V0.format(90 / 200, 120 / 250, 90, 200, 120), V0.format(0.45, 240 / 500, 180, 400, 240)]
    (total,) = only(tmp_path, "".join(texts)).aggregates
    assert (total.drafts, total.accepted, total.tau) == (100, 140, 2.4)
    (total,) = only(tmp_path, "".join([*texts, V0.format(0.6, 0.6, 48, 80, 60)])).aggregates
    assert (total.drafts, total.tau) == (120, 2.5)
    with pytest.raises(DataError, match="emitted in 100 steps of 1 to 5 tokens"):
        collected(tmp_path, V0.format(0.45, 1.2, 180, 400, 600))


def llama(tokens: int | None, accepted: int, drafted: int, calls: int | None, drafts: int) -> str:
    text = "" if tokens is None else f"slot print_timing: id 0 | task 0 | eval time = 900.00 ms / {tokens} tokens\n"
    text += f"draft acceptance rate = {accepted / drafted:.5f} ({accepted:5d} accepted / {drafted:5d} generated)\n"
    if calls is not None:
        text += (
            f"statistics mtp: #calls(b,g,a) = 1 {calls} {drafts}, #gen drafts = {drafts}, #acc drafts = {drafts}, "
            f"#gen tokens = {drafted}, #acc tokens = {accepted}, dur(b,g,a) = 0.0, 1.0, 0.1 ms\n"
        )
    return text


@pytest.mark.parametrize(("tokens", "calls"), [(121, 90), (121, None), (None, 90)])
def test_passes_without_a_draft_are_steps(tmp_path: Path, tokens: int | None, calls: int | None) -> None:
    """30 accepted in 90 passes, of which 15 had a draft of 2: 4/3 a pass, 3 a draft."""
    run = only(tmp_path, llama(tokens, 30, 30, calls, 15))
    (total,) = run.aggregates
    assert total.drafts == 90 and total.tau == pytest.approx(4 / 3) and total.mean_of is None


def test_without_passes_it_is_called_per_draft(tmp_path: Path) -> None:
    line = "draft acceptance = 0.50000 (   20 accepted /    40 generated), mean acceptance length = 2.00\n"
    run = only(tmp_path, line)
    assert run.aggregates[0].mean_of == PER_DRAFT and any("per draft, not per pass" in note for note in run.notes)


def test_requests_that_were_never_drafted_for_count(tmp_path: Path) -> None:
    text = llama(121, 30, 30, None, 15) + "eval time = 500.00 ms / 61 tokens\n"
    (total,) = only(tmp_path, text).aggregates
    assert total.drafts == 90 + 60 and total.tau == pytest.approx(1.2)


@pytest.mark.parametrize("text", [llama(121, 30, 30, 60, 15), llama(20, 30, 30, None, 15), llama(121, 30, 30, 12, 15)])
def test_passes_that_cannot_be_are_refused(tmp_path: Path, text: str) -> None:
    """60 passes give 91 tokens with 30 accepted, not 121; 20 tokens are fewer than were accepted; 12 calls of 15."""
    _, found = read_file(logs.write(tmp_path, "sound", llama(121, 30, 30, 90, 15)))
    assert not found.problems
    with pytest.raises(DataError):
        collected(tmp_path, text)


# Identities of tables


@pytest.mark.parametrize(
    ("columns", "row", "reason"),
    [
        ("steps,accepted,drafted,output_tokens", "40,40,80,120", "is 80, but output_tokens is 120"),
        ("steps,tokens,output_tokens", "40,60,200", "is 60, but output_tokens is 200"),
        ("steps,tokens,output_tokens", "40,220,60", "is 220, but output_tokens is 60"),
        ("steps,accepted,drafted", "40,81,80", "81 accepted of 80 drafted"),
        ("steps,tokens,drafted", "40,130,80", "90 accepted of 80 drafted"),
        ("steps,tokens,accepted", "40,60,120", "60 tokens in 40 steps with 120 accepted; together 160"),
        ("steps,output_tokens", "50,40", "40 tokens in 50 steps"),
    ],
)
def test_a_row_that_breaks_an_identity_names_it(tmp_path: Path, columns: str, row: str, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        collected(tmp_path, table(f"prompt_id,{columns}", *(f"{q},{row}" for q in range(4))))


@pytest.mark.parametrize(("output", "prefill"), [(80, "inside"), (81, "outside"), (80, "unknown"), (81, "unknown")])
def test_either_place_of_the_prefill_token_keeps_the_sum(tmp_path: Path, output: int, prefill: str) -> None:
    text = table("prompt_id,steps,accepted,output_tokens", *(f"{q},40,40,{output}" for q in range(4)))
    assert lengths(only(tmp_path, text, prefill_token=prefill)).pooled == 2.0


# Names


def test_means_are_named_as_comparisons_name_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Turns of 2 and 4 tokens a step; of a prompt together 40 + 40 tokens in 20 + 10 steps."""
    data = logs.lines([logs.answer(q, [[2] * 20, [4] * 10], category=None, scalar=True) for q in range(3)])
    path = logs.write(tmp_path, "a", data)
    assert run_command(main, [str(path), "--out", str(tmp_path / "x")]) == 0
    told = capsys.readouterr().out
    assert "mean over responses 3.0000; mean over prompts 2.6667" in told
