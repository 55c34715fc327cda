"""Rows of a training in other places, and how many saved states stay."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from analysis.errors import run_command
from analysis.runlog.reading import Run
from drafters.commands import train
from drafters.training.trainer import Trainer

PROGRESS = Path("runs/arm/progress.jsonl")


class Stopped(Exception):
    pass


def stop_after(monkeypatch, steps):
    step = Trainer.train_step

    def stopping(self):
        if self.step == steps:
            raise Stopped
        return step(self)

    monkeypatch.setattr(Trainer, "train_step", stopping)


def lines():
    return [json.loads(line) for line in PROGRESS.open()]


def history():
    return Run.open("runs/arm").read("history").to_pylist()


class FakeWriter:
    def __init__(self, log_dir, purge_step):
        self.log_dir, self.purge_step, self.scalars, self.closed = log_dir, purge_step, [], False
        FakeWriter.made.append(self)

    def add_scalar(self, name, value, step):
        self.scalars.append((name, value, step))

    def close(self):
        self.closed = True


@pytest.fixture
def board(monkeypatch):
    FakeWriter.made = []
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = FakeWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    return FakeWriter.made


class FakeRun:
    def __init__(self, fails=None):
        self.rows, self.finished, self.fails = [], False, fails

    def log(self, row, step):
        if step == self.fails:
            raise ConnectionError("no route")
        self.rows.append((step, row))

    def finish(self):
        self.finished = True


@pytest.fixture
def wandb(monkeypatch):
    module = ModuleType("wandb")
    module.runs = []
    module.fails = None

    def init(**settings):
        module.runs.append((settings, FakeRun(module.fails)))
        return module.runs[-1][1]

    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def test_json_lines_are_the_history(workplace):
    assert run_command(train.main, ["arm.yaml", "--log", "jsonl"]) == 0
    found = lines()
    assert [(row["step"], row["steps"]) for row in found] == [(n, 12) for n in range(1, 13)]
    for row, kept in zip(found, history(), strict=True):
        assert (row["val_accepted_length"] is None) == (kept["val_accepted_length"] is None)
        assert row["loss"] == pytest.approx(kept["loss"], rel=1e-6)
        assert row["spike"] is False


def test_a_resumed_training_writes_no_step_twice(workplace, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        stop_after(patch, 6)  # saved at 4
        train.main(["arm.yaml", "--log", "jsonl"])
    with PROGRESS.open("a") as file:
        file.write('{"step": 7, "lo')  # cut off
    assert len(lines_that_are_whole()) == 6
    assert run_command(train.main, ["arm.yaml", "--log", "jsonl"]) == 0
    assert [row["step"] for row in lines()] == list(range(1, 13))


def lines_that_are_whole():
    return [line for line in PROGRESS.open() if line.endswith("\n")]


def test_tensorboard(workplace, board):
    assert run_command(train.main, ["arm.yaml", "--log", "tensorboard"]) == 0
    (writer,) = board
    assert (writer.purge_step, writer.closed) == (1, True)
    assert writer.log_dir.endswith("runs/arm/tensorboard")
    rows = history()
    assert [(step, value) for name, value, step in writer.scalars if name == "loss"] == [
        (row["step"], pytest.approx(row["loss"], rel=1e-6)) for row in rows
    ]
    assert [step for name, _, step in writer.scalars if name == "val_accepted_length"] == [4, 8, 12]
    assert {name for name, _, _ in writer.scalars}.isdisjoint({"data_hash", "ce_at", "step"})


def test_wandb_goes_on_with_the_same_run(workplace, wandb, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        stop_after(patch, 6)
        train.main(["arm.yaml", "--log", "wandb"])
    assert run_command(train.main, ["arm.yaml", "--log", "wandb", "--log", "jsonl"]) == 0
    (first, one), (second, two) = wandb.runs
    assert first["id"] == second["id"] and second["resume"] == "allow"
    assert first["config"]["training"]["steps"] == 12
    assert one.finished and two.finished
    assert [step for step, _ in two.rows] == list(range(5, 13))
    assert two.rows[-1][1]["loss"] == pytest.approx(history()[-1]["loss"], rel=1e-6)


def test_a_log_that_fails_ends_no_training(workplace, wandb, capsys):
    wandb.fails = 3
    assert run_command(train.main, ["arm.yaml", "--log", "wandb"]) == 0
    (_, run), *_ = [(s, r) for s, r in wandb.runs]
    assert [step for step, _ in run.rows] == [1, 2]
    assert capsys.readouterr().err.count("no route") == 1


@pytest.mark.parametrize(("name", "module"), [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb")])
def test_a_missing_package_is_said_before_anything_is_done(workplace, monkeypatch, capsys, name, module):
    monkeypatch.setitem(sys.modules, module, None)  # importing it is an ImportError
    assert run_command(train.main, ["arm.yaml", "--log", name]) == 64
    (line,) = capsys.readouterr().err.splitlines()
    assert f"pip install {name}" in line
    assert not list((workplace / "runs").iterdir())


def test_keep(workplace, monkeypatch, capsys):
    """Steps 4 and 8 are saved; 12 is the end."""
    folder = workplace / "runs/arm/checkpoints"
    assert run_command(train.main, ["arm.yaml", "--keep", "2", "--set", "training.checkpoint_every=3"]) == 0
    assert sorted(p.name for p in folder.glob("step-*")) == ["step-000006", "step-000009"]
    assert run_command(train.main, ["arm.yaml", "--keep", "0"]) == 64


def test_an_old_state_stays_until_the_new_one_is_whole(workplace, monkeypatch):
    save = Trainer.save

    def failing(self, folder):
        if self.step == 8:
            raise Stopped
        save(self, folder)

    monkeypatch.setattr(Trainer, "save", failing)
    with pytest.raises(Stopped):
        train.main(["arm.yaml"])
    assert [p.name for p in (workplace / "runs/arm/checkpoints").glob("step-*")] == ["step-000004"]
