"""Which questions a comparison answers, and what would change its conclusion, for data of every kind."""

from __future__ import annotations

import pytest

from analysis.comparison.pairwise import compare_runs
from analysis.report.answers import _NEXT, answers, next_steps
from analysis.wording import Verdict
from tests.analysis.runs import prompts_of, two_runs, write_run

BARE = {"gates": False, "history": False}


def topics(comparison):
    return [answer.topic for answer in answers(comparison)]


# --- identical runs --------------------------------------------------------------------------------------------


def test_identical_runs(tmp_path):
    rows = [
        *prompts_of([1, 2, 3] * 10),
        *({**p, "prompt_id": f"x{i}"} for i, p in enumerate(prompts_of([0] * 40, dataset="x"))),
    ]
    a, b = (write_run(tmp_path / name, rows, **BARE) for name in "ab")
    comparison = compare_runs(a, b)
    assert comparison.overall.verdict is Verdict.IDENTICAL
    assert (comparison.overall.n_pairs, comparison.overall.n_clusters) == (70, 40)
    assert topics(comparison) == ["better", "amount", "datasets", "certainty", "next"]
    assert next_steps(comparison) == ("prompts-that-differ", "margin", "seeds", "confirm")


def test_a_run_against_itself_is_one_checkpoint(tmp_path):
    run = write_run(tmp_path / "one", prompts_of([1, 2, 3]), **BARE)
    assert next_steps(compare_runs(run, run, margin=0.5)) == ("same-checkpoint", "seeds", "confirm")  # has a margin


# --- what the test could have detected -------------------------------------------------------------------------


def test_without_spread_no_detectable_difference_is_spoken_of(tmp_path):
    comparison = compare_runs(*two_runs(tmp_path, [1] * 8, [2] * 8, **BARE))
    assert (comparison.overall.verdict, comparison.overall.estimate) == (Verdict.B_BETTER, 1.0)
    assert next_steps(comparison) == ("seeds", "confirm")


@pytest.mark.parametrize("clusters", [None, [0] * 5])
def test_a_test_that_cannot_reject_could_have_detected_nothing(tmp_path, clusters):
    comparison = compare_runs(*two_runs(tmp_path, [1, 2, 3, 1, 2], [2, 2, 3, 1, 1], clusters, **BARE))
    assert (comparison.overall.verdict, comparison.overall.estimate) == (Verdict.INCONCLUSIVE, 0.0)
    assert next_steps(comparison)[0] == "nothing-detectable"


def test_what_few_differences_could_have_shown_is_left_open(tmp_path):
    d = [1] + [0] * 59  # one prompt of 60 differs: a test of 60 could reject, but its spread is not known
    comparison = compare_runs(*two_runs(tmp_path, [3] * 60, [3 + x for x in d], **BARE))
    assert next_steps(comparison)[0] == "detectable-unknown"


# --- what next -------------------------------------------------------------------------------------------------


def test_no_number_of_prompts_is_computed_from_the_observed_difference(tmp_path):
    d = [1, -1, 0, 0, 0, 0, 0, 1] * 5
    runs = two_runs(tmp_path, [3] * 40, [3 + x for x in d], **BARE)
    steps = next_steps(compare_runs(*runs))
    assert steps == ("detectable", "power", "margin", "seeds", "confirm")
    assert set(steps) <= set(_NEXT)
    (advice,) = [answer.text for answer in answers(compare_runs(*runs)) if answer.topic == "next"]
    effect = float(advice.split("--effect ")[1].split()[0])
    assert "--protocol prefix --metric accepted_length" in advice and effect != pytest.approx(sum(d) / 40)
    equivalent = compare_runs(*runs, margin=1.0)
    assert equivalent.overall.verdict is Verdict.EQUIVALENT
    assert "power" not in next_steps(equivalent)
