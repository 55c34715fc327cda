"""The six benchmarks: names, a table worked out by hand, and the published numbers against their own averages."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from analysis.comparison.pairwise import compare_runs
from analysis.importers.direct import open_references
from analysis.importers.specbench import MT_BENCH
from analysis.measures.benchmark_names import SIX, benchmark_of
from analysis.measures.published import AVERAGE, read_published
from analysis.report.markdown import escape
from analysis.report.render import report
from analysis.report.result import to_json
from analysis.report.sections.benchmarks import benchmark_table, here, published_lines, timing_notes
from analysis.runlog.counting import counting_of
from tests.analysis.runs import prompt, write_run

BARE = {"gates": False, "history": False}
SHARED = Path(__file__).parents[3].parent / "shared" / "prompts"
SPECBENCH = SHARED.parent / "samples" / "specbench"
LOGS = ("sps-68m-float16-temp-0.0", "eagle-float16-temperature-0.0", "vanilla-float16-temp-0.0")


@pytest.mark.parametrize(
    ("name", "benchmark"),
    [
        ("gsm8k", "GSM8K"),
        ("openai/gsm8k", "GSM8K"),
        ("MATH-500", "MATH-500"),
        ("HuggingFaceH4/MATH-500", "MATH-500"),
        ("math_500", "MATH-500"),
        ("aime2025", "AIME25"),
        ("openai_humaneval", "HumanEval"),
        ("sanitized-mbpp", "MBPP"),
        ("mtbench", "MT-Bench"),
        ("mt_bench", "MT-Bench"),
        *((name, None) for name in ("gsm8k_backward", "gsm_symbolic/seen", "math", "aime", "aime24", "spec_bench", "")),
    ],
)
def test_names(name, benchmark):
    assert benchmark_of(name) == benchmark


@pytest.mark.skipif(not SHARED.exists(), reason="prompt files are not here")
def test_labels_that_the_prompt_loader_gives():
    label = pytest.importorskip("drafters.prompts.files").default_label
    files = {"gsm8k/test.jsonl": "GSM8K", "humaneval/HumanEval.jsonl": "HumanEval", "math500/test.jsonl": "MATH-500"}
    files |= {"mbpp/mbpp.jsonl": "MBPP", "mbpp/sanitized-mbpp.json": "MBPP", "mt_bench/question.jsonl": "MT-Bench"}
    files |= {"svamp/svamp_test.jsonl": None, "metamath/GSM8K_Backward.jsonl": None, "spec_bench/question.jsonl": None}
    for file, benchmark in files.items():
        assert (SHARED / file).exists()
        assert benchmark_of(label(SHARED / file)) == benchmark


def test_published_averages_are_what_the_table_takes_them_for():
    # arithmetic for tau; of speed-ups only the geometric mean comes out as printed
    table = read_published()
    dflash = table[table["method"] == "DFlash"]
    for _, rows in dflash.groupby(["target", "temperature"]):
        each, own = rows[rows["dataset"] != AVERAGE], rows[rows["dataset"] == AVERAGE].iloc[0]
        assert len(each) == 7 and set(SIX) < set(each["dataset"])
        assert each["tau"].mean() == pytest.approx(own["tau"], abs=0.0051)
        assert np.exp(np.log(each["speedup"]).mean()) == pytest.approx(own["speedup"], abs=0.0051)
        assert each["speedup"].mean() > own["speedup"] + 0.05
    assert table["source"].notna().all()


# --- a table by hand -------------------------------------------------------------------------------------------------


def timed(prompt_id, mode, seconds, tokens, **more):
    """Two repeats, ``tokens`` after the first."""
    row = {"prompt_id": prompt_id, "mode": mode, "order": 0, "output_tokens": tokens + 1, **more}
    return [{**row, "repeat": i, "decode_s": seconds} for i in range(2)]


def arm(folder, accepted, seconds, *, temperature=0.0, protocol="generate", **more):
    """gsm8k and two ways of naming MBPP (one prompt each), MT-Bench (one prompt of two turns) and another data set."""
    names = ["gsm8k", "gsm8k", "mbpp", "sanitized-mbpp", "mt_bench", "mt_bench", "sums"]
    ids = ["g0", "g1", "m0", "m1", "q", "q", "s"]
    turns = [0, 0, 0, 0, 0, 1, 0]
    rows = [prompt(i, a, dataset=n, turn=t) for i, a, n, t in zip(ids, accepted, names, turns, strict=True)]
    timings = [
        row
        for i, t, s in zip(ids[:4], turns[:4], seconds, strict=True)
        for row in (*timed(i, "plain", 1.0, 4, turn=t), *timed(i, "draft", s, 4, turn=t))
    ]

    def change(manifest):
        (evaluation,) = manifest.evaluations.values()
        evaluation.settings["temperature"] = temperature

    return write_run(folder, rows, protocol=protocol, timings=timings, change=change, **{**BARE, **more})


A = [[1, 3], [0, 0, 0], [1], [3], [1], [3, 1], [0]]  # per response 3, 1 | 2, 4 | 2, 3
B = [[3, 3], [1, 1, 1], [1], [3], [3], [3, 3], [0]]  # 4, 2 | 2, 4 | 4, 4


@pytest.fixture
def compared(tmp_path):
    a = arm(tmp_path / "a", A, (0.5, 0.5, 0.25, 0.25))
    b = arm(tmp_path / "b", B, (0.5, 0.25, 0.5, 0.5), fusion="gated")
    return compare_runs(a, b)


def test_the_table_by_hand(compared):
    # gsm8k: tau of A (3 + 1) / 2 with t(1) = 12.706 times se 1. Times per token of plain .25, .25; of B .125, .0625,
    # so speed-up .25 / .09375 = 2.667 on the mean of times, its interval beyond two digits by one degree of freedom.
    # MBPP is one benchmark under two names. MT-Bench is one prompt: two responses, no interval; not timed.
    tau, speed = "2.00 (-10.71 to 14.71)", "3.00 (-9.71 to 15.71)"
    t = np.tan(0.475 * np.pi)  # t(1) at 97.5%, in closed form
    # of the log: values -1/3 and 1/3 about it, each over 1 - its share of B's time, 2/3 and 1/3 (CR2)
    se = np.sqrt((1 / 9 / (1 / 3) + 1 / 9 / (2 / 3)) / 4)
    of_b = f"2.67 ({8 / 3 * np.exp(-t * se):.2f} to {8 / 3 * np.exp(t * se):.2f})"
    assert benchmark_table(compared).splitlines() == [
        "| benchmark | prompts | responses | tau, A | tau, B | speed-up, A | speed-up, B "
        "| effective clusters (tau / speed-up), A | B "
        "| published: DFlash, Qwen3-4B | published: DFlash, Qwen3-8B |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        f"| GSM8K | 2 | 2 | {tau} | {speed} | 2.00 | {of_b} | 2.0 / — | 2.0 / 2.0 | 6.53 / 5.15 | 6.54 / 5.15 |",
        "| MATH-500 | — | — | — | — | — | — | — | — | 7.84 / 6.09 | 7.87 / 6.08 |",
        "| AIME25 | — | — | — | — | — | — | — | — | 7.27 / 5.68 | 7.08 / 5.62 |",
        "| HumanEval | — | — | — | — | — | — | — | — | 6.64 / 5.21 | 6.50 / 5.14 |",
        f"| MBPP | 2 | 2 | {speed} | {speed} | 4.00 | 2.00 | 2.0 / — | 2.0 / — | 6.09 / 4.78 | 5.95 / 4.65 |",
        "| MT-Bench | 1 | 2 | 2.50 | 4.00 | — | — | — / — | — / — | 4.35 / 2.85 | 4.24 / 2.75 |",
        # tau (2 + 3 + 2.5) / 3; published (6.53 + 6.09 + 4.35) / 3 / cube root of 5.15 x 4.78 x 2.85
        "| average of these 3 | — | — | 2.50 | 3.33 | — | — | — | — | 5.66 / 4.12 | 5.58 / 4.04 |",
    ]
    (note,) = timing_notes(compared)
    assert "MT-Bench 0 of 2 responses" in note


def test_pooled_tau_is_another_number_and_is_kept(compared):
    # gsm8k of A: 9 tokens in 5 steps
    first = json.loads(to_json(compared))["benchmarks"]["rows"][0]
    assert (first["a"]["tau"], first["a"]["tau_pooled"]) == pytest.approx((2.0, 1.8))
    assert compared.by_dataset["gsm8k"].mean_a == pytest.approx(1.8)


def test_what_is_measured_and_what_is_published_are_told_apart(compared):
    measured = here(compared)
    for fact in ("toy-135m", "block 8", "temperature 0,", "64", "cpu", "gsm8k, mbpp, sanitized-mbpp, mt_bench"):
        assert fact in measured
    lines, published = published_lines(compared), compared.benchmarks.published
    assert [line.split(":")[0] for line in lines] == [f"{m}, Qwen3-{n}B" for m in ("DFlash", "DFlare") for n in (4, 8)]
    assert all(p.same_target is False and "arXiv 26" in p.source and p.source in line
               for p, line in zip(published, lines, strict=True))  # fmt: skip
    assert (published[0].temperature, published[0].hardware) == (0, "H200") and "block 16" in lines[0]
    assert (published[3].own_average.tau, published[3].own_average.speedup, published[3].tau) == (7.33, 5.46, {})
    text = report(compared, ())
    assert text.index(benchmark_table(compared)) < text.index(escape(lines[0]))


def test_sampled_runs_stand_by_sampled_numbers(tmp_path):
    a, b = (arm(tmp_path / n, A, (1.0,) * 4, temperature=0.7) for n in "ab")
    c = compare_runs(a, b)
    assert "| 6.00 / 4.71 | 5.98 / 4.67 |" in benchmark_table(c)
    assert len(published_lines(c)) == 2 and "temperature 1;" in published_lines(c)[0]
    assert "temperature 0.7" in here(c)


def test_a_target_of_the_same_name_is_said_to_be(tmp_path):
    rows = [prompt(f"p{i}", [1, i], dataset="MATH-500") for i in range(3)]
    more = {"protocol": "generate", "change": lambda m: setattr(m.target, "id", "Qwen/Qwen3-8B"), **BARE}
    a, b = (write_run(tmp_path / n, rows, **more) for n in "ab")
    c = compare_runs(a, b)
    assert [p.same_target for p in c.benchmarks.published] == [False, True, False, True]
    assert all(row.a is None or row.a.speedup is None for row in c.benchmarks.rows)
    assert len(timing_notes(c)) == 1
    assert "average" not in benchmark_table(c)  # of one


def test_a_baseline_run_gives_the_plain_times(tmp_path):
    rows = [prompt(f"p{i}", [1, i], dataset="mtbench") for i in range(3)]
    folders = []
    for name, mode, seconds in (("a", "draft", 1.0), ("b", "draft", 0.5), ("plain", "plain", 2.0)):
        timings = [row for p in rows for row in timed(p["prompt_id"], mode, seconds, 4)]
        folders.append(write_run(tmp_path / name, rows, protocol="generate", timings=timings, **BARE))
    c = compare_runs(*folders[:2], baseline=folders[2])
    row = c.benchmarks.rows[-1]
    assert (row.benchmark, row.a.speedup, row.b.speedup) == ("MT-Bench", pytest.approx(2.0), pytest.approx(4.0))
    assert c.benchmarks.plain_run == c.baseline.label
    (note,) = timing_notes(c)
    assert c.baseline.label in note
    assert compare_runs(*folders[:2]).benchmarks.rows[-1].a.speedup is None


def test_a_log_that_counts_otherwise_is_said_to(tmp_path):
    def change(manifest):
        (evaluation,) = manifest.evaluations.values()
        evaluation.settings["counting"] = {"prefill_token": "outside", "time": "prefill and decode"}
        manifest.target = None

    rows = [prompt(f"p{i}", [1, i], dataset="mt_bench") for i in range(3)]
    a, b = (write_run(tmp_path / n, rows, protocol="generate", change=change, **BARE) for n in "ab")
    c = compare_runs(a, b)
    counting = counting_of(c.a.manifest, "generate")
    assert str(counting) in here(c) and counting.time in here(c)
    assert {p.same_target for p in c.benchmarks.published} == {None}


def test_no_section_without_a_benchmark_or_a_tau(tmp_path):
    rows = [prompt(f"p{i}", [1, i], dataset="sums") for i in range(3)]
    a, b = (write_run(tmp_path / n, rows, protocol="generate", **BARE) for n in "ab")
    prefix = [write_run(tmp_path / f"prefix-{n}", [prompt("p", 2, dataset="gsm8k")], **BARE) for n in "ab"]
    for c in (compare_runs(a, b), compare_runs(*prefix)):
        assert c.benchmarks is None and benchmark_table(c) is None


@pytest.mark.skipif(not SPECBENCH.exists(), reason="the sample logs are not here")
def test_mt_bench_of_real_logs_against_the_raw_json(tmp_path):
    files = [SPECBENCH / f"vicuna-7b-v1.3-{name}.jsonl" for name in LOGS]
    sps, eagle, plain = (
        {row["question_id"]: row["choices"][0] for row in rows if row["category"] in MT_BENCH}
        for rows in (map(json.loads, file.read_text(encoding="utf-8").splitlines()) for file in files)
    )

    def seconds(answers):  # per token of every turn
        return [w / n for i in plain for w, n in zip(answers[i]["wall_time"], answers[i]["new_tokens"], strict=True)]

    runs = open_references([str(file) for file in files], tmp_path)
    row = compare_runs(*runs[:2], baseline=runs[2]).benchmarks.rows[-1]
    assert (row.benchmark, row.prompts, row.responses) == ("MT-Bench", 80, 160)
    for answers, found in ((sps, row.a), (eagle, row.b)):
        taus = [n / s for a in answers.values() for n, s in zip(a["new_tokens"], a["decoding_steps"], strict=True)]
        assert found.tau == pytest.approx(np.mean(taus))
        assert found.speedup == pytest.approx(np.mean(seconds(plain)) / np.mean(seconds(answers)))
