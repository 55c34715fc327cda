"""Controls of a gate: frozen at its mean, and shuffled across tokens."""

import json

import pytest
import torch

from analysis.errors import run_command
from analysis.runlog.reading import Run
from drafters.checkpoints.mean_gate import save_mean_gate
from drafters.commands import evaluate, train
from drafters.evaluation.controls import ShuffledArm
from drafters.model.drafter import Drafter
from drafters.model.folding import fold_constants
from tests.drafters.configs import drafter_config


def run(command, *argv):
    return run_command(command.main, list(argv))


@pytest.fixture
def gated():
    drafter = Drafter(drafter_config(fusion="gated")).initialise(0).eval()
    torch.nn.init.normal_(drafter.fusion.gate.weight, generator=torch.Generator().manual_seed(1))
    return drafter


def states(count, seed=0):
    return torch.randn(count, 3, 24, generator=torch.Generator().manual_seed(seed))


def test_mean_gate_is_the_mean_over_all_tokens(gated, tmp_path):
    examples = [states(5), states(9, seed=1)]
    save_mean_gate(gated.fusion, examples, tmp_path)
    saved = json.loads((tmp_path / "mean_gate.json").read_text())
    expected = gated.fusion.gate(torch.cat(examples)).mean(0)
    assert saved["tokens"] == 14
    torch.testing.assert_close(torch.tensor(saved["mean"]), expected.detach(), rtol=1e-6, atol=1e-6)


def test_a_frozen_gate_is_the_gated_drafter_with_a_constant_gate(gated):
    mean = torch.tensor([0.5, 1.25, 0.75])
    frozen = fold_constants(gated, mean)
    gated.fusion.gate_values = lambda features: mean.expand(*features.shape[:-1])
    features, embeddings, anchors = states(7)[None], torch.randn(1, 1, 6, 24), torch.tensor([[7]])
    torch.testing.assert_close(
        frozen.draft_hidden(features, embeddings, anchors),
        gated.draft_hidden(features, embeddings, anchors),
        rtol=1e-5,
        atol=1e-5,
    )


def test_a_shuffled_gate_deals_the_same_values_to_other_tokens(gated, tiny, monkeypatch):
    monkeypatch.setattr("drafters.evaluation.arms.Head", lambda target, config: None)
    features = states(12)
    before = gated.fusion.gate(features)
    arm = ShuffledArm(gated, tiny)
    after = arm.drafter.fusion.gate_values(features)
    assert not torch.equal(after, before)
    assert torch.equal(after.sort(0).values, before.sort(0).values)
    assert torch.equal(after, arm.drafter.fusion.gate_values(features))  # always the same deal


def test_controls_are_runs_with_a_parent(workplace):
    assert run(train, "arm.yaml", "--set", "drafter.fusion=gated", "--set", "training.lr=1e-2") == 0
    for control in ("frozen", "shuffled"):
        assert run(evaluate, "arm", "--prompts", "test.jsonl", "--gate-control", control) == 0
        found = Run.open(f"arm-{control}")
        assert (found.manifest.parent, found.manifest.variant) == ("arm", control)
        assert found.manifest.training.data_hash == Run.open("arm", allow_incomplete=True).manifest.training.data_hash
        assert found.read("acceptance").num_rows == 12
        assert not (workplace / f"runs/arm-{control}/checkpoints").exists()
    frozen = Run.open("arm-frozen").read("gates").to_pandas()
    assert (frozen["gate"] == 1).all()  # folded into the projection
    # the control goes by its own name from then on
    assert run(evaluate, "arm-frozen", "arm", "--prompts", "test.jsonl:6") == 0


def test_a_gate_that_does_not_move_has_no_control(workplace, capsys):
    assert run(train, "arm.yaml") == 0
    assert run(evaluate, "arm", "--prompts", "test.jsonl", "--gate-control", "frozen") == 65
    assert "gate reads the token" in capsys.readouterr().err


def test_shuffling_is_for_the_prefix_protocol(workplace, capsys):
    argv = ["arm", "--protocol", "generate", "--prompts", "test.jsonl", "--gate-control", "shuffled"]
    assert run(evaluate, *argv) == 64
    assert "--protocol prefix" in capsys.readouterr().err
