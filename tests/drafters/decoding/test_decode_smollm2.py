"""Decoding on the embedded real target: parity with the reference implementation, and losslessness. Minutes long."""

import json
from collections import Counter

import pytest
import torch

from drafters.axes import complete
from drafters.checkpoints.folder import load_drafter, save_drafter
from drafters.config import RunConfig
from drafters.corpus.build import build_corpus
from drafters.decoding.decode import decode
from drafters.evaluation.generation import top_two_margin
from drafters.prompts.sources import load_prompts, messages
from drafters.target import smollm2
from drafters.target.frozen import Target
from drafters.target.layers import default_layer_ids
from drafters.training.trainer import Trainer

LENGTH = 24

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not smollm2.converted_folder().exists(), reason="smollm2 was never converted here"),
]


@pytest.fixture(scope="module")
def target():
    return Target.load("smollm2")


@pytest.fixture(scope="module")
def trained(tmp_path_factory, target):
    """(drafter folder, encoded prompts): B = 16, full head, trained until it knows half of the answers."""
    folder = tmp_path_factory.mktemp("overfitted")
    lines = [json.dumps({"question": f"What is {n} plus {3 * n + 1}?", "answer": "1"}) for n in range(20)]
    (folder / "sums.jsonl").write_text("\n".join(lines))
    prompts = load_prompts([str(folder / "sums.jsonl")])
    layers = default_layer_ids(target.num_layers, 5)
    corpus = build_corpus(
        target, prompts[:10], layer_ids=layers, max_new_tokens=LENGTH, batch_size=10, folder=folder / "corpus"
    )
    drafter = {"num_layers": 2, "target_layers": 5, "block_size": 16, "mask_token_id": 16}
    training = {"steps": 150, "batch": 2, "anchors": 12, "lr": 1e-3}
    config = RunConfig.model_validate(
        {"name": "x", "target": "smollm2", "drafter": drafter, "corpus": {"prompts": ["x"]}, "training": training}
    )
    trainer = Trainer(config, complete(config.drafter, target), corpus, target, "cpu")
    while trainer.step < trainer.steps:
        trainer.train_step()
    (folder / "drafter").mkdir()
    save_drafter(trainer.drafter, folder / "drafter")
    return folder / "drafter", [target.encode_chat(messages(prompt)) for prompt in prompts]


@pytest.mark.parametrize("block_size", [4, 8, 16])
def test_parity_with_the_reference(target, trained, monkeypatch, block_size):
    reference = pytest.importorskip("dflash.model")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    theirs = reference.DFlashDraftModel.from_pretrained(trained[0]).eval()
    ours = load_drafter(trained[0])
    seen = Counter()
    for prompt in trained[1]:
        expected = reference.dflash_generate(
            theirs,
            target.model,
            torch.tensor([prompt]),
            LENGTH,
            sorted(target.stop_ids),
            block_size=block_size,
            return_stats=True,
        )
        found = decode(target, ours, [prompt], max_new_tokens=LENGTH, block_size=block_size).sequences[0]
        assert found.tokens == expected.output_ids[0, len(prompt) :].tolist()
        assert [step.emitted for step in found.steps] == expected.acceptance_lengths
        seen.update(expected.acceptance_lengths)
    assert len(seen) >= 3 and max(seen) >= block_size - 1


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_greedy_is_the_targets_own_output_but_for_ties(target, trained, batch):
    ours = load_drafter(trained[0])
    for start in range(0, len(trained[1]), batch):
        group = trained[1][start : start + batch]
        for prompt, found in zip(group, decode(target, ours, group, max_new_tokens=LENGTH).sequences, strict=True):
            plain = target.greedy([prompt], LENGTH).tokens[0]
            if found.tokens != plain:
                first = next(i for i, (a, b) in enumerate(zip(found.tokens, plain, strict=False)) if a != b)
                assert top_two_margin(target, [*prompt, *plain[:first]]) < 1e-3
