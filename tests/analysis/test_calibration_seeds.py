"""Verdicts over seeds and prompts in simulated studies: a short look; the command takes minutes."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import calibration_seeds as calibration


def layout(name, seeds=5, datasets=1):
    return next(x for x in calibration.LAYOUTS if (x.name, x.seeds, x.datasets) == (name, seeds, datasets))


def test_the_variance_is_that_of_the_studies():
    for name in ("one cluster of half the prompts, all", "arms not paired, all"):
        found, rng = layout(name), np.random.default_rng(0)
        means = [b.mean() - a.mean() for a, b in (found.draw(rng) for _ in range(600))]
        assert np.var(means) == pytest.approx(found.variance, rel=0.2)


def test_families_of_data_sets():
    row = calibration.simulate(layout("by data set", datasets=6), 50, 0)
    assert row.before > 15
    assert row.false <= 12


def test_dominated_clusters():
    row = calibration.simulate(layout("one cluster of half the prompts, prompts"), 100, 1)
    assert row.before > 15
    assert row.false <= 12


def test_few_clusters_and_few_seeds_have_no_verdict():
    few = calibration.simulate(layout("three unequal clusters"), 20, 2)
    three = calibration.simulate(layout("equal clusters, all", seeds=3), 40, 3)
    assert (few.refused, few.false) == (100, 0)
    assert (three.refused, three.false) == (100, 0)
    assert three.covered >= 85


def test_a_real_difference_is_found():
    row = calibration.simulate(layout("equal clusters, prompts"), 60, 4)
    assert row.oracle > 60
    assert row.power > 60
    certain = replace(layout("equal clusters, all"), of_seeds=0.0, of_prompts=1e-6, of_both=0.0)
    assert calibration.simulate(certain, 40, 5).power > 30


def test_the_command_prints_a_row_per_layout(capsys):
    assert calibration.main(["--studies", "5", "--rows", "7", "-1"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["name"] for row in found["rows"]] == ["equal clusters, prompts", "four unequal clusters"]
