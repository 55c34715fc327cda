"""The life of a run folder: train, stop, resume, evaluate, refuse."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from analysis.errors import run_command
from analysis.runlog.reading import Run
from drafters.checkpoints.run_files import FINAL
from drafters.commands import baseline, evaluate, generate, train
from drafters.corpus.store import Corpus
from drafters.prompts.identity import messages
from drafters.prompts.sources import load_prompts
from drafters.ranks import default_device
from drafters.target.frozen import Target
from drafters.training import run as training_run
from drafters.training.trainer import Trainer


def run(command, *argv):
    return run_command(command.main, list(argv))


def history(folder):
    table = Run.open(folder, allow_incomplete=True).read("history")
    return table.drop_columns(["seconds"])


def manifest(folder):
    data = json.loads((folder / "run.json").read_text())
    data.pop("timings", None)
    data["environment"].pop("git_commit", None)
    for parts in data["tables"].values():
        for part in parts:
            part.pop("sha256")  # history holds times
    return data


def same_run(a, b):
    assert history(a).equals(history(b))
    for name in ("model.safetensors", "config.json"):
        assert (a / "checkpoints" / FINAL / name).read_bytes() == (b / "checkpoints" / FINAL / name).read_bytes()
    assert manifest(a) == manifest(b)


class Killed(Exception):
    pass


def test_train_writes_a_complete_run(workplace, capsys):
    assert run(train, "arm.yaml") == 0
    found = Run.open("arm")
    assert found.manifest.status == "complete"
    assert found.manifest.training.steps == 12
    rows = found.read("history").to_pylist()
    assert [row["step"] for row in rows] == list(range(1, 13))
    assert [row["step"] for row in rows if row["val_accepted_length"] is not None] == [4, 8, 12]
    assert rows[-1]["data_hash"] == found.manifest.training.data_hash
    assert found.manifest.drafter.parameters["total"] == sum(
        t.numel() for n, t in load_file("runs/arm/checkpoints/final/model.safetensors").items() if n != "d2t"
    )
    assert not list((workplace / "runs/arm/checkpoints").glob("step-*"))

    capsys.readouterr()
    before = (workplace / "runs/arm/run.json").read_bytes()
    assert run(train, "arm.yaml") == 0
    assert "complete already" in capsys.readouterr().out
    assert (workplace / "runs/arm/run.json").read_bytes() == before


def test_a_drafter_of_the_whole_vocabulary_needs_no_look_at_every_answer(workplace, monkeypatch):
    monkeypatch.setattr(Corpus, "token_counts", None)
    assert run(train, "arm.yaml", "--set", "drafter.draft_vocab=null", "--set", "training.steps=1") == 0


def test_other_settings_under_the_name_are_refused(workplace, capsys):
    assert run(train, "arm.yaml") == 0
    assert run(train, "arm.yaml", "--set", "training.lr=1e-3") == 65
    error = capsys.readouterr().err.splitlines()[-1]
    assert "other settings (training.lr 0.0006 there, 0.001 here);" in error
    assert run(train, "arm.yaml", "--set", "corpus.holdout={count: 2, by: prompt}") == 65
    assert "corpus.holdout.count null there, 2 here" in capsys.readouterr().err


def test_a_run_from_before_a_setting_existed_has_its_default(workplace, capsys):
    assert run(train, "arm.yaml") == 0
    path = workplace / "runs/arm/run.json"
    data = json.loads(path.read_text())
    for section, name in (("training", "precision"), ("corpus", "features")):
        del data["training"]["settings"][section][name]
    path.write_text(json.dumps(data))
    assert run(train, "arm.yaml") == 0
    assert run(train, "arm.yaml", "--set", "corpus.features=online") == 65
    data["training"]["settings"]["of_later"] = 1
    path.write_text(json.dumps(data))
    assert run(train, "arm.yaml") == 65


@pytest.mark.parametrize("stop_after", [3, 4, 7, 11])
def test_a_stopped_training_ends_bit_equal(workplace, monkeypatch, stop_after):
    assert run(train, "arm.yaml", "--run", "runs/whole") == 0
    step = Trainer.train_step

    def dying(self):
        if self.step == stop_after:
            raise Killed
        return step(self)

    monkeypatch.setattr(Trainer, "train_step", dying)
    assert run(train, "arm.yaml", "--run", "runs/stopped") == 70
    monkeypatch.setattr(Trainer, "train_step", step)
    with pytest.raises(Exception, match="not complete"):
        Run.open("runs/stopped")
    assert run(train, "arm.yaml", "--run", "runs/stopped") == 0
    same_run(workplace / "runs/whole", workplace / "runs/stopped")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_training_with_a_checkpoint(workplace, monkeypatch, capsys, number):
    assert run(train, "arm.yaml", "--run", "runs/whole") == 0
    step, before = Trainer.train_step, signal.getsignal(number)

    def signalled(self):
        if self.step == 2:
            os.kill(os.getpid(), number)
        return step(self)

    monkeypatch.setattr(Trainer, "train_step", signalled)
    assert run(train, "arm.yaml", "--run", "runs/stopped") == 130
    assert "interrupted" in capsys.readouterr().err
    assert [path.name for path in (workplace / "runs/stopped/checkpoints").glob("step-*")] == ["step-000003"]
    assert signal.getsignal(number) is before
    monkeypatch.setattr(Trainer, "train_step", step)
    assert run(train, "arm.yaml", "--run", "runs/stopped") == 0
    same_run(workplace / "runs/whole", workplace / "runs/stopped")


def test_a_gradient_that_is_not_finite_stops_and_names_its_examples(workplace, monkeypatch, capsys):
    forward = Trainer._forward

    def broken(self, batch, weights):
        loss = forward(self, batch, weights)
        return replace(loss, numerator=loss.numerator * float("nan")) if self.step == 2 else loss

    monkeypatch.setattr(Trainer, "_forward", broken)
    assert run(train, "arm.yaml") == 65
    assert "step 3: the gradient is not finite (norm nan" in capsys.readouterr().err
    found = json.loads((workplace / "runs/arm/not-finite-step-000003.json").read_text())
    assert found["step"] == 3 and len(found["examples"]) == len(set(found["examples"])) > 0
    monkeypatch.setattr(Trainer, "_forward", forward)
    assert run(train, "arm.yaml") == 0


def test_a_training_goes_on_in_the_precision_that_it_began_with(workplace, monkeypatch):
    step = Trainer.train_step
    mixed = []

    def dying(self):
        mixed.append(self.mixed)
        if len(mixed) == 6:
            raise Killed
        return step(self)

    monkeypatch.setattr(Trainer, "train_step", dying)
    monkeypatch.setattr(training_run, "native_precision", lambda device: "bfloat16")
    assert run(train, "arm.yaml") == 70
    monkeypatch.setattr(training_run, "native_precision", lambda device: "float32")  # another machine
    assert run(train, "arm.yaml") == 0
    assert set(mixed) == {True}
    assert Run.open("runs/arm").manifest.training.precision == "bfloat16"
    assert run(train, "arm.yaml", "--run", "runs/exact", "--set", "training.precision=float32") == 0
    assert Run.open("runs/exact").manifest.training.precision == "float32"


def test_weights_of_another_training_are_refused(workplace, capsys):
    assert run(train, "arm.yaml") == 0
    assert run(train, "arm.yaml", "--run", "runs/other", "--set", "seeds.init=1") == 0
    shutil.rmtree("runs/arm/checkpoints")
    shutil.copytree("runs/other/checkpoints", "runs/arm/checkpoints")
    assert run(evaluate, "runs/arm", "--prompts", "test.jsonl:4") == 65
    assert "not the weights whose logs runs/arm holds" in capsys.readouterr().err


def test_the_same_configuration_gives_the_same_bytes(workplace):
    assert run(train, "arm.yaml", "--run", "runs/one") == 0
    assert run(train, "arm.yaml", "--run", "runs/two") == 0
    same_run(workplace / "runs/one", workplace / "runs/two")


def start(module, *argv):
    return subprocess.Popen(
        [sys.executable, "-m", module, *argv],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def kill_when(process, seen):
    """SIGKILL the process as soon as ``seen()``; whether it was still alive then."""
    deadline = time.monotonic() + 60
    while not seen() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


@pytest.mark.slow
def test_kill_nine_in_corpus_training_and_evaluation(workplace, monkeypatch):
    sources = ["--prompts", "test.jsonl", "--batch-size", "2"]
    arm = ["arm.yaml", "--set", "training.steps=60"]
    assert run(train, *arm, "--run", "runs/whole") == 0
    assert run(evaluate, "runs/whole", *sources) == 0

    monkeypatch.setenv("DRAFTLAB_CACHE", str(workplace / "cache2"))
    killed = workplace / "runs/killed"
    command = [*arm, "--run", "runs/killed"]
    process = start("drafters.train", *command)
    assert kill_when(process, lambda: list((workplace / "cache2").rglob("shard-*.safetensors")))
    process = start("drafters.train", *command)
    assert kill_when(process, lambda: list(killed.glob("checkpoints/step-*")))
    assert run(train, *command) == 0
    process = start("drafters.evaluate", "runs/killed", *sources)
    assert kill_when(process, lambda: list(killed.glob(".partial/*/000002")))
    assert run(evaluate, "runs/killed", *sources) == 0

    same_run(workplace / "runs/whole", killed)
    for name in ("acceptance", "prompts", "gates", "gate_stats"):
        (whole,), (resumed,) = (
            list((f / f"{name}.parquet").glob("*.parquet")) for f in (workplace / "runs/whole", killed)
        )
        assert whole.read_bytes() == resumed.read_bytes(), name
    assert not list(killed.rglob("*.tmp"))


def test_evaluation_of_several_runs_equals_one_by_one(workplace):
    assert run(train, "arm.yaml", "--run", "runs/a") == 0
    assert run(train, "arm.yaml", "--run", "runs/b", "--set", "drafter.fusion=gated") == 0
    assert run(baseline, "arm.yaml", "--run", "runs/next") == 0
    assert run(evaluate, "a", "b", "next", "--prompts", "test.jsonl") == 0
    together = {n: Run.open(n).read("acceptance") for n in ("a", "b", "next")}
    assert run(train, "arm.yaml", "--run", "runs/c") == 0
    assert run(evaluate, "c", "--prompts", "test.jsonl") == 0
    assert Run.open("c").read("acceptance").equals(together["a"])
    assert {t.num_rows for t in together.values()} == {12}
    prompts = Run.open("a").read("prompts").to_pandas()
    assert set(prompts["seen"]) == {"unseen"}


def test_evaluating_again_does_nothing_and_adding_prompts_adds_parts(workplace, capsys):
    assert run(train, "arm.yaml") == 0
    assert run(evaluate, "arm", "--prompts", "test.jsonl:5") == 0
    (first,) = (workplace / "runs/arm/acceptance.parquet").glob("*.parquet")
    before = first.read_bytes()
    assert run(evaluate, "arm", "--prompts", "test.jsonl:5") == 0
    assert "complete already" in capsys.readouterr().out
    assert run(evaluate, "arm", "--prompts", "test.jsonl:7") == 0
    assert first.read_bytes() == before
    assert len(list((workplace / "runs/arm/acceptance.parquet").glob("*.parquet"))) == 2


def test_the_prompts_and_settings_of_another_run(workplace, capsys):
    assert run(train, "arm.yaml", "--run", "runs/a") == 0
    assert run(train, "arm.yaml", "--run", "runs/b", "--set", "drafter.fusion=gated") == 0
    assert run(evaluate, "b", "--like", "a") == 64
    assert "has no evaluation to repeat" in capsys.readouterr().err
    assert run(evaluate, "a", "--prompts", "test.jsonl:7@3", "--batch-size", "3") == 0
    assert run(evaluate, "b", "--like", "a") == 0
    short = ["--protocol", "generate", "--max-new-tokens", "5"]
    assert run(evaluate, "a", "--prompts", "test.jsonl:4", *short) == 0
    capsys.readouterr()
    assert run(evaluate, "b", "--like", "a") == 64
    told = capsys.readouterr().err
    assert "holds 2 evaluations; choose one with --evaluation NAME" in told and "(generate, 4 prompts)" in told
    assert run(evaluate, "b", "--like", "a", "--protocol", "generate") == 0
    a, b = (Run.open(name).manifest.evaluations for name in "ab")
    assert list(a) == list(b)  # hashes of all settings, prompts among them
    assert [e.prompt_set_sha256 for e in a.values()] == [e.prompt_set_sha256 for e in b.values()]
    assert run(evaluate, "b", "--like", "a", "--evaluation", next(iter(a))[:6]) == 0
    assert "complete already" in capsys.readouterr().out
    assert run(evaluate, "b", "--like", "a", "--evaluation", "none") == 64
    rows = (workplace / "test.jsonl").read_text().splitlines()
    (workplace / "test.jsonl").write_text("\n".join(reversed(rows[2:])))
    assert run(evaluate, "b", "--like", "a", "--protocol", "prefix") == 65
    assert "a file has changed" in capsys.readouterr().err


def test_training_prompts_are_not_asked_again(workplace, capsys):
    assert run(train, "arm.yaml") == 0
    (workplace / "mixed.jsonl").write_text(
        (workplace / "train.jsonl").read_text().splitlines()[0] + "\n" + (workplace / "test.jsonl").read_text()
    )
    assert run(evaluate, "arm", "--prompts", "mixed.jsonl") == 0
    found = Run.open("arm")
    assert found.read("prompts").num_rows == 12
    assert any("1 prompts are training prompts" in caveat for caveat in found.manifest.caveats)
    assert run(evaluate, "arm", "--prompts", "train.jsonl") == 65
    assert "no prompt is left" in capsys.readouterr().err


def test_gate_moments_are_the_sums_over_all_tokens(workplace):
    assert run(train, "arm.yaml", "--set", "drafter.fusion=gated") == 0
    assert run(evaluate, "arm", "--prompts", "test.jsonl:3") == 0
    found = Run.open("arm")
    stats = found.read("gate_stats").to_pandas()
    prompts = found.read("prompts").to_pandas().set_index("prompt_id")
    asked = stats[stats["role"] == "prompt"]
    assert (asked["n"].to_numpy() == prompts.loc[asked["prompt_id"], "prompt_tokens"].to_numpy()).all()
    # two target layers, whose shares add to 1 at every token
    total = asked.groupby("prompt_id")["contribution_share_sum"].sum()
    assert (abs(total - prompts.loc[total.index, "prompt_tokens"]) < 1e-3).all()
    assert sorted(stats["layer"].unique()) == [2, 4]  # indices into hidden_states: layer ids 1 and 3
    gates = found.read("gates").to_pandas()
    assert (gates["gated_norm"] / gates["feature_norm"] - gates["gate"]).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["nowhere.yaml"], 64, "no configuration"),
        (["arm.yaml", "--set", "training.lr"], 64, "--set requires"),
        (["arm.yaml", "--set", "training.learning_rate=1"], 65, "learning_rate"),
        (["arm.yaml", "--set", "training.anchor=1"], 65, "did you mean anchors?"),
        (["arm.yaml", "--set", "corpus.prompts=[{source: train.jsonl, cuont: 3}]"], 65, "did you mean count?"),
        (["arm.yaml", "--set", "drafter.block_size=1"], 65, "'drafter.block_size': Input should be greater than or eq"),
        (["arm.yaml", "--set", "drafter.num_layers=0"], 65, "'drafter.num_layers': Input should be greater than or eq"),
        (["arm.yaml", "--set", "drafter.mask_token_id=99999999"], 65, "drafter.mask_token_id 99999999"),
        (["arm.yaml", "--set", "drafter.mask_token_id=-1"], 65, "drafter.mask_token_id"),
        (["arm.yaml", "--set", "drafter.num_attention_heads=3"], 65, "num_attention_heads must be a multiple"),
        (["arm.yaml", "--set", "drafter.mask_token_id=2"], 65, "pad or stop token"),
        (["arm.yaml", "--set", "drafter.target_layers=[1, 5]"], 65, "final norm"),
        (["arm.yaml", "--set", "target=/no/such/model"], 65, "cannot be loaded"),
        (["arm.yaml", "--set", "training.lr=-1"], 65, "'training.lr': Input should be greater than or equal to 0"),
    ],
)
def test_bad_configurations_are_one_line(workplace, capsys, argv, code, words):
    assert run(train, *argv) == code
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert words in error


def test_a_drafter_that_cannot_be_is_refused_before_the_corpus_and_leaves_its_name_free(workplace, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("drafters.training.run.arm_corpus", lambda *_: pytest.fail("the corpus is made first"))
        assert run(train, "arm.yaml", "--set", "drafter.mask_token_id=99999999") == 65
    assert not (workplace / "runs" / "arm").exists()


def test_validation_in_training_is_the_prefix_protocol(workplace, target_folder):
    """With stop tokens such that some answers have one token, and others stop within the block."""
    shutil.copytree(target_folder, "tiny")
    target = Target.load("tiny")
    asked = ["Sing a song.", "who are you", "Why?", "x", "hello there", "A", "B", *(f"{n}?" for n in range(20))]
    Path("held.jsonl").write_text("".join(json.dumps({"question": q, "answer": ""}) + "\n" for q in asked))
    prompts = load_prompts(["held.jsonl"])
    answers = target.greedy([target.encode_chat(messages(prompt)) for prompt in prompts], 6).tokens
    generation = json.loads(Path("tiny/generation_config.json").read_text())
    stops = [2, answers[0][0], answers[3][3], answers[4][2], answers[5][1]]
    Path("tiny/generation_config.json").write_text(json.dumps(generation | {"eos_token_id": stops}))
    settings = ["training.steps=60", "training.lr=1e-2", "validation.seen=[held.jsonl]", "target=tiny"]
    assert run(train, "arm.yaml", *(part for setting in settings for part in ("--set", setting))) == 0
    assert run(evaluate, "arm", "--prompts", "held.jsonl") == 0
    found = Run.open("arm")
    emitted = found.read("acceptance")["emitted"].to_numpy()
    lengths = found.read("prompts")["output_tokens"].to_pylist()
    assert len(emitted) == len(asked) and 1 in lengths and 6 in lengths and len(set(lengths)) > 2
    assert max(emitted) > 1
    assert found.read("history")["val_accepted_length"].to_pylist()[-1] == pytest.approx(emitted.mean())


def test_several_processes_are_refused_before_any_of_them_writes(workplace, monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run(baseline, "arm.yaml", "--run", "runs/arm") == 64
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not (workplace / "runs/arm").exists()


@pytest.mark.parametrize(
    ("command", "argv", "words"),
    [
        (
            generate,
            ["arm", "hello", "--max-new-tokens", "-3"],
            "'max_new_tokens': Input should be greater",
        ),
        (
            generate,
            ["arm", "hello", "--temperature", "-1"],
            "'temperature': Input should be greater",
        ),
        (evaluate, ["arm", "--prompts", "test.jsonl", "--batch-size", "-1"], "--batch-size -1"),
        (
            evaluate,
            ["arm", "--prompts", "test.jsonl", "--protocol", "generate", "--max-new-tokens", "0"],
            "'max_new_tokens': Input should be greater",
        ),
    ],
)
def test_numbers_out_of_range_name_the_field_and_the_range(workplace, capsys, command, argv, words):
    assert run(command, *argv) in (64, 65)
    assert words in capsys.readouterr().err


def test_slow_steps_say_what_they_do(workplace, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert run(train, "arm.yaml", "--set", "target=smollm3") == 65
    lines = capsys.readouterr().err.splitlines()
    assert "asking the model hub" in lines[0] and "did you mean smollm2?" in lines[-1]


def test_evaluating_without_weights_is_one_line(workplace, capsys):
    assert run(train, "arm.yaml") == 0
    (workplace / "runs/arm/checkpoints/final").rename(workplace / "elsewhere")
    assert run(evaluate, "arm", "--prompts", "test.jsonl") == 65
    assert "no weights" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("available", "rank", "device"),
    [(False, None, "cpu"), (False, "1", "cpu"), (True, None, "cuda"), (True, "1", "cuda:1")],
)
def test_every_rank_has_a_gpu_of_its_own(monkeypatch, available, rank, device):
    monkeypatch.setattr("torch.cuda.is_available", lambda: available)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("LOCAL_RANK", rank)
    assert default_device() == device
