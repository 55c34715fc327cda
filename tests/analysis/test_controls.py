"""Controls of a gated arm: what is lost without the dynamics, and what may be said of it."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.answers import answers
from analysis.comparison import compare_runs
from analysis.controls import kind_of
from analysis.gate_sections import strangers
from analysis.runlog import Run
from analysis.wording import Verdict
from tests.analysis.runs import prompts_of, write_run

BARE = {"gates": False, "history": False}
RNG = np.random.default_rng(0)
BASE = RNG.integers(0, 4, 120)


def variant(kind, parent="b"):
    def change(manifest):
        manifest.variant, manifest.parent = kind, parent

    return change


def static(manifest):
    manifest.drafter.config["gate_input"] = "none"


def arm(root, name, accepted, change=None, fusion="gated"):
    return write_run(root / name, prompts_of(accepted.tolist()), fusion=fusion, change=change, **BARE)


@pytest.fixture
def runs(tmp_path):
    """A; B, better by one token on three prompts of four; frozen keeps nothing, shuffled half, static all of it."""
    gain = (np.arange(120) % 4 != 0).astype(int)
    half = gain * (np.arange(120) % 2)
    return {
        "a": arm(tmp_path, "a", BASE, fusion="concat"),
        "b": arm(tmp_path, "b", BASE + gain),
        "frozen": arm(tmp_path, "frozen", BASE, variant("gate frozen")),
        "shuffled": arm(tmp_path, "shuffled", BASE + half, variant("gate shuffled")),
        "static": arm(tmp_path, "static", BASE + gain, static),
    }


def test_each_control_is_compared_with_both_arms(runs):
    found = compare_runs(runs["a"], runs["b"], controls=[runs["frozen"], runs["shuffled"], runs["static"]]).controls
    assert [c.kind for c in found] == ["frozen", "shuffled", "static"]
    assert [c.of_b for c in found] == [True, True, False]
    assert [c.lost.estimate for c in found] == pytest.approx([0.75, 0.25, 0.0])
    assert [c.kept.estimate for c in found] == pytest.approx([0.0, 0.5, 0.75])
    assert [c.share for c in found] == pytest.approx([1.0, 1 / 3, 0.0])
    assert [c.lost.family_size for c in found] == [3, 3, 3]
    assert [c.lost.verdict for c in found] == [Verdict.B_BETTER, Verdict.B_BETTER, Verdict.IDENTICAL]


def test_the_share_has_the_interval_of_a_paired_ratio(runs):
    (control,) = compare_runs(runs["a"], runs["b"], controls=[runs["shuffled"]]).controls
    gain = (np.arange(120) % 4 != 0).astype(int)
    lost = gain * (np.arange(120) % 2 == 0)
    draws = np.random.default_rng(1).multinomial(120, np.full(120, 1 / 120), 4000)
    replicates = draws @ lost / (draws @ gain)
    assert (control.hi - control.lo) / 2 / 1.98 == pytest.approx(replicates.std(), rel=0.06)


def test_without_a_gain_there_is_no_share(runs):
    (control,) = compare_runs(runs["b"], runs["a"], controls=[runs["frozen"]]).controls
    assert control.share is control.lo is None


def answer(runs, *names):
    comparison = compare_runs(runs["a"], runs["b"], controls=[runs[n] for n in names])
    return dict(answers(comparison)).get("Is it the gate's dynamics, or only its mean?")


def test_the_answer_says_what_the_controls_can_bear(runs):
    assert "overstates" in answer(runs, "frozen")
    assert "overstates" in answer(runs, "frozen", "shuffled")
    assert "no sign that the dynamics matter" in answer(runs, "frozen", "static")
    assert answer(runs) is None  # no gate was logged


def test_a_gate_without_controls_cannot_be_told(tmp_path):
    a = write_run(tmp_path / "a", prompts_of([1, 2, 3]))
    b = write_run(tmp_path / "b", prompts_of([1, 2, 4]), fusion="gated")
    assert "cannot tell" in dict(answers(compare_runs(a, b)))["Is it the gate's dynamics, or only its mean?"]


def test_a_moving_gate_that_beats_a_static_one(runs, tmp_path):
    weak = arm(tmp_path, "weak", BASE, static)
    (control,) = compare_runs(runs["a"], runs["b"], controls=[weak]).controls
    assert (control.kind, control.lost.verdict) == ("static", Verdict.B_BETTER)
    runs["weak"] = weak
    assert "the dynamics matter here" in answer(runs, "weak")
    assert "the dynamics matter here" in answer(runs, "weak", "frozen")
    # worse than B when trained apart, but B itself loses nothing when its gate stops: no sign of the dynamics
    gain = (np.arange(120) % 4 != 0).astype(int)
    runs["still"] = arm(tmp_path, "still", BASE + gain, variant("frozen"))
    assert "These do not agree" in answer(runs, "weak", "still")


def test_a_frozen_gate_of_other_weights_is_named(runs, tmp_path):
    stranger = arm(tmp_path, "stranger", BASE, variant("gate frozen", parent="other"))
    comparison = compare_runs(runs["a"], runs["b"], controls=[stranger, runs["frozen"]])
    (text,) = strangers(comparison)
    assert "is not recorded as a variant of b" in text
    assert kind_of(Run.open(runs["a"]).manifest) == "other"
