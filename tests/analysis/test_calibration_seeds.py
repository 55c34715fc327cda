"""Verdicts over seeds and prompts in simulated studies: a short look; the command takes minutes."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def calibration():
    spec = importlib.util.spec_from_file_location("calibration_seeds", ROOT / "benchmarks" / "calibration_seeds.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def layout(calibration, name, seeds=5, datasets=1):
    return next(x for x in calibration.LAYOUTS if (x.name, x.seeds, x.datasets) == (name, seeds, datasets))


def test_the_variance_is_that_of_the_studies(calibration):
    for name in ("one cluster of half the prompts, all", "arms not paired, all"):
        found, rng = layout(calibration, name), np.random.default_rng(0)
        means = [b.mean() - a.mean() for a, b in (found.draw(rng) for _ in range(600))]
        assert np.var(means) == pytest.approx(found.variance, rel=0.2)


def test_families_of_data_sets(calibration):
    row = calibration.simulate(layout(calibration, "by data set", datasets=6), 50, 0)
    assert row.before > 15
    assert row.false <= 12


def test_dominated_clusters(calibration):
    row = calibration.simulate(layout(calibration, "one cluster of half the prompts, prompts"), 100, 1)
    assert row.before > 15
    assert row.false <= 12


def test_few_clusters_and_few_seeds_have_no_verdict(calibration):
    few = calibration.simulate(layout(calibration, "three unequal clusters"), 20, 2)
    three = calibration.simulate(layout(calibration, "equal clusters, all", seeds=3), 40, 3)
    assert (few.refused, few.false) == (100, 0)
    assert (three.refused, three.false) == (100, 0)
    assert three.covered >= 85


def test_a_real_difference_is_found(calibration):
    row = calibration.simulate(layout(calibration, "equal clusters, prompts"), 60, 4)
    assert row.oracle > 60
    assert row.power > 60
    certain = replace(layout(calibration, "equal clusters, all"), of_seeds=0.0, of_prompts=1e-6, of_both=0.0)
    assert calibration.simulate(certain, 40, 5).power > 30
