"""Verdicts and intervals over simulated studies: a short look always, the whole of it under ``-m slow``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def calibration():
    spec = importlib.util.spec_from_file_location("calibration", ROOT / "benchmarks" / "calibration.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_scenario_runs_and_is_not_far_off(calibration):
    for seed, scenario in enumerate(calibration.SCENARIOS):
        found = calibration.simulate(scenario, 60, seed)
        if scenario.cautions:
            assert found.passed, found
        else:
            assert (found.verdicts or 0) <= 0.2, found
            assert found.covered is None or found.covered >= 0.8, found


def test_a_real_difference_has_verdicts(calibration):
    # a calibration that never sees a verdict would prove nothing
    power = calibration.Scenario("power", "", calibration.iid(100, 0.5, 0.7), calibration.DIFFERENT)
    assert calibration.simulate(power, 40, 0).verdicts > 0.9


def test_arms_well_inside_the_margin_are_equivalent(calibration):
    power = calibration.Scenario("power", "", calibration.rare_kind(600, 7, 1 / 70, 0.5), calibration.EQUIVALENT)
    assert calibration.simulate(power, 20, 0).verdicts > 0.9


def test_a_study_that_goes_wrong_without_its_caution_is_not_passed(calibration):
    few = calibration.two_valued(12, (-1, 7), 1 / 8)
    scenario = calibration.Scenario("few", "", few, calibration.DIFFERENT, cautions=("unheard-of",))
    found = calibration.simulate(scenario, 100, 0)
    assert found.unwarned > 0 and not found.passed


@pytest.mark.slow
@pytest.mark.parametrize("number", range(23))
def test_promises_are_kept_over_20000_studies(calibration, number):
    scenario = calibration.SCENARIOS[number]
    found = calibration.simulate(scenario, calibration.STUDIES, 1000 + number)
    print(found)
    assert found.passed, found


def test_lopsided_data_hold_their_promises_at_a_glance(monkeypatch):
    spec = importlib.util.spec_from_file_location("lopsided", ROOT / "benchmarks" / "calibration_lopsided.py")
    lopsided = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = lopsided
    spec.loader.exec_module(lopsided)
    monkeypatch.setattr(lopsided, "ORACLE", 30)
    for seed, row in enumerate(lopsided.ROWS):
        found = lopsided.run(row, 8, seed)
        assert found.unwarned <= 0.375, found
        assert found.refused > 0.5 or found.power > 0, found
