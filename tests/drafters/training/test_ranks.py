"""Several processes against one: the same data, the same loss, the same weights; stopped, lost, and fewer or more."""

import os
import signal
import subprocess
import sys
import time

import pytest
from safetensors.torch import load_file

from analysis.errors import run_command
from analysis.runlog.reading import Run
from drafters.commands import train

SETTINGS = ["training.steps=null", "training.epochs=2", "training.batch=2", "training.accumulate=4"]
SETTINGS += ["training.precision=float64", "training.checkpoint_every=2", "training.lr=1e-3"]  # 20 examples: 5 steps


def arguments(name, *more):
    return ["arm.yaml", "--folder", f"runs/{name}", *(p for s in (*SETTINGS, *more) for p in ("--set", s))]


def start(ranks, name, *more):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    return subprocess.Popen([*command, "-m", "drafters.train", *arguments(name, *more)], env=environment, **pipes)


def history(name):
    return Run.open(f"runs/{name}", allow_incomplete=True).read("history").to_pylist()


def same(one, other, tolerance):
    ours, theirs = history(one), history(other)
    assert [r["data_hash"] for r in ours] == [r["data_hash"] for r in theirs] and len(ours) == 5
    for a, b in zip(ours, theirs, strict=True):
        for column in ("loss", "ce", "grad_norm", "accepted_length", "val_accepted_length", "examples", "tokens"):
            expected = None if b[column] is None else pytest.approx(b[column], rel=tolerance)
            assert a[column] == expected, column
    weights = [load_file(f"runs/{name}/checkpoints/final/model.safetensors") for name in (one, other)]
    for key, tensor in weights[0].items():
        assert float((tensor - weights[1][key]).abs().max()) <= tolerance, key


@pytest.mark.slow
def test_two_ranks_are_one(workplace):
    assert run_command(train.main, arguments("one")) == 0
    process = start(2, "two")
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert out.count("5 steps") == 1  # rank 0 alone speaks
    same("one", "two", 1e-6)  # history and weights are stored in float32


@pytest.mark.slow
def test_two_ranks_are_one_with_every_addition(workplace):
    more = ["drafter.mixing=conv", "drafter.selection=markov", "drafter.confidence=head", "loss.distill=l1"]
    assert run_command(train.main, arguments("one", *more)) == 0
    process = start(2, "two", *more)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    same("one", "two", 1e-6)


@pytest.mark.slow
def test_four_ranks_are_one(workplace):
    assert run_command(train.main, arguments("one")) == 0
    process = start(4, "four")
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    same("one", "four", 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_stopped_training_goes_on_with_another_number_of_ranks(workplace, ranks):
    assert run_command(train.main, arguments("one")) == 0
    process = start(2, "stopped")
    folder = workplace / "runs/stopped/checkpoints"
    deadline = time.monotonic() + 300
    while not list(folder.glob("step-*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)  # the launcher and every rank
    process.wait()
    assert [path.name for path in folder.glob("step-*")] in (["step-000002"], ["step-000004"])
    process = start(ranks, "stopped")
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    same("one", "stopped", 1e-6)


@pytest.mark.slow
def test_a_lost_rank_ends_the_training_and_its_checkpoint_stays(workplace):
    process = start(2, "lost", "training.epochs=200", "training.checkpoint_every=5")
    folder = workplace / "runs/lost/checkpoints"
    deadline = time.monotonic() + 300
    while not list(folder.glob("step-*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    children = subprocess.run(
        ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True
    ).stdout.split()
    os.kill(int(children[-1]), signal.SIGKILL)
    process.communicate(timeout=120)
    assert process.returncode != 0
    assert list(folder.glob("step-*"))
    with pytest.raises(Exception, match="not complete"):
        Run.open("runs/lost")


@pytest.mark.slow
def test_sharded_ranks_are_one(workplace):
    """Through a stop: what two sharded ranks saved, one goes on with, and the other way round."""
    assert run_command(train.main, arguments("one")) == 0
    sharded = "training.sharding=fsdp2"
    process = start(2, "two", sharded)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    same("one", "two", 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_stopped_sharded_training_goes_on(workplace, ranks):
    sharded = "training.sharding=fsdp2"
    assert run_command(train.main, arguments("one")) == 0
    process = start(2, "stopped", sharded)
    folder = workplace / "runs/stopped/checkpoints"
    deadline = time.monotonic() + 300
    while not list(folder.glob("step-*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert list(folder.glob("step-*"))
    process = start(ranks, "stopped", sharded)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    same("one", "stopped", 1e-6)
