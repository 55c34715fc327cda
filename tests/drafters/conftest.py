"""A tiny target on disk, prompts in a file, and a configuration that trains on them in seconds."""

import json

import pytest
import yaml

from drafters.axes import complete
from drafters.checkpoints.folder import save_drafter
from drafters.config import RunConfig
from drafters.corpus.build import build_corpus
from drafters.prompts.sources import load_prompts
from drafters.target.layers import default_layer_ids
from drafters.training.trainer import Trainer
from tests.tiny import tiny_target

LENGTH = 32  # tokens of the answers that ``overfitted`` learned


@pytest.fixture(scope="session")
def target_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target") / "tiny"
    target = tiny_target()
    target.model.save_pretrained(folder)
    target.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny():
    return tiny_target()


@pytest.fixture(scope="session")
def overfitted(tmp_path_factory, tiny):
    """(drafter folder, prompts): B = 16, full head, trained until it knows the answers to 24 of 60 prompts.

    Accepted lengths take every value: a drafter that never accepts proves nothing.
    """
    folder = tmp_path_factory.mktemp("overfitted")
    lines = [json.dumps({"question": f"{n} + {n + 1}?", "answer": "1"}) for n in range(60)]
    (folder / "sums.jsonl").write_text("\n".join(lines))
    prompts = load_prompts([str(folder / "sums.jsonl")])
    layers = default_layer_ids(tiny.num_layers, 2)
    corpus = build_corpus(
        tiny, prompts[:24], layer_ids=layers, max_new_tokens=LENGTH, batch_size=8, folder=folder / "corpus"
    )
    drafter = {
        "num_layers": 2,
        "target_layers": 2,
        "block_size": 16,
        "mask_token_id": 3,
        "intermediate_size": 128,
    }
    training = {"steps": 360, "batch": 4, "anchors": 16, "lr": 1e-2, "warmup": 0.1}
    config = RunConfig.model_validate(
        {"name": "x", "target": "tiny", "drafter": drafter, "corpus": {"prompts": ["x"]}, "training": training}
    )
    trainer = Trainer(config, complete(config.drafter, tiny), corpus, tiny, "cpu")
    while trainer.step < trainer.steps:
        trainer.train_step()
    (folder / "drafter").mkdir()
    save_drafter(trainer.drafter, folder / "drafter")
    return folder / "drafter", prompts


@pytest.fixture
def workplace(tmp_path, monkeypatch, target_folder):
    """A working directory with runs/, a cache of its own, train.jsonl, test.jsonl and arm.yaml."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRAFTLAB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "runs").mkdir()
    for name, numbers in (("train", range(20)), ("test", range(100, 112))):
        lines = [json.dumps({"question": f"What is {n} plus {n + 1}?", "answer": str(2 * n + 1)}) for n in numbers]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    arm = {
        "name": "arm",
        "target": str(target_folder),
        "drafter": {"num_layers": 2, "target_layers": 2, "block_size": 6, "mask_token_id": 3, "draft_vocab": 40},
        "corpus": {"prompts": [{"source": "train.jsonl", "name": "sums"}], "max_new_tokens": 16, "batch_size": 8},
        "validation": {"seen": [{"source": "test.jsonl", "count": 4}], "every": 4},
        "training": {"steps": 12, "batch": 4, "anchors": 4, "checkpoint_every": 4},
    }
    (tmp_path / "arm.yaml").write_text(yaml.safe_dump(arm))
    return tmp_path
