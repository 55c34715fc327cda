"""Runs under ``replay`` are compared like decoded ones, and whole answers come before first blocks."""

import pytest

from analysis.comparison.pairwise import compare_runs
from analysis.comparison.question import headline_of
from analysis.errors import UsageError
from analysis.runlog.reading import Run
from analysis.runlog.writing import RunWriter
from analysis.wording import TAU_MEAN, TAU_POOLED
from tests.analysis.runs import two_runs

A = [[1, 0, 2], [0, 3], [2, 2], [1, 1, 0, 2], [4], [0, 0, 1]]
B = [[2, 1], [1, 3], [3, 2], [1, 2, 1], [5], [0, 2]]


def with_other_rows(folder, other):
    """Add the rows of another run of the same arm, under its own protocol."""
    given = Run.open(other)
    writer = RunWriter.resume(folder)
    (part,) = given.manifest.evaluations
    for name in ("acceptance", "prompts", "gates", "gate_stats"):
        writer.append(name, given.read(name), part=part)
    writer.manifest.evaluations |= given.manifest.evaluations
    writer.commit()
    return folder


@pytest.fixture
def replayed(tmp_path):
    return two_runs(tmp_path, A, B, protocol="replay")


def test_tau_is_that_of_the_same_steps_decoded(tmp_path, replayed):
    decoded = two_runs(tmp_path / "decoded", A, B, protocol="generate")
    found, other = compare_runs(*replayed), compare_runs(*decoded)
    assert (found.protocol, found.estimand) == ("replay", TAU_POOLED)
    assert found.overall == other.overall
    assert [e.estimand for e in found.others] == [e.estimand for e in other.others]
    assert found.outputs.answers == other.outputs.answers
    assert found.outputs.a.checked == 0  # nothing was decoded, so nothing can be lossless


def test_whole_answers_come_first_and_each_metric_once(tmp_path, replayed):
    for protocol, counts in (("generate", (A, B)), ("prefix", ([1, 2, 3, 1, 2, 3], [2, 2, 3, 1, 2, 4]))):
        for folder, other in zip(replayed, two_runs(tmp_path / protocol, *counts, protocol=protocol), strict=True):
            with_other_rows(folder, other)
    a, b = map(Run.open, replayed)
    assert headline_of(a, b, None, None) == ("replay", TAU_POOLED)
    assert headline_of(a, b, None, "tau_mean") == ("replay", TAU_MEAN)
    assert headline_of(a, b, "generate", "tau_mean") == ("generate", TAU_MEAN)
    assert headline_of(a, b, None, "accepted_length")[0] == "prefix"
    with pytest.raises(UsageError, match="belongs to protocol replay or generate, not prefix"):
        headline_of(a, b, "prefix", "tau_mean")
    for protocol in (None, "generate", "prefix"):
        found = compare_runs(a, b, protocol=protocol)
        keys = [e.estimand.key for e in (found.overall, *found.others)]
        assert {"tau_pooled", "accepted_length"} <= set(keys) and len(set(keys)) == len(keys)
        assert found.a.gates is not None
