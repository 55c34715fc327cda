"""The whole life of a run on a device that is not the CPU: nothing may mix the two, and nothing may come out else."""

import pytest
import torch
from safetensors.torch import load_file

from analysis.runlog.reading import Run
from drafters.commands import evaluate, generate, train
from drafters.training.trainer import Trainer
from tests.second_device import second_device

TABLES = ("acceptance", "prompts", "gates", "gate_stats", "fusion")
ARMS = {
    "concat": ["drafter.draft_vocab=null"],
    "gated": ["corpus.features=online"],
    "layerwise": ["corpus.features=online", "target_dtype=bfloat16"],
    "layerwise_gated": [
        "corpus.features=online",
        "drafter.kv=separate",
        "loss.weighting=dpace",
        "training.accumulate=2",
        "training.batch=2",
    ],
}
# what DFlash2 and DSpark add, in the concat arm
ADDED = {
    "dflash2": ["drafter.mixing=conv", "drafter.selection=path", "drafter.selection_rank=8"],
    "dspark": [
        "drafter.selection=markov_gated",
        "drafter.selection_rank=8",
        "drafter.confidence=head",
        "loss.distill=l1",
    ],
}


class Killed(Exception):
    pass


@pytest.fixture
def killed_once(monkeypatch):
    """Training is killed after its fifth step, once."""
    step, left = Trainer.train_step, [5]

    def mortal(trainer):
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return step(trainer)

    monkeypatch.setattr(Trainer, "train_step", mortal)


def life(name, device, changes):
    sets = [
        part for change in ("training.precision=float32", "training.steps=8", *changes) for part in ("--set", change)
    ]
    command = ["arm.yaml", *sets, "--run", f"runs/{name}", "--device", device]
    if device != "cpu":
        with pytest.raises(Killed):
            train.main(command)
    train.main(command)
    asked = [f"runs/{name}", "--device", device, "--prompts", "test.jsonl:6", "--batch-size", "4"]
    evaluate.main(asked)
    evaluate.main([*asked, "--protocol", "generate", "--max-new-tokens", "8", "--baseline"])
    evaluate.main([*asked, "--protocol", "generate", "--max-new-tokens", "8", "--temperature", "0.7"])
    if changes[-1] == "drafter.fusion=gated":
        for control in ("frozen", "shuffled"):
            evaluate.main([*asked, "--gate-control", control])
    generate.main([f"runs/{name}", "What is 1 plus 2?", "--max-new-tokens", "8", "--device", device])
    return Run.open(name)


# one life takes the better part of a minute: by default the arm whose controls are evaluated too
@pytest.mark.parametrize(
    "arm", [pytest.param(arm, marks=[] if arm == "gated" else [pytest.mark.slow]) for arm in (*ARMS, *ADDED)]
)
def test_a_run_on_another_device_is_the_same_run(workplace, arm, request):
    changes = [*ARMS[arm], f"drafter.fusion={arm}"] if arm in ARMS else [*ARMS["concat"], *ADDED[arm]]
    here = life("here", "cpu", changes)
    request.getfixturevalue("killed_once")
    with second_device() as device:
        there = life("there", device, changes)
    assert there.manifest.environment.device == "second device"
    assert history(here) == history(there)
    for table in (table for table in TABLES if here.has(table)):
        assert here.read(table).equals(there.read(table)), table
    one, other = (load_file(f"runs/{run.name}/checkpoints/final/model.safetensors") for run in (here, there))
    assert all(one[name].equal(other[name]) for name in one)


def test_the_second_device_refuses_what_cuda_refuses():
    with second_device() as device:
        there, here = torch.randn(3, 4).to(device), torch.ones(4)
        for mixture in (
            lambda: there + here,
            lambda: there @ here,
            lambda: here[there[0] > 0],
            lambda: torch.cat([there[0], here]),
        ):
            with pytest.raises(RuntimeError, match="same device"):
                mixture()
        with pytest.raises(RuntimeError, match="generator"):
            there.normal_(generator=torch.Generator())
        with pytest.raises(TypeError, match="copy it to the CPU"):
            there.numpy()
        # what CUDA allows: numbers, indices, and copies from the CPU
        there[:, torch.tensor([0, 2])] = torch.tensor(2.0) * there[torch.tensor([0])].cpu()[0, 0].item()
        here[:] = there[0]
        assert torch.equal(here, there[0].cpu()) and there.device.type == "cuda"


def history(run):
    return run.read("history").drop_columns(["seconds"]).to_pylist()
