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
        assert (found.verdicts or 0) <= 0.2, found
        assert found.covered is None or found.covered >= 0.8, found


def test_a_real_difference_has_verdicts(calibration):
    # a calibration that never sees a verdict would prove nothing
    power = calibration.Scenario("power", "", calibration.iid(100, 0.5, 0.7), null=True)
    assert calibration.simulate(power, 40, 0).verdicts > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("number", range(12))
def test_promises_are_kept_over_20000_studies(calibration, number):
    scenario = calibration.SCENARIOS[number]
    found = calibration.simulate(scenario, calibration.STUDIES, 1000 + number)
    print(found)
    assert found.passed, found
