"""A full factorial of arms: effects by hand, what is refused, the report."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import statsmodels.api as sm
import yaml

from analysis.commands import compare, report
from analysis.comparison.factorial import compare_factorial
from analysis.errors import DataError, UsageError, run_command
from analysis.report.result_schema import json_schema
from analysis.runlog.reading import Run
from tests.analysis.runs import prompts_of, write_run

AXES = {"fusion": ("concat", "gated"), "mixing": ("none", "conv"), "selection": ("argmax", "path")}
PROMPTS = 240
jsonschema = pytest.importorskip("jsonschema")


def accepted(levels, rng, effects):
    """Accepted lengths of one run: a prompt's own level, and ``effects`` of combinations of second levels."""
    high = [level == AXES[axis][1] for axis, level in zip(AXES, levels, strict=True)]
    shift = sum(size for axes, size in effects.items() if all(high[list(AXES).index(a)] for a in axes))
    base = np.random.default_rng(5).poisson(2.0, PROMPTS)
    return np.clip(base + rng.poisson(max(shift, 0.0), PROMPTS), 0, 7)


def factorial(root, effects, axes=AXES, seeds=(0,), **more):
    rng = np.random.default_rng(1)
    folders = []
    for levels in itertools.product(*axes.values()):
        for seed in seeds:
            levels_of = dict(zip(axes, levels, strict=True))
            values = accepted([levels_of.get(a, AXES[a][0]) for a in AXES], rng, effects)

            def change(m, levels_of=levels_of, seed=seed):
                m.drafter.config.update(levels_of)
                m.training.seeds = {"init": seed, "data": seed, "anchors": seed}
                m.label = "-".join(levels_of.values())

            name = "-".join((*levels, str(seed)))
            prompts = prompts_of(values.tolist(), [i // 2 for i in range(PROMPTS)])
            folders.append(write_run(root / name, prompts, gates=False, history=False, change=change, **more))
    return folders


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return factorial(tmp_path_factory.mktemp("f"), {("mixing",): 0.4, ("selection",): 0.8, ("mixing", "selection"): 1})


def values_of(runs):
    """(cells, prompts), and levels of the cells as 0 and 1."""
    table = []
    for run in runs:
        steps = Run.open(run).read("acceptance").to_pandas().sort_values("prompt_id")
        table.append(1 + steps["accepted"].to_numpy())
    return np.array(table, dtype=float), np.array(list(itertools.product((0, 1), repeat=3)))


def test_effects_are_the_coefficients_of_a_regression(runs):
    found = compare_factorial(runs)
    values, levels = values_of(runs)
    clusters = np.tile([i // 2 for i in range(PROMPTS)], 8)
    signs = np.repeat(levels * 2 - 1, PROMPTS, axis=0)
    order = [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
    design = sm.add_constant(np.column_stack([signs[:, list(axes)].prod(axis=1) for axes in order]))
    fit = sm.OLS(values.ravel(), design).fit(cov_type="cluster", cov_kwds={"groups": clusters})
    assert [len(effect.factors) for effect in found.effects] == [1, 1, 1, 2, 2, 2, 3]
    for effect, axes, coefficient, se in zip(found.effects, order, fit.params[1:], fit.bse[1:], strict=True):
        # coded -1 and 1, a coefficient is half of a main effect, a quarter of a difference of differences, ...
        scale = 2 ** len(axes)
        assert effect.estimate.estimate == pytest.approx(scale * coefficient, abs=1e-9)
        assert effect.estimate.se == pytest.approx(scale * se, rel=0.03)  # other corrections for few clusters


def test_what_was_put_in_comes_out(runs):
    found = compare_factorial(runs)
    effects = {effect.factors: effect.estimate for effect in found.effects}
    assert {names for names, e in effects.items() if e.p_adjusted < 0.05} == {
        ("mixing",),
        ("selection",),
        ("mixing", "selection"),
    }
    assert effects["mixing", "selection"].lo < 1 < effects["mixing", "selection"].hi
    assert {e.family_size for e in effects.values()} == {7}
    assert [factor.low for factor in found.factors] == ["concat", "none", "argmax"]
    assert (found.seeds, found.prompts, found.clusters) == (1, PROMPTS, PROMPTS // 2)
    assert "one-seed-per-cell" in {c.code for c in found.cautions}
    means = {cell.levels: cell.mean for cell in found.cells}
    assert means["gated", "conv", "path"] == pytest.approx(values_of(runs)[0][7].mean())


def test_ties_are_those_of_the_counts(tmp_path):
    """Whole answers: linearised ratios differ where the counts do not."""
    rng = np.random.default_rng(3)
    base = [rng.integers(0, 4, 5).tolist() for _ in range(30)]
    folders = []
    for mixing, selection in itertools.product(*(AXES[name] for name in ("mixing", "selection"))):
        steps = [list(row) for row in base]
        for row in steps[:5]:
            row[0] += (mixing == "conv") + (selection == "path")

        def change(m, mixing=mixing, selection=selection):
            m.drafter.config.update(mixing=mixing, selection=selection)

        made = prompts_of(steps)
        name = f"{mixing}-{selection}"
        folders.append(write_run(tmp_path / name, made, protocol="generate", gates=False, history=False, change=change))
    found = compare_factorial(folders)
    assert [e.estimate.n_differ for e in found.effects] == [5, 5, 5] and found.effects[0].estimate.n_zero == 25
    assert found.effects[0].estimate.mean_a is not None and found.effects[2].estimate.mean_a is None


def test_an_interaction_is_tied_where_one_axis_changes_nothing(tmp_path):
    """Mixing changes every answer, selection three of them: both together change no other."""
    for protocol, blocks in (("prefix", 1), ("generate", 4)):
        base, folders = np.random.default_rng(6).integers(0, 4, (30, blocks)), []
        for mixing, selection in itertools.product(*(AXES[name] for name in ("mixing", "selection"))):
            steps = base + (mixing == "conv")
            steps[:3, 0] += (selection == "path") * (1 + (mixing == "conv"))

            def change(m, mixing=mixing, selection=selection):
                m.drafter.config.update(mixing=mixing, selection=selection)

            rows = prompts_of(steps[:, 0].tolist() if blocks == 1 else steps.tolist())
            folder = tmp_path / f"{protocol}-{mixing}-{selection}"
            folders.append(write_run(folder, rows, protocol=protocol, gates=False, history=False, change=change))
        effects = compare_factorial(folders).effects
        assert [e.estimate.n_differ for e in effects] == [30, 3, 3]
        assert "few-differ" in {c.code for c in effects[2].estimate.cautions}


def test_the_first_run_says_which_level_comes_first(runs):
    found = compare_factorial(runs[::-1])
    assert [factor.low for factor in found.factors] == ["gated", "conv", "path"]
    forwards = {effect.factors: effect.estimate.estimate for effect in compare_factorial(runs).effects}
    for effect in found.effects:
        sign = (-1) ** len(effect.factors)
        assert effect.estimate.estimate == pytest.approx(sign * forwards[effect.factors])


def test_seeds_are_crossed_with_prompts(tmp_path):
    axes = {name: AXES[name] for name in ("mixing", "selection")}
    several = factorial(tmp_path, {("selection",): 1}, axes, seeds=(0, 1, 2, 3, 4))
    found = compare_factorial(several)
    assert found.seeds == 5 and "one-seed-per-cell" not in {c.code for c in found.cautions}
    path = found.effects[1].estimate
    assert path.method.name.startswith("CROSSED") and path.verdict == "B better"
    three = [run for run in several if run.name[-1] in "012"]
    assert compare_factorial(three).effects[1].estimate.verdict == "inconclusive"  # too few seeds for a verdict


@pytest.mark.parametrize(
    ("pick", "message"),
    [
        (lambda runs: runs[:7], "the cell fusion gated, mixing conv, selection path has seeds none"),
        (lambda runs: [*runs, runs[0]], "seeds 0, 0"),
        (lambda runs: [runs[0]] * 4, "differ in none of"),
    ],
)
def test_what_is_no_factorial_is_refused(runs, pick, message):
    with pytest.raises(DataError, match=message):
        compare_factorial(pick(runs))
    with pytest.raises(UsageError, match="at least four"):
        compare_factorial(runs[:3])


def test_a_third_level_is_named(runs, tmp_path):
    def change(m):
        m.drafter.config["selection"] = "markov"

    third = write_run(tmp_path / "markov", prompts_of([1, 2]), gates=False, history=False, change=change)
    with pytest.raises(DataError, match=r"selection has 3 levels \(argmax, path, markov\)"):
        compare_factorial([*runs, third])


def test_command_and_plan_write_the_report(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = [str(run) for run in runs]
    assert compare.main([*names, "--factorial", "--out", "out"]) == 0
    printed = capsys.readouterr().out
    assert "Main effects on mean accepted length: " in printed
    assert "The interaction mixing x selection is positive" in printed
    assert (tmp_path / "out/figures/effects.png").exists()
    result = json.loads((tmp_path / "out/result.json").read_text())
    jsonschema.validate(result, json_schema())
    assert result["kind"] == "factorial" and len(result["effects"]) == 7
    plan = {"comparisons": [], "factorials": [{"runs": names, "folder": "family", "name": "Axes", "question": "Why?"}]}
    Path("plan.yaml").write_text(yaml.safe_dump(plan))
    assert report.main(["plan.yaml"]) == 0
    text = Path("family/report.md").read_text()
    assert text.startswith("# Axes\n\n*Why?*") and "| mixing x selection |" in text
    found = compare_factorial(runs)
    assert "Main effects" in repr(found) and found.save(tmp_path / "saved").exists()
    assert run_command(compare.main, [*names, "--factorial", "--margin", "0.1"]) == 64
    assert "--margin cannot be combined with --factorial" in capsys.readouterr().err
