"""Controls of a gated arm: what is lost without the dynamics, and what may be said of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.comparison.pairwise import compare_runs
from analysis.measures.controls import kind_of
from analysis.report.answers import _dynamics, answers
from analysis.report.sections.gates import strangers
from analysis.runlog.reading import Run
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
    assert "no sign here that the dynamics matter" in answer(runs, "frozen", "static")
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


B, A, NONE, SAME = Verdict.B_BETTER, Verdict.A_BETTER, Verdict.INCONCLUSIVE, Verdict.IDENTICAL
SIGN, MATTER = "no sign here", "the dynamics matter here"
TRUTH = [
    # frozen, shuffled, static, other: what is said, and what is not
    ([], [], [], [B], [""], ["control", "sign"]),
    ([], [], [], [A, NONE], [""], ["sign"]),
    ([NONE], [], [], [], ["its gate frozen is not told from B: no sign here that it gains by moving"], ["static"]),
    ([NONE], [SAME], [], [B], ["its gate frozen or shuffled is not told from B", SIGN], ["harm", "better"]),
    ([B], [], [], [], ["needs its movement", "overstates", "Only an arm trained"], [SIGN]),
    ([B], [B], [], [], ["needs its movement", "overstates", "Only an arm trained"], [SIGN]),
    ([NONE], [B], [], [], ["other tokens harm B", "Held still it costs B nothing", "Only an arm trained"], ["needs"]),
    ([], [B], [], [], ["other tokens harm B", "Only an arm trained"], ["Held still", "needs"]),
    ([A], [B], [], [], ["other tokens harm B", "Held still it helps"], ["needs", SIGN]),
    ([A], [], [], [], ["better with its gate frozen: the movement of its gate is no gain"], [SIGN, "not told"]),
    ([A], [A], [], [], ["better with its gate frozen or shuffled"], [SIGN]),
    ([NONE], [A], [], [], ["better with its gate shuffled"], ["frozen"]),
    ([B, NONE], [], [], [], ["Controls of one kind do not agree"], ["needs", SIGN]),
    ([], [], [B], [], [MATTER, "one training of each"], ["do not agree", SIGN]),
    ([], [], [A], [], ["trained with a static gate is better than B: the dynamics are no gain"], [SIGN, MATTER]),
    ([], [], [NONE], [], ["not told from an arm trained with a static gate: no sign here"], [MATTER]),
    ([], [], [B, A], [], ["static gate do not agree"], [MATTER, SIGN]),
    ([], [], [B, NONE], [], ["static gate do not agree"], [MATTER, SIGN]),
    ([NONE], [], [B], [], ["These do not agree", "hardly what sets B above that arm"], [MATTER, SIGN]),
    ([A], [NONE], [B], [], ["These do not agree"], [MATTER]),
    ([B], [], [B], [], ["needs its movement", MATTER], ["do not agree", "Only"]),
    ([B], [NONE], [A], [], ["needs its movement", "the dynamics are no gain"], [MATTER, "Only"]),
    ([B], [], [NONE], [], ["needs its movement", "overstates", "no sign here that the dynamics matter"], [MATTER]),
    ([NONE], [NONE], [NONE], [], ["gains by moving", "the dynamics matter"], [MATTER, "agree"]),
]


@pytest.mark.parametrize("row", TRUTH, ids=str)
def test_what_controls_say_together(runs, row):
    (made,) = compare_runs(runs["a"], runs["b"], controls=[runs["frozen"]]).controls
    *groups, said, unsaid = row
    controls = [
        replace(made, kind=kind, lost=replace(made.lost, verdict=verdict))
        for kind, verdicts in zip(("frozen", "shuffled", "static", "other"), groups, strict=True)
        for verdict in verdicts
    ]
    for order in (controls, controls[::-1]):
        text = _dynamics(order)
        assert all(part in text for part in said), text
        assert not any(part in text for part in unsaid), text
        assert (text == "") == (said == [""])
    # of another's weights, a frozen or shuffled gate says nothing of B's
    others = [replace(c, of_b=False) for c in controls if c.kind in ("frozen", "shuffled")]
    assert _dynamics(others) == ""


def test_a_frozen_gate_of_other_weights_is_named(runs, tmp_path):
    stranger = arm(tmp_path, "stranger", BASE, variant("gate frozen", parent="other"))
    comparison = compare_runs(runs["a"], runs["b"], controls=[stranger, runs["frozen"]])
    (text,) = strangers(comparison)
    assert "is not recorded as a variant of b" in text
    assert kind_of(Run.open(runs["a"]).manifest) == "other"
