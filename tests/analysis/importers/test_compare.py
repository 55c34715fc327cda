"""Log files compared directly: with a baseline, with totals alone, with times alone."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.cautions import caution
from analysis.commands.compare import main
from analysis.commands.power import main as power
from analysis.errors import DataError, UsageError, run_command
from analysis.importers.collect import collect
from analysis.importers.direct import open_references
from analysis.importers.write import write_run as write_import
from analysis.measures.aggregate import CANNOT, NO_RATIO, compare_totals, one_load, totals_of
from analysis.measures.baseline import against_baseline, speed_alone
from analysis.measures.texts import cautions_of, loops
from analysis.report.sections import totals as totals_sections
from analysis.runlog.load import load
from analysis.runlog.pairing import pair
from analysis.runlog.reading import Run
from tests.analysis.importers import logs
from tests.analysis.importers.test_samples import EAGLE, SAMPLES, SPS, VANILLA
from tests.analysis.runs import prompt, write_run

real = pytest.mark.skipif(not SAMPLES.is_dir(), reason="no ../shared/samples")


def speedups(found: object) -> dict[tuple[str, str], float]:
    return {(s.what, s.convention): s.estimate for s in found.speedups}  # type: ignore[attr-defined]


def arms(tmp_path: Path) -> list[Path]:
    """Three arms over 3 prompts. Tokens are 10, 20, 30; seconds of the baseline 10, 10, 10 (1, 2 and 3 tokens/s), of A
    5, 5, 5 and of B 5, 4, 2."""
    paths = []
    for name, seconds in (("plain", [10, 10, 10]), ("a", [5, 5, 5]), ("b", [5, 4, 2])):
        rows = []
        for i, s in enumerate(seconds):
            steps = [1] * (10 * (i + 1)) if name == "plain" else [5] * (2 * (i + 1))
            rows.append(
                logs.answer(i, [steps], seconds=s, texts=[f"same words {i} " + ("x" if name == "b" else "y") * i])
            )
        paths.append(logs.write(tmp_path, f"{name}.jsonl", logs.lines(rows)))
    return paths


def test_speed_ups_by_hand(tmp_path: Path) -> None:
    plain, a, b = open_references([str(p) for p in arms(tmp_path)], tmp_path / "t")
    found = speedups(against_baseline(plain, a, b))
    rate = np.array([10, 20, 30]) / np.array([5, 4, 2])
    assert found["A", "ratio of means"] == found["A", "mean of ratios"] == found["A", "pooled"] == pytest.approx(2)
    assert found["B", "ratio of means"] == pytest.approx(rate.mean() / 2)
    assert found["B", "mean of ratios"] == pytest.approx((10 / 5 + 10 / 4 + 10 / 2) / 3)
    assert found["B", "pooled"] == pytest.approx(30 / 11)
    for convention in ("ratio of means", "mean of ratios", "pooled"):
        both = found["B's speed-up", convention]
        assert both == pytest.approx(found["B", convention] / found["A", convention])


def test_outputs_that_differ_from_the_baseline(tmp_path: Path) -> None:
    plain, a, b = open_references([str(p) for p in arms(tmp_path)], tmp_path / "t")
    found = against_baseline(plain, a, b)
    assert (found.outputs["A"].same, found.outputs["B"].same) == (3, 1)  # type: ignore[union-attr]
    assert found.outputs["B"].turns["position"].tolist() == [3, 3]  # type: ignore[union-attr]
    assert [c.code for c in found.cautions] == ["baseline-differs", "one-session"]
    assert "2 of 3" in found.cautions[0].text and "word 3" in found.cautions[0].text


@real
def test_the_published_speed_ups_of_spec_bench(tmp_path: Path) -> None:
    files = [str(SAMPLES / name) for name in (VANILLA, SPS, EAGLE)]
    found = against_baseline(*open_references(files, tmp_path))
    values = {key: round(x, 3) for key, x in speedups(found).items()}
    expected = {"ratio of means": (1.508, 2.184), "mean of ratios": (1.514, 2.173), "pooled": (1.632, 2.432)}
    for convention, pair_of in expected.items():
        assert (values["A", convention], values["B", convention]) == pair_of
    assert {side: (o.same, o.prompts) for side, o in found.outputs.items() if o} == {"A": (433, 480), "B": (423, 480)}


@real
def test_the_report_names_the_convention_and_why_spec_bench_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sps, eagle, vanilla = (str(SAMPLES / name) for name in (SPS, EAGLE, VANILLA))
    assert run_command(main, [sps, eagle, "--baseline", vanilla, "--out", str(tmp_path)]) == 0
    text = (tmp_path / "report.md").read_text()
    assert "| ratio of means |" in text and "2.184 (2.144 to 2.226)" in text
    assert "new\\_tokens" in text and "423 of 480" in text
    out = capsys.readouterr().out
    assert "3.579" in out and "2.502" in out and "ratio of means: A 1.508" in out
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["baseline"]["speedups"][1]["estimate"] == pytest.approx(2.18446, abs=1e-5)


@real
def test_conditions_of_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(SAMPLES / "ccdflash" / "gsm8k_raw.jsonl")
    arguments = [f"{trace}#C4", f"{trace}#C2", "--baseline", f"{trace}#C1", "--out", str(tmp_path)]
    assert run_command(main, arguments) == 0
    report = (tmp_path / "report.md").read_text()
    assert "4.931" in report and "15 of 20" in report


def test_a_file_of_several_runs_requires_a_choice(tmp_path: Path) -> None:
    trace = str(logs.write(tmp_path, "trace.jsonl"))
    with pytest.raises(UsageError, match=r"2 runs.* .*#C1, .*#C2"):
        open_references([trace], tmp_path)
    with pytest.raises(UsageError, match=r"'C9'.* C1, C2"):
        open_references([f"{trace}#C9"], tmp_path)


def test_data_sets_come_from_the_file_that_has_them(tmp_path: Path) -> None:
    """EAGLE writes no category: its prompts have those of the other file."""
    eagle = [logs.answer(row["question_id"], [[2, 3]] * len(row["choices"][0]["turns"]), category=None, scalar=True)
             for row in logs.ANSWERS]  # fmt: skip
    paths = [logs.write(tmp_path, "eagle.jsonl", logs.lines(eagle)), logs.write(tmp_path, "answers.jsonl")]
    a, b = open_references([str(p) for p in paths], tmp_path / "t")
    pairs = pair(load(a, "generate"), load(b, "generate"))
    assert pairs.lost.empty and sorted(set(pairs.frame["dataset"])) == ["mt_bench", "qa", "rag"]
    assert pairs.frame["tokens_a"].tolist() == [5] * 4


def test_logs_are_runs_in_every_form_of_the_command_and_in_power(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs_of = [str(logs.write(tmp_path, "answers.jsonl")), *(str(tmp_path / name) for name in ("b.jsonl", "c.jsonl"))]
    for copy in logs_of[1:]:
        Path(copy).write_bytes(Path(logs_of[0]).read_bytes())
    out = ["--out", str(tmp_path / "out")]
    assert run_command(main, [*logs_of, *out]) == 0
    assert "identical" in capsys.readouterr().out
    assert run_command(main, [*logs_of[:2], "--vs", *logs_of[1:], *out]) == 0
    assert run_command(power, [*logs_of[:2], "--effect", "1"]) == 0
    assert "pairs" in capsys.readouterr().out


def test_printed_advice_can_be_run_as_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It carries what was said about the files: columns, encoding, how many bad records."""
    paths = []
    for name, gain in (("a b.csv", 0), ("b.csv", 1)):
        rows = [f"é{i},{10 + (i + gain) % 2},40" for i in range(30)]
        path = tmp_path / name
        path.write_text("\n".join(["frage,schritte,tokens", *rows]) + "\n", encoding="cp1252")
        paths.append(str(path))
    said = ["--map", "prompt_id=frage", "--map", "steps=schritte", "--encoding", "cp1252", "--max-bad", "0.2"]
    assert run_command(main, [*paths, *said, "--out", str(tmp_path / "out")]) == 0
    text = " ".join((tmp_path / "out/report.md").read_text().replace("\\", "").split())
    (advice,) = re.findall(r"python -m analysis\.power (.*?) gives the number", text)
    assert "--map prompt_id=frage --map steps=schritte --encoding cp1252 --max-bad 0.2" in advice
    capsys.readouterr()
    assert run_command(power, shlex.split(advice)) == 0
    assert "pairs" in capsys.readouterr().out


def test_totals_say_what_they_cannot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = logs.write(tmp_path, "one.json", json.dumps({**logs.VLLM, "model_id": "toy"}))
    two = logs.write(tmp_path, "two.txt", logs.prometheus(20, [14, 10, 6]))
    out = tmp_path / "report"
    assert run_command(main, [str(one), str(two), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    for value in ("2.000", "2.500", "+0.500", "+25.0%"):
        assert value in printed
    assert CANNOT in printed
    text = (out / "report.md").read_text()
    assert "| 1 | 60.0% | 70.0% |" in text and "| 3 | 10.0% | 30.0% |" in text
    assert run_command(main, [str(one), str(two), "--out", str(out), "--fail-if", "delta<0"]) == 64


def test_totals_beside_rows_of_prompts(tmp_path: Path) -> None:
    """A run with rows is pooled: 30 tokens in 9 steps, overall and by data set."""
    paths = [logs.write(tmp_path, "answers.jsonl"), logs.write(tmp_path, "vllm.json")]
    rows, totals = open_references([str(p) for p in paths], tmp_path / "t")
    assert {t.subset: t.tau for t in totals_of(rows)} == pytest.approx(
        {"all requests": 30 / 9, "mt_bench": 14 / 4, "qa": 3.0, "rag": 13 / 4}
    )
    found = compare_totals(rows, totals)
    ((name, first, second),) = found.rows
    assert (name, first.tau, second.tau) == ("all requests", pytest.approx(30 / 9), 2.0)
    assert not one_load(first, second)
    assert "concurrency 2" in found.notes[0]


def serving(folder: Path, name: str, *results: dict[str, object]) -> str:
    """A file of SGLang results, each with 2.75 tokens a step at 100 tokens/s but for what is told."""
    base = {**logs.SERVING, "dataset_name": "sharegpt", "request_rate": float("inf"), "output_throughput": 100.0}
    return str(logs.write(folder, name, logs.lines([{**base, **result} for result in results])))


def test_results_are_matched_by_load(tmp_path: Path) -> None:
    a = serving(tmp_path, "a.jsonl", {"max_concurrency": 1}, {"max_concurrency": 64, "output_throughput": 900.0})
    b = serving(tmp_path, "b.jsonl", {"max_concurrency": 64, "output_throughput": 1800.0}, {"max_concurrency": 8})
    found = compare_totals(*open_references([a, b], tmp_path / "t"))
    assert [(name, x.concurrency, y.concurrency) for name, x, y in found.rows] == [
        ("sharegpt, concurrency 64, request rate inf", 64, 64)
    ]
    assert found.unmatched == (
        "A: sharegpt, concurrency 1, request rate inf",
        "B: sharegpt, concurrency 8, request rate inf",
    )
    with pytest.raises(DataError, match="strict"):
        compare_totals(*open_references([a, b], tmp_path / "s"), strict=True)
    assert any("2.00 times" in line for line in totals_sections.lines(found))


def test_rates_of_different_loads_have_no_ratio(tmp_path: Path) -> None:
    a, b = (serving(tmp_path, f"{n}.jsonl", {"max_concurrency": n, "output_throughput": 100.0 * n}) for n in (1, 64))
    found = compare_totals(*open_references([a, b], tmp_path / "t"))
    lines = totals_sections.lines(found)
    assert any(NO_RATIO in line for line in lines) and not any("times" in line for line in lines)
    assert "(1 at a time)" in found.notes[0] and "(64 at a time)" in found.notes[0]


def test_totals_of_one_name_count_all_or_none(tmp_path: Path) -> None:
    """Two results under one load are two, by their place in a file and by their files; one is none of them."""
    twice = serving(tmp_path, "twice.jsonl", {"accept_length": 2.0}, {"accept_length": 3.0})
    load = "sharegpt, concurrency 4, request rate inf"
    (run,) = collect([twice]).runs
    assert [(x.subset, x.tau) for x in run.aggregates] == [(f"{load}, #1", 2.0), (f"{load}, #2", 3.0)]
    once = serving(tmp_path, "once.jsonl", {"accept_length": 4.0})
    for i, other in enumerate((once, twice)):  # a place in a file corresponds to no place in another
        with pytest.raises(DataError, match="place"):
            compare_totals(*open_references([twice, other], tmp_path / f"t{i}"))
    (both,) = collect([once, twice]).runs
    assert [x.subset for x in both.aggregates] == [
        f"{load} (once.jsonl)", f"{load} (twice.jsonl), #1", f"{load} (twice.jsonl), #2"
    ]  # fmt: skip
    write_import(tmp_path / "run", both, name="run")
    assert [t.tau for t in totals_of(Run.open(tmp_path / "run"))] == [4.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="of one name"):
        write_import(tmp_path / "two", replace(both, aggregates=[both.aggregates[0]] * 2), name="two")


def vllm(folder: Path, name: str, *results: dict[str, object]) -> str:
    """A file of vLLM results: 10 requests, 100 tokens/s but for what is told."""
    base = {"model_id": "m", "completed": 10, "total_output_tokens": 1000, "output_throughput": 100.0,
            "duration": 10.0, "max_concurrency": 1}  # fmt: skip
    return str(logs.write(folder, name, logs.lines([{**base, **result} for result in results])))


def test_results_of_one_load_pair_by_their_settings_not_by_their_place(tmp_path: Path) -> None:
    results = [{"k": k, "output_throughput": 50.0 * k, "duration": 20.0 / k} for k in (1, 2, 4)]
    a, b = vllm(tmp_path, "a.jsonl", *results), vllm(tmp_path, "b.jsonl", *reversed(results))
    found = compare_totals(*open_references([a, b], tmp_path / "t"))
    assert [name for name, *_ in found.rows] == [f"concurrency 1, k {k}" for k in (1, 2, 4)]
    assert [x.tokens_per_s for _, x, _ in found.rows] == [y.tokens_per_s for *_, y in found.rows] == [50, 100, 200]


def test_settings_that_differ_are_told(tmp_path: Path) -> None:
    """Draft tokens per step, known from the counts, and whatever both files state."""
    counts = {"spec_decode_num_drafts": 10, "spec_decode_accepted_tokens": 9}
    a, b = (
        vllm(tmp_path, f"{k}.json", {**counts, "spec_decode_draft_tokens": 10 * k, "total_input_tokens": 100 * k})
        for k in (1, 4)
    )
    notes = compare_totals(*open_references([a, b], tmp_path / "t")).notes
    load = "concurrency 1"
    for what, values in (("draft tokens per step", ("1", "4")), ("total_input_tokens", ("100", "400"))):
        assert caution("differs", what=f"{what} ({load})", a=values[0], b=values[1]).text in notes


@pytest.mark.parametrize("strict", [[], ["--strict"]])
def test_totals_of_two_targets_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], strict: list[str]
) -> None:
    a, b = vllm(tmp_path, "a.json", {"model_id": "m-8b"}), vllm(tmp_path, "b.json", {"model_id": "m-70b"})
    assert run_command(main, [a, b, "--out", str(tmp_path / "out"), *strict]) == 65
    told = capsys.readouterr().err
    assert "m-8b" in told and "m-70b" in told and not (tmp_path / "out").exists()


def test_totals_of_an_unknown_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A caution; under --strict refused, as of pairs."""
    a, b = vllm(tmp_path, "a.json", {"model_id": None}), vllm(tmp_path, "b.json", {})
    out = ["--out", str(tmp_path / "out")]
    assert run_command(main, [a, b, *out, "--strict"]) == 65
    assert run_command(main, [a, b, *out]) == 0
    assert f"caution: {caution('unknown', what='target').text}" in capsys.readouterr().out


CASES = Path(__file__).parents[4] / "shared" / "cases" / "logs"


@pytest.mark.skipif(not CASES.is_dir(), reason="no ../shared/cases")
def test_cases_of_totals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("prom", "json"):
        for strict in ([], ["--strict"]):
            files = [str(CASES / "targets" / f"{name}.{kind}") for name in ("oak", "elm")]
            assert run_command(main, [*files, "--out", str(tmp_path), *strict]) == 65
            told = capsys.readouterr().err
            assert "alpha-8b" in told and "beta-70b" in told
    found = compare_totals(*open_references([str(CASES / "place" / f"{n}.jsonl") for n in ("oak", "elm")], tmp_path))
    assert [b.tokens_per_s / a.tokens_per_s for _, a, b in found.rows if a.tokens_per_s and b.tokens_per_s] == [1, 1]


def test_counters_of_two_servers_are_two_totals(tmp_path: Path) -> None:
    paths = [logs.write(tmp_path, f"{n}.prom", logs.prometheus(20, [n, 0])) for n in (10, 20)]
    (run,) = collect(paths).runs
    assert [(a.subset, a.tau) for a in run.aggregates] == [
        ("all requests (10.prom)", 1.5), ("all requests (20.prom)", 2.0)
    ]  # fmt: skip


def test_vllm_results_are_named_by_their_load(tmp_path: Path) -> None:
    rows = [{**logs.VLLM, "max_concurrency": n, "request_rate": rate} for n, rate in ((None, 2.5), (8, "inf"))]
    (run,) = collect([logs.write(tmp_path, "v.jsonl", logs.lines(rows))]).runs
    assert [a.subset for a in run.aggregates] == ["request rate 2.5", "concurrency 8, request rate inf"]


def test_different_means_are_not_taken_for_one(tmp_path: Path) -> None:
    paths = [logs.write(tmp_path, "specforge_sglang.json"), logs.write(tmp_path, "vllm.json")]
    found = compare_totals(*open_references([str(p) for p in paths], tmp_path / "t"))
    assert len({total.mean_of for _, *sides in found.rows for total in sides}) == 2
    assert "mean of" in totals_sections.report(found)


@real
def test_times_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CAST's pairs: no steps, so speed and nothing else; mean of ratios 1.246 [1.216, 1.277] to 0.003."""
    file = str(SAMPLES / "cast" / "prompt_level.mtbench_excerpt.json")
    assert run_command(main, [f"{file}#dflash", f"{file}#cast", "--out", str(tmp_path)]) == 0
    assert "1.246" in capsys.readouterr().out
    runs = open_references([f"{file}#dflash", f"{file}#cast"], tmp_path / "t")
    (found,) = (s for s in speed_alone(*runs) if s.convention == "mean of ratios")
    assert (found.estimate, found.lo, found.hi) == pytest.approx((1.246, 1.216, 1.277), abs=0.003)


def test_loops_are_measured_and_told(tmp_path: Path) -> None:
    rows = [prompt(f"p{i}", [1, 1], repetition=0.0) for i in range(9)] + [prompt("loop", [7] * 9, repetition=0.9)]
    a, b = (load(write_and_open(tmp_path / n, rows), "generate") for n in "ab")
    pairs = pair(a, b)
    found = loops(pairs, "a")
    assert found is not None and (found.outputs, found.known) == (1, 10)
    assert (found.tau, found.tau_without) == pytest.approx(((9 * 4 + 72) / 27, 2.0))
    told = cautions_of(pairs, (100.0, 106.0), ("A", "B"))
    assert [c.code for c in told] == ["loops", "loops", "lengths-differ"]
    assert "4.000" in told[0].text and "2.000" in told[0].text
    assert cautions_of(pairs, (100.0, 104.0), ("A", "B"))[2:] == ()


def write_and_open(folder: Path, rows: list[dict[str, object]]):  # type: ignore[no-untyped-def]
    return Run.open(write_run(folder, rows, protocol="generate", gates=False, history=False))
