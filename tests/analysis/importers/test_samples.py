"""Real logs of other tools: they import, and the numbers that are known of them come out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from analysis.comparison.pairwise import compare_runs
from analysis.errors import DataError
from analysis.importers.direct import open_references
from analysis.importers.model import Imported
from analysis.importers.registry import read_file
from analysis.importers.summary import lengths

SAMPLES = Path(__file__).parents[4] / "shared" / "samples"
pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason="no ../shared/samples")

EAGLE, SPS, VANILLA = (
    f"specbench/vicuna-7b-v1.3-{arm}.jsonl"
    for arm in ("eagle-float16-temperature-0.0", "sps-68m-float16-temp-0.0", "vanilla-float16-temp-0.0")
)


def runs(name: str) -> Sequence[Imported]:
    _, found = read_file(SAMPLES / name)
    assert not found.problems
    return found.runs


@pytest.mark.parametrize(
    ("name", "micro", "macro", "steps"),
    [(EAGLE, 3.5785, 3.3412, 25_525), (SPS, 2.5024, 2.3511, 36_581), (VANILLA, 1.0, 1.0, 91_878)],
)
def test_spec_bench(name: str, micro: float, macro: float, steps: int) -> None:
    (run,) = runs(name)
    found = lengths(run)
    assert (round(found.pooled or 0, 4), round(found.over_prompts or 0, 4), found.steps) == (micro, macro, steps)
    assert len(run.responses) == 560 and len({r.prompt_id for r in run.responses}) == 480
    assert {r.dataset for r in run.responses} == {
        *("math_reasoning", "mt_bench", "qa", "rag", "summarization", "translation")
    }
    assert run.mode == ("plain" if name is VANILLA else "draft") and run.temperature == 0


def test_a_comparison_tells_the_mean_over_questions_from_that_over_responses(tmp_path: Path) -> None:
    comparison = compare_runs(*open_references([str(SAMPLES / name) for name in (EAGLE, SPS)], tmp_path))
    means = {e.estimand.key: (round(e.mean_a or 0, 4), round(e.mean_b or 0, 4)) for e in comparison.others}
    assert means["tau_mean_prompts"] == (3.3412, 2.3511)
    assert means["tau_mean"] == tuple(round(lengths(runs(name)[0]).over_responses or 0, 4) for name in (EAGLE, SPS))


@pytest.mark.parametrize(("dataset", "pooled", "macro"), [("gsm8k", 4.931, 4.920), ("qmsum", 2.573, 2.910)])
def test_cc_dflash(dataset: str, pooled: float, macro: float) -> None:
    found = {run.variant: run for run in runs(f"ccdflash/{dataset}_raw.jsonl")}
    assert list(found) == ["C1", "C2", "C3", "C4"] and {len(run.responses) for run in found.values()} == {20}
    means = lengths(found["C2"])
    assert (round(means.pooled or 0, 3), round(means.over_prompts or 0, 3)) == (pooled, macro)
    assert {run.mode for v, run in found.items() if v in ("C1", "C3")} == {"plain"}
    plain = {r.prompt_id: r.ids for r in found["C1"].responses}
    assert sum(plain[r.prompt_id] == r.ids for r in found["C2"].responses) == 15
    full = [n == 16 for r in found["C2"].responses for n in r.emitted or ()]
    assert round(float(np.mean(full)), 3) == (0.023 if dataset == "gsm8k" else 0.0)


def test_cast_pairs_of_the_excerpt() -> None:
    """Mean of ratios - 1 with its percentile bootstrap: 0.246 [0.216, 0.277] to 0.003."""
    cast, dflash = runs("cast/prompt_level.mtbench_excerpt.json")
    assert (cast.label, dflash.label) == ("cast", "dflash")
    assert [r.key for r in cast.responses] == [r.key for r in dflash.responses]
    ratios = np.array([d.seconds / c.seconds for c, d in zip(cast.responses, dflash.responses, strict=True)])  # type: ignore[operator]
    rng = np.random.default_rng(12345)
    means = ratios[rng.integers(0, ratios.size, (10_000, ratios.size))].mean(1) - 1
    low, high = np.quantile(means, [0.025, 0.975])
    assert (ratios.mean() - 1, low, high) == (
        pytest.approx(0.246, abs=0.003),
        pytest.approx(0.216, abs=0.003),
        pytest.approx(0.277, abs=0.003),
    )


def test_cast_sampling() -> None:
    cast, dflash = runs("cast/sampling.json")
    assert [a.tau for a in dflash.aggregates] == [5.69746, 3.68562, 5.66211]
    assert cast.aggregates[0].tokens_per_s == pytest.approx(1000 / np.mean([4.14709, 4.22219, 4.17623]))


@pytest.mark.parametrize(
    ("name", "tau", "drafts"),
    [
        ("formats/vllm_bench_serve.json", 1.0, 248),
        ("formats/vllm_bench_serve_spec_fields.json", 2.8, 5),
        ("formats/vllm_metrics.txt", 1.0, 255),
        ("formats/llamacpp_prometheus.txt", 3.0, 300),
        ("formats/vllm_server_log_line.txt", 1 + 172 / 51, 51),
        ("formats/llamacpp_log_line.txt", 1 + 167 / 87, 87),
        ("formats/sglang_bench_one_batch_server.jsonl", None, None),
        ("formats/modelopt_specdec_bench_acceptance_rate.schema.json", None, 0),
    ],
)
def test_totals(name: str, tau: float | None, drafts: int | None) -> None:
    (run,) = runs(name)
    (total,) = run.aggregates
    assert (total.tau if tau is None else pytest.approx(tau)) == tau and total.drafts == drafts


def test_sglang_request() -> None:
    (run,) = runs("formats/sglang_meta_info.json")
    assert lengths(run).pooled == 2.0 and run.responses[0].output_tokens == 5


def test_counters_of_an_engine_that_lack_its_drafts_are_left_out() -> None:
    """The fixture joins two public tests; the second has an engine's accepted tokens alone."""
    _, found = read_file(SAMPLES / "formats/vllm_prometheus_before_after.txt")
    (total,) = found.runs[0].aggregates
    assert (total.tau, total.drafts, total.accepted) == (3.5, 100, 250)
    assert [str(problem) for problem in found.problems] == ["engine 0 left out: no counter drafts"]


@pytest.mark.parametrize("name", ["gsm8k_metrics.json", "qmsum_metrics.json", "parity-diagnostics.json"])
def test_summaries_are_declined(name: str) -> None:
    with pytest.raises(DataError, match=r"import the \*_raw.jsonl"):
        read_file(SAMPLES / "ccdflash" / name)


def test_the_eagle_scalars_of_the_same_rows_agree(tmp_path: Path) -> None:
    """What EAGLE would have written of the same answers: idxs, no lengths."""
    rows = [json.loads(line) for line in (SAMPLES / EAGLE).read_text().splitlines()]
    for row in rows:
        (choice,) = row["choices"]
        del row["category"], choice["accept_lengths"]
        choice["idxs"] = [n - 1 for n in choice.pop("decoding_steps")]
    path = tmp_path / "eagle.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scalar = lengths(read_file(path)[1].runs[0])
    assert scalar == lengths(runs(EAGLE)[0])
