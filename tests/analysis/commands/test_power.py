"""``python -m analysis.power``: what an effect wants."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from analysis.cautions import caution
from analysis.commands.power import main, needed
from analysis.errors import Exit, run_command
from tests.analysis.runs import prompts_of, two_runs, write_run
from tests.analysis.stats.test_estimate import estimate

BARE = {"gates": False, "history": False}


def test_clusters_cost_their_design_effect():
    d = np.random.default_rng(0).integers(-3, 4, 100)
    alone, fivefold = estimate(d), estimate(np.repeat(d, 5), np.repeat(range(100), 5))
    prompts, clusters = needed(alone, 0.2)
    assert prompts == clusters
    assert needed(fivefold, 0.2) == (5 * clusters, clusters)
    assert needed(estimate([0] * 9), 0.2) is None


def test_prompts_enough_for_six_that_differ():
    rare = np.arange(60) % 10 == 0  # 6 of 60, mean 0.1: a t alone would have 26 suffice for a difference of 0.2
    assert needed(estimate(rare), 0.2) == (60, 60)
    assert needed(estimate(np.repeat(rare, 2), np.repeat(range(60), 2)), 0.2) == (120, 60)
    assert needed(estimate(np.arange(60) == 7), 0.1) is None


def test_through_the_command(tmp_path, capsys):
    rng = np.random.default_rng(1)
    a, b = two_runs(tmp_path, rng.integers(0, 7, 60).tolist(), rng.integers(0, 7, 60).tolist(), **BARE)
    assert run_command(main, [str(a), str(b), "--effect", "0.3"]) == Exit.OK
    out = capsys.readouterr().out
    assert "prompts needed" in out
    rows = [line.split() for line in out.splitlines() if line.startswith(("overall", "sums"))]
    assert rows[0][1:] == rows[1][1:]
    spread = float(rows[0][3])
    assert int(rows[0][6].replace(",", "")) == pytest.approx((2.8016 * spread / 0.3) ** 2, rel=0.01)


def test_few_clusters_are_said(tmp_path, capsys):
    rng = np.random.default_rng(2)
    clusters = [i % 18 for i in range(60)]
    a, b = two_runs(tmp_path, rng.integers(0, 7, 60).tolist(), rng.integers(0, 7, 60).tolist(), clusters,
                    protocol="generate", **BARE)  # fmt: skip
    assert run_command(main, [str(a), str(b), "--effect", "0.3"]) == Exit.OK
    out = capsys.readouterr().out
    few = caution("few-units", differ=18, units="18 clusters").text
    assert f"caution: overall: {few}" in out and f"caution: sums: {few}" in out


def test_the_protocol_can_be_chosen(tmp_path, capsys):
    a, b = two_runs(tmp_path, [0, 1, 2, 3] * 12, [1, 1, 3, 2] * 12, **BARE)
    assert run_command(main, [str(a), str(b), "--effect", "0.3", "--protocol", "prefix"]) == Exit.OK
    out = capsys.readouterr().out
    assert "prefix" in out and "mean accepted length" in out
    assert "caution" not in out
    assert run_command(main, [str(a), str(b), "--effect", "0.3", "--protocol", "generate"]) == Exit.DATA
    assert "'generate'" in capsys.readouterr().err


def seeded(seed):
    return lambda manifest: manifest.training.seeds.update(init=seed, data=seed, anchors=seed)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    """Five seeds of two arms over 40 prompts: seeds differ by half a token, prompts by two."""
    root, rng = tmp_path_factory.mktemp("pilot"), np.random.default_rng(3)
    base, runs = rng.integers(0, 3, 40), {"a": [], "b": []}
    for seed in range(5):
        of_seed = rng.integers(0, 2)
        for arm in "ab":
            extra = rng.integers(0, 3, 40) + (of_seed if arm == "b" else 0)
            rows = prompts_of((base + extra).tolist())
            runs[arm].append(write_run(root / f"{arm}{seed}", rows, change=seeded(seed), **BARE))
    return [[*map(str, runs["a"])], [*map(str, runs["b"])]]


def test_the_cheapest_mix_of_trainings_and_prompts(trainings, tmp_path, capsys):
    a, b = trainings
    argv = [*a, "--vs", *b, "--effect", "0.8", "--cost-training", "50", "--cost-prompt", "0.1"]
    assert run_command(main, [*argv, "--out", str(tmp_path / "plan")]) == Exit.OK
    out = capsys.readouterr().out
    rows = pd.read_csv(tmp_path / "plan" / "plan.csv")
    best = rows.loc[rows["cost"].idxmin()]
    assert f"Cheapest: {best['seeds']:.0f} seeds" in out and f"{best['prompts']:,.0f} prompts" in out
    assert (rows["power"] >= 0.8).all() and (rows["seeds"] >= 5).all()
    assert (rows["cost"] - 2 * rows["seeds"] * (50 + 0.1 * rows["prompts"])).abs().max() < 1e-3
    assert {p.name for p in (tmp_path / "plan").iterdir()} == {"plan.png", "plan.svg", "plan.csv"}
    assert run_command(main, [*argv[:-1], "10"]) == Exit.OK  # dear prompts: more seeds, fewer prompts
    dear = capsys.readouterr().out.split("Cheapest: ")[1].split(" seeds")[0]
    assert int(dear) >= best["seeds"]


def test_a_pilot_without_variance_is_refused(tmp_path, capsys):
    rows = prompts_of([1, 2, 3], clusters=[0, 0, 1])
    few = [write_run(tmp_path / str(i), rows, change=seeded(i), **BARE) for i in (7, 8)]
    argv = [*map(str, few), "--vs", str(few[0]), "--effect", "1", "--cost-training", "1", "--cost-prompt", "1"]
    assert run_command(main, argv) == Exit.DATA
    assert "the pilot has no variance to plan from" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--cost-training", "1"],
        ["--cost-prompt", "1"],
        ["--cost-training", "-1", "--cost-prompt", "1"],
        ["--cost-training", "0", "--cost-prompt", "0"],
    ],
)
def test_plans_require_costs(trainings, options):
    a, b = trainings
    assert run_command(main, [*a, "--vs", *b, "--effect", "1", *options]) == Exit.USAGE


@pytest.mark.parametrize(
    "options",
    [
        ["--effect", "0"],
        ["--effect", "nan"],
        ["--effect", "1", "--power", "1"],
        ["--effect", "1", "--cost-training", "1"],
        ["--effect", "1", "--out", "folder"],
        ["third", "--effect", "1"],
        [],
    ],
)
def test_wrong_calls(tmp_path, capsys, options):
    a, b = two_runs(tmp_path, [1, 2], [2, 3], **BARE)
    try:
        code = run_command(main, [str(a), str(b), *options])
    except SystemExit as error:
        code = error.code
    assert code == Exit.USAGE
