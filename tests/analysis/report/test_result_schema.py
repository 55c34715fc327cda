"""``result.json`` against its published JSON Schema."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path

import pytest

from analysis.commands.compare import main
from analysis.comparison.matrix import compare_many
from analysis.comparison.pairwise import compare_runs
from analysis.comparison.seed_study import compare_seeds
from analysis.errors import run_command
from analysis.measures.serving import serving
from analysis.report.result import matrix_json, seeds_json, serving_json, to_json
from analysis.report.result_schema import text
from analysis.runlog.reading import Run
from tests.analysis.importers import logs
from tests.analysis.runs import prompts_of, study, two_runs, write_run

jsonschema = pytest.importorskip("jsonschema")
PUBLISHED = Path(__file__).parents[3] / "analysis" / "report" / "result.schema.json"
BARE = {"gates": False, "history": False}


@pytest.fixture(scope="module")
def valid():
    schema = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_published_schema_is_that_of_the_code():
    assert PUBLISHED.read_text(encoding="utf-8") == text(), (
        "python -m analysis.report.result_schema > analysis/report/result.schema.json"
    )


def comparisons(tmp_path):
    runs = study(tmp_path / "study")
    yield compare_runs(*runs, margin=0.1, hypothesis="h", controls=[runs[0]], datasets=["humaneval", "gsm_symbolic"])
    yield compare_runs(*study(tmp_path / "generate", protocol="generate"))
    yield compare_runs(*two_runs(tmp_path / "few", [1], [2], **BARE))
    target = {"change": lambda m: setattr(m.target, "id", "Qwen/Qwen3-4B")}
    rows = prompts_of([[1], [2], [3]], dataset="gsm8k", matches_baseline=False)
    timings = [
        {"prompt_id": "p000", "mode": mode, "repeat": 0, "order": 0, "decode_s": 1.0, "output_tokens": 9}
        | {"draft_s": 0.1, "verify_s": 0.8, "other_s": 0.1}
        for mode in ("plain", "draft")
    ]
    trials = [{"trial": 0, "block": 0, "arm": "x", "status": "ok", "concurrency": 1, "tokens_per_s": 9.0}]
    more = {"timings": timings, "trials": trials, "protocol": "generate", **BARE, **target}
    run = write_run(tmp_path / "published", rows, **more)
    yield compare_runs(run, run, baseline=run)


def test_comparisons_are_valid(valid, tmp_path):
    seen = set()
    for comparison in comparisons(tmp_path):
        result = json.loads(to_json(comparison, title="t"))
        valid.validate(result)
        seen |= {key for key, value in result.items() if value not in (None, [], {})}
    assert {"speed", "throughput", "baseline", "published", "controls", "gain", "heterogeneity", "interactions"} <= seen


def test_serving_experiments_are_valid(valid, tmp_path):
    trials = [
        {"trial": n, "block": n // 2, "order": n % 2, "arm": arm, "engine": "draftlab", "status": "ok"}
        | {"concurrency": 8, "requests": 2, "duration_s": 1.0, "tokens_per_s": 10.0 + n}
        | ({"drafts": 10, "draft_tokens": 30, "accepted": 9, "accepted_at": [6, 2, 1]} if arm == "draft" else {})
        for n, arm in enumerate(["plain", "draft"] * 2)
    ]
    run = write_run(tmp_path / "serving", prompts_of([1]), trials=trials, **BARE)
    result = json.loads(serving_json(serving(Run.open(run)), title="t"))
    valid.validate(result)
    assert result["trials"][1]["accepted_at"] == [6, 2, 1] and result["changes"][1]["ratio"] == pytest.approx(
        math.sqrt(11 / 10 * 13 / 12), rel=1e-11
    )


def test_matrices_and_seeds_are_valid(valid, tmp_path):
    runs = study(tmp_path)
    valid.validate(json.loads(matrix_json(compare_many([*runs, runs[0]]))))
    seeded = [
        write_run(
            tmp_path / f"s{seed}{arm}",
            prompts_of([1, 2, 3, seed]),
            change=lambda m, seed=seed: m.training.seeds.update(init=seed),
            **BARE,
        )
        for arm in "ab"
        for seed in (0, 1)
    ]
    valid.validate(json.loads(seeds_json(compare_seeds(seeded[:2], seeded[2:]))))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: r["overall"].pop("p"),
        lambda r: r["overall"].update(verdict="maybe"),
        lambda r: r["overall"].update(estimate="0.1"),
        lambda r: r.update(surprise=1),
        lambda r: r.update(result_version=2),
        lambda r: r["arms"]["a"].pop("label"),
        lambda r: r["by_dataset"].update(x=None),
    ],
)
def test_the_schema_refuses_what_is_wrong(valid, tmp_path, spoil):
    result = json.loads(to_json(compare_runs(*two_runs(tmp_path, [1, 2], [2, 3], **BARE))))
    valid.validate(result)
    wrong = copy.deepcopy(result)
    spoil(wrong)
    assert not valid.is_valid(wrong)


def test_totals_times_and_values_are_valid(valid, tmp_path):
    """Runs of which one has totals, or times, alone, and tables of one number per prompt."""
    totals = [logs.write(tmp_path, f"{name}.json", json.dumps(logs.VLLM)) for name in "ab"]
    rows = [{"question_id": i, "model_id": "m", "choices": [{"index": 0, "turns": ["x"], "idxs": [0],
             "new_tokens": [9], "wall_time": [1.0 + i]}]} for i in range(8)]  # fmt: skip
    times = [logs.write(tmp_path, f"{name}.jsonl", logs.lines(rows)) for name in "cd"]
    tables = [logs.write(tmp_path, f"{name}.csv", "prompt_id,tau\nx,1.5\ny,2.5\nz,3\n") for name in "ef"]
    for kind, paths in (("totals", totals), ("times", times), ("values", tables)):
        out = tmp_path / kind
        assert run_command(main, [*map(str, paths), "--out", str(out)]) == 0
        result = json.loads((out / "result.json").read_text(encoding="utf-8"))
        assert result["kind"] == kind
        valid.validate(result)
