"""The sentences of a conclusion say what is so, for data of every kind."""

from __future__ import annotations

import pytest

from analysis.comparison.pairwise import compare_runs
from analysis.report.answers import answers, headline
from tests.analysis.runs import prompts_of, two_runs, write_run

BARE = {"gates": False, "history": False}
NEXT = "What would change our mind?"


def told(comparison):
    return dict(answers(comparison))


# --- identical runs --------------------------------------------------------------------------------------------


def test_identical_runs(tmp_path):
    rows = [
        *prompts_of([1, 2, 3] * 10),
        *({**p, "prompt_id": f"x{i}"} for i, p in enumerate(prompts_of([0] * 40, dataset="x"))),
    ]
    a, b = (write_run(tmp_path / name, rows, **BARE) for name in "ab")
    found = told(compare_runs(a, b))
    assert headline(compare_runs(a, b)) == (
        "a (A) and b (B) are identical here: mean accepted length 1.857 tokens in both, equal on each of 70 prompts in "
        "40 clusters."
    )
    assert found["Is B better?"] == "Identical: equal on each of 70 prompts in 40 clusters."
    assert found["By how much?"] == "1.857 tokens in both."
    assert found["On which data sets?"] == "The arms do not differ on any of them."
    assert found["How sure is this?"].startswith("There was nothing to test; 70 prompts, 40 clusters. ")
    assert found[NEXT].startswith("Prompts on which the arms differ at all: on these they cannot be told apart. To ")
    assert "No difference, however large" not in found[NEXT]


def test_a_run_against_itself_is_one_checkpoint_and_its_arms_are_named_once(tmp_path):
    run = write_run(tmp_path / "one", prompts_of([1, 2, 3]), **BARE)
    itself = compare_runs(run, run, margin=0.5)
    assert headline(itself).startswith("DFlash (A) and DFlash (B) are identical here: ")
    assert told(itself)[NEXT].startswith(
        "Both runs are of one checkpoint, so no difference was to be expected. Several"
    )
    assert "state a margin" not in told(itself)[NEXT]  # one was


def test_without_spread_no_detectable_difference_is_spoken_of(tmp_path):
    found = told(compare_runs(*two_runs(tmp_path, [1] * 8, [2] * 8, **BARE)))
    assert found["Is B better?"].startswith("B better: a difference of +1.000 (")
    assert "could have been found" not in found[NEXT] and "would have been found" not in found[NEXT]


def test_a_test_that_cannot_reject_could_have_found_nothing(tmp_path):
    for clusters in (None, [0] * 5):
        found = told(compare_runs(*two_runs(tmp_path, [1, 2, 3, 1, 2], [2, 2, 3, 1, 1], clusters, **BARE)))
        assert found["Is B better?"].startswith("Inconclusive: a difference of 0.000 (")
        assert found[NEXT].startswith("No difference, however large, could have been found with these data.")
    assert found["How sure is this?"].startswith("No test is possible; 5 prompts, 1 cluster. ")


def test_what_few_differences_could_have_shown_is_left_open(tmp_path):
    d = [1] + [0] * 59  # one prompt of 60 differs: a test of 60 could reject, but its spread is not known
    found = told(compare_runs(*two_runs(tmp_path, [3] * 60, [3 + x for x in d], **BARE)))
    assert found[NEXT].startswith("What difference could have been found cannot be told: the arms differ on too few")
    assert "however large" not in found[NEXT]


# --- what next -------------------------------------------------------------------------------------------------


def test_no_number_of_prompts_is_drawn_from_the_difference_that_was_seen(tmp_path):
    d = [1, -1, 0, 0, 0, 0, 0, 1] * 5
    runs = two_runs(tmp_path, [3] * 40, [3 + x for x in d], **BARE)
    wanted = told(compare_runs(*runs))[NEXT]
    assert "wants about" not in wanted
    effect = float(wanted.split("--effect ")[1].split()[0])
    assert "--protocol prefix --metric accepted_length" in wanted and effect != pytest.approx(sum(d) / 40)
    equivalent = compare_runs(*runs, margin=1.0)
    assert told(equivalent)["Is B better?"].startswith("Equivalent: ")
    assert "analysis.power" not in told(equivalent)[NEXT]
