"""The difference against properties of the prompts."""

import numpy as np
import pytest
import statsmodels.formula.api as smf

from analysis.comparison.pairwise import compare_runs
from analysis.measures.explained import explained
from analysis.runlog.load import load
from analysis.runlog.pairing import pair
from analysis.runlog.reading import Run
from tests.analysis.runs import prompts_of, write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """300 prompts of two data sets; B gains one token on prompts of many tokens."""
    root, rng = tmp_path_factory.mktemp("explained"), np.random.default_rng(0)
    lengths = rng.integers(20, 400, 300)
    a = rng.poisson(2.0, 300).clip(max=6)
    b = a + (lengths > 200)
    found = []
    for name, values in (("a", a), ("b", b)):
        prompts = prompts_of(values.tolist(), [i // 3 for i in range(300)])
        for i, prompt in enumerate(prompts):
            prompt |= {"dataset": "sums" if i < 150 else "words", "prompt_tokens": int(lengths[i])}
        found.append(write_run(root / name, prompts, gates=False, history=False))
    return found, lengths, b - a


def test_a_slope_is_that_of_a_regression_with_an_intercept_per_data_set(runs):
    (a, b), lengths, gain = runs
    first = load(Run.open(a), "prefix")
    found = {x.name: x for x in explained(first, pair(first, load(Run.open(b), "prefix")))}
    x = np.log2(lengths)
    frame = {"gain": gain, "x": x / x.std(ddof=1), "dataset": np.repeat(["sums", "words"], 150)}
    groups = np.repeat(np.arange(100), 3)
    fit = smf.ols("gain ~ x + C(dataset)", frame).fit(cov_type="cluster", cov_kwds={"groups": groups})
    one = found["log2 of prompt tokens"]
    assert one.slope == pytest.approx(fit.params["x"])
    assert (one.hi - one.lo) / 2 == pytest.approx(1.96 * fit.bse["x"], rel=0.1)
    assert one.significant and one.p_adjusted < 1e-6 and one.n_pairs == 300


def test_the_report_says_what_goes_with_the_difference(runs):
    (a, b), _, _ = runs
    found = compare_runs(a, b)
    text = found.to_markdown()
    assert "| log2 of prompt tokens | +" in text
    assert "B - A rises with log2 of prompt tokens." in text
    back = compare_runs(b, a)
    assert back.explained[0].slope == pytest.approx(-found.explained[0].slope)


def test_unknown_properties_are_left_out(tmp_path):
    found = []
    for name, values in (("a", [1, 2, 3, 1]), ("b", [2, 2, 1, 1])):
        prompts = prompts_of(values)
        prompts[0]["prompt_tokens"] = None
        found.append(write_run(tmp_path / name, prompts, gates=False, history=False))
    assert "log2 of prompt tokens" not in {x.name for x in compare_runs(*found).explained}
