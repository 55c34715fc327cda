"""Controls of a gated arm: what is lost without the dynamics, and what may be said of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.comparison.pairwise import compare_runs
from analysis.measures.controls import kind_of, readings
from analysis.report.answers import _OF_CONTROLS, answers
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


def read(runs, *names):
    return readings(compare_runs(runs["a"], runs["b"], controls=[runs[n] for n in names]).controls)


def test_the_readings_are_what_the_controls_can_bear(runs):
    assert read(runs, "frozen") == read(runs, "frozen", "shuffled") == ("frozen-worse", "static-missing")
    assert read(runs, "frozen", "static") == ("frozen-worse", "static-unclear")
    assert read(runs) == ()


def test_the_question_of_the_dynamics_is_asked_where_a_gate_moves_or_a_control_was_run(runs, tmp_path):
    def topics(a, b, *controls):
        return [answer.topic for answer in answers(compare_runs(a, b, controls=controls))]

    assert "dynamics" not in topics(runs["a"], runs["b"])  # no gate was logged
    assert "dynamics" in topics(runs["a"], runs["b"], runs["frozen"])
    a = write_run(tmp_path / "x", prompts_of([1, 2, 3]))
    b = write_run(tmp_path / "y", prompts_of([1, 2, 4]), fusion="gated")
    assert "dynamics" in topics(a, b)


def test_a_moving_gate_that_beats_a_static_one(runs, tmp_path):
    runs["weak"] = weak = arm(tmp_path, "weak", BASE, static)
    (control,) = compare_runs(runs["a"], runs["b"], controls=[weak]).controls
    assert (control.kind, control.lost.verdict) == ("static", Verdict.B_BETTER)
    assert read(runs, "weak") == ("static-worse",)
    assert read(runs, "weak", "frozen") == ("frozen-worse", "static-worse")
    # worse than B when trained apart, but B itself loses nothing when its gate stops
    gain = (np.arange(120) % 4 != 0).astype(int)
    runs["still"] = arm(tmp_path, "still", BASE + gain, variant("frozen"))
    assert read(runs, "weak", "still") == ("conflict",)


B, A, NONE, SAME = Verdict.B_BETTER, Verdict.A_BETTER, Verdict.INCONCLUSIVE, Verdict.IDENTICAL
TRUTH = [
    # frozen, shuffled, static, other: codes
    ([], [], [], [B], ()),
    ([], [], [], [A, NONE], ()),
    ([NONE], [], [], [], ("frozen-unclear",)),
    ([], [NONE], [], [], ("shuffled-unclear",)),
    ([NONE], [SAME], [], [B], ("frozen-or-shuffled-unclear",)),
    ([B], [], [], [], ("frozen-worse", "static-missing")),
    ([B], [B], [], [], ("frozen-worse", "static-missing")),
    ([NONE], [B], [], [], ("shuffled-worse-frozen-unclear", "static-missing")),
    ([], [B], [], [], ("shuffled-worse", "static-missing")),
    ([A], [B], [], [], ("shuffled-worse-frozen-better", "static-missing")),
    ([A], [], [], [], ("frozen-better",)),
    ([A], [A], [], [], ("frozen-or-shuffled-better",)),
    ([NONE], [A], [], [], ("shuffled-better",)),
    ([B, NONE], [], [], [], ("own-mixed",)),
    ([], [], [B], [], ("static-worse",)),
    ([], [], [A], [], ("static-better",)),
    ([], [], [NONE], [], ("static-unclear",)),
    ([], [], [B, A], [], ("static-mixed",)),
    ([], [], [B, NONE], [], ("static-mixed",)),
    ([NONE], [], [B], [], ("conflict",)),
    ([A], [NONE], [B], [], ("conflict",)),
    ([B], [], [B], [], ("frozen-worse", "static-worse")),
    ([B], [NONE], [A], [], ("frozen-worse", "static-better")),
    ([B], [], [NONE], [], ("frozen-worse", "static-unclear")),
    ([NONE], [NONE], [NONE], [], ("frozen-or-shuffled-unclear", "static-unclear")),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Any control: the readings rest on its kind, its weights and its verdict."""
    root = tmp_path_factory.mktemp("runs")
    a, b = arm(root, "a", BASE, fusion="concat"), arm(root, "b", BASE)
    (control,) = compare_runs(a, b, controls=[arm(root, "frozen", BASE, variant("gate frozen"))]).controls
    return control


@pytest.mark.parametrize("row", TRUTH, ids=str)
def test_what_controls_say_together(made, row):
    *groups, codes = row
    controls = [
        replace(made, kind=kind, lost=replace(made.lost, verdict=verdict))
        for kind, verdicts in zip(("frozen", "shuffled", "static", "other"), groups, strict=True)
        for verdict in verdicts
    ]
    assert readings(controls) == readings(controls[::-1]) == codes
    assert set(codes) <= set(_OF_CONTROLS)
    # a frozen or shuffled gate of other weights has no reading for B
    assert readings([replace(c, of_b=False) for c in controls if c.kind in ("frozen", "shuffled")]) == ()


def test_a_frozen_gate_of_other_weights_is_named(runs, tmp_path):
    stranger = arm(tmp_path, "stranger", BASE, variant("gate frozen", parent="other"))
    comparison = compare_runs(runs["a"], runs["b"], controls=[stranger, runs["frozen"]])
    stranger_control, own = comparison.controls
    assert (stranger_control.of_b, own.of_b) == (False, True)
    (line,) = strangers(comparison)
    assert stranger_control.label in line
    assert kind_of(Run.open(runs["a"]).manifest) == "other"
