"""The headline against one axis: steps, slopes, what is refused, the report."""

import json

import numpy as np
import pytest
from scipy import stats

from analysis.commands import scaling
from analysis.comparison.scaling import compare_scaling
from analysis.errors import DataError, UsageError, run_command
from analysis.report.result_schema import json_schema
from analysis.runlog.reading import Run
from analysis.stats.families import holm
from tests.analysis.runs import prompts_of, write_run

PROMPTS = 120
DEPTHS = (1, 2, 4)
jsonschema = pytest.importorskip("jsonschema")


def a_run(folder, values, **changes):
    def change(m):
        m.drafter.config.update({"num_layers": 2, "target_layer_ids": [1, 3], "block_size": 8} | changes)
        m.drafter.parameters = {"total": 1000 * changes.get("num_layers", 2)}
        m.training.settings["training"] = {"batch": 4, "accumulate": 1, "anchors": 16, "share": changes.get("share", 1)}
        m.training.examples, m.training.steps = 1000, changes.get("steps", 300)
        m.label = folder.name

    return write_run(folder, prompts_of(values.tolist()), gates=False, history=False, change=change)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """concat gains half a token per doubling of depth, layerwise nothing."""
    root, rng = tmp_path_factory.mktemp("depth"), np.random.default_rng(0)
    base = rng.poisson(2.0, PROMPTS)
    found = []
    for fusion, gain in (("concat", 0.5), ("layerwise", 0.0)):
        for depth in DEPTHS:
            values = np.clip(base + rng.poisson(gain * np.log2(depth) + 0.3, PROMPTS), 0, 7)
            found.append(a_run(root / f"{fusion}-{depth}", values, fusion=fusion, num_layers=depth))
    return found


def accepted(run):
    return 1 + Run.open(run).read("acceptance").to_pandas().sort_values("prompt_id")["accepted"].to_numpy()


def test_series_are_runs_that_are_equal_but_for_the_axis(runs):
    found = compare_scaling(runs[::-1], "depth")
    assert {s.name for s in found.series} == {"concat", "layerwise"}  # what they share is not named
    for series in found.series:
        assert [p.level for p in series.points] == [1, 2, 4]  # in the order of the levels, whatever that of the runs
        assert len(series.steps) == 2
    assert (found.prompts, found.clusters) == (PROMPTS, PROMPTS)


def test_the_slope_is_the_mean_of_the_prompts_own_slopes(runs):
    concat = next(s for s in compare_scaling(runs, "depth").series if s.name.startswith("concat"))
    values = np.array([accepted(run) for run in runs[:3]])
    slopes = [np.polyfit([0, 1, 2], column, 1)[0] for column in values.T]
    assert concat.slope.estimate == pytest.approx(np.mean(slopes))
    interval = stats.t.interval(0.95, PROMPTS - 1, np.mean(slopes), stats.sem(slopes))
    assert (concat.slope.lo, concat.slope.hi) == pytest.approx(interval, rel=0.05)
    assert concat.slope.verdict == "B better"


def test_steps_are_one_family(runs):
    found = compare_scaling(runs, "depth")
    steps = [step for series in found.series for step in series.steps]
    assert [s.p_adjusted for s in steps] == pytest.approx(holm([s.p for s in steps]))
    first = accepted(runs[1]) - accepted(runs[0])
    assert steps[0].estimate == pytest.approx(first.mean())
    assert {s.family_size for s in steps} == {4}


def test_ties_of_a_slope_cancel_in_integers(tmp_path):
    base = np.random.default_rng(3).integers(0, 3, 40)
    # per doubling: ten prompts gain nothing (up, then down again), five nothing at all, the others one token
    values = {1: base.copy(), 2: base + 1, 4: base + 2}
    values[4][:10] = base[:10]
    values[2][10:15] = values[4][10:15] = base[10:15]
    runs = [a_run(tmp_path / str(depth), x, num_layers=depth) for depth, x in values.items()]
    (series,) = compare_scaling(runs, "depth").series
    assert (series.slope.n_zero, series.slope.n_differ) == (15, 25)
    assert [step.n_zero for step in series.steps] == [5, 5]


def test_other_axes(tmp_path):
    rng = np.random.default_rng(1)
    for name, changes in (("few", {"share": 0.25}), ("all", {"share": 1.0}), ("wide", {"target_layer_ids": [0, 1, 2]})):
        a_run(tmp_path / name, rng.poisson(2.0, 30), **changes)
    few, everything, wide = (tmp_path / name for name in ("few", "all", "wide"))
    assert [p.level for p in compare_scaling([few, everything], "examples").series[0].points] == [250, 1000]
    assert [p.level for p in compare_scaling([everything, wide], "target-layers").series[0].points] == [2, 3]
    assert compare_scaling([everything, wide], "target-layers").series[0].slope is None  # two points make no curve
    deep = a_run(tmp_path / "deep", rng.poisson(2.0, 30), num_layers=4)
    assert len(compare_scaling([everything, deep], "depth").series[0].steps) == 1
    long = a_run(tmp_path / "long", rng.poisson(2.0, 30), steps=600)
    # 6 operations x 2,000 parameters x (4 x 16 blocks of 8) x steps
    levels = [p.level for p in compare_scaling([everything, long], "compute").series[0].points]
    assert levels == [6 * 2000 * 512 * 300, 6 * 2000 * 512 * 600]


def test_neighbours_that_differ_in_more_than_the_axis_are_named(tmp_path):
    rng = np.random.default_rng(2)
    one = a_run(tmp_path / "one", rng.poisson(2.0, 30), num_layers=1)
    longer = a_run(tmp_path / "longer", rng.poisson(2.0, 30), num_layers=4, steps=600)
    (said,) = [c.text for c in compare_scaling([one, longer], "depth").cautions if c.code == "steps-differs"]
    assert said.startswith("one and longer: ") and "300" in said and "600" in said


def test_what_cannot_be_put_on_an_axis_is_refused(runs, tmp_path):
    with pytest.raises(UsageError, match="unknown axis 'size'; choose from depth"):
        compare_scaling(runs, "size")
    with pytest.raises(UsageError, match="at least two"):
        compare_scaling(runs[:1], "depth")
    with pytest.raises(DataError, match="are of one series at 1 draft layers"):
        compare_scaling([*runs, runs[0]], "depth")
    with pytest.raises(DataError, match="no two of the runs differ in target-layers alone"):
        compare_scaling([runs[0], runs[3]], "target-layers")

    def forget(m):
        m.drafter.config.pop("num_layers", None)

    bare = write_run(tmp_path / "bare", prompts_of([1, 2]), gates=False, history=False, change=forget)
    with pytest.raises(DataError, match="does not record its draft layers"):
        compare_scaling([bare, runs[0]], "depth")


def test_command_writes_the_report(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert scaling.main([*map(str, runs), "--over", "depth", "--out", "out"]) == 0
    printed = capsys.readouterr().out
    assert "Mean accepted length against draft layers: concat +" in printed
    assert "Every level was trained once" in printed
    result = json.loads((tmp_path / "out/result.json").read_text())
    jsonschema.validate(result, json_schema())
    text = (tmp_path / "out/report.md").read_text()
    assert "| concat | 1 to 2 |" in text and (tmp_path / "out/figures/scaling.png").exists()
    assert "against draft layers" in repr(compare_scaling(runs, "depth"))
    assert run_command(scaling.main, [*map(str, runs), "--over", "width"]) == 64
    assert "unknown axis" in capsys.readouterr().err
