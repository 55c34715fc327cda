"""Gates that are 0 or negative: logs are of positive gates alone, and none is made up for the others."""

import math
from types import SimpleNamespace

import pytest
import torch

from drafters.evaluation.gates import gate_rows
from drafters.model.fusion import Contributions

GATES = torch.tensor([[2.0, 4.0], [-1.0, 4.0], [8.0, -3.0], [0.0, 0.0]])  # [tokens, layers]


def moments():
    ones = torch.ones_like(GATES)
    found = Contributions(GATES, ones, GATES.abs(), ones, ones / 2)
    arm = SimpleNamespace(contributions=lambda features: found, layer_ids=(1, 3))
    sampled, rows = gate_rows(arm, torch.zeros(4, 2, 5), 0, "answer", {"prompt_id": "p"})
    assert [row["layer"] for row in rows] == [2, 4] and len(sampled) == 4
    return rows


def test_each_log_is_summed_over_the_tokens_that_have_it():
    first, last = moments()
    assert (first["n"], first["n_log_gate"], first["n_log"]) == (4, 2, 1)
    assert first["log_gate_sum"] == pytest.approx(math.log(2) + math.log(8))
    assert first["log_gate_sumsq"] == pytest.approx(math.log(2) ** 2 + math.log(8) ** 2)
    assert first["log_ratio_sum"] == pytest.approx(math.log(2 / 4))  # the one token where both are positive
    assert (last["n_log_gate"], last["n_log"], last["log_ratio_sum"]) == (2, 2, 0.0)
    assert last["log_gate_sum"] == pytest.approx(2 * math.log(4))


def test_other_moments_are_over_all_tokens():
    first, _ = moments()
    assert (first["gate_sum"], first["gate_sumsq"]) == (9.0, 69.0)
