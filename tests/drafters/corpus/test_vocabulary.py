"""Choosing a draft vocabulary, and a vocabulary that grows with the prompt."""

import numpy as np
import pytest
import torch

from analysis.errors import DataError, run_command
from analysis.runlog.reading import Run
from drafters.axes import DrafterChoice, complete
from drafters.checkpoints.folder import load_drafter
from drafters.checkpoints.run_files import FINAL
from drafters.commands import evaluate, export, train
from drafters.corpus.vocabulary import draft_vocabulary
from drafters.decoding.decode import decode
from drafters.model.drafter import Drafter
from drafters.model.head import Head, vocabulary_of
from drafters.prompts.identity import messages
from drafters.prompts.sources import load_prompts
from drafters.target.frozen import Target
from tests.tiny import tiny_target

ANSWERS = np.array([0, 5, 0, 2, 0, 2, 0, 0, 0])
PROMPTS = np.array([0, 9, 3, 0, 0, 0, 4, 0, 0])


@pytest.mark.parametrize(
    ("count", "ids", "sources"),
    [
        (2, (1, 3), (2, 0, 0)),  # of 3 and 5, equally frequent, the smaller id
        (3, (1, 3, 5), (3, 0, 0)),
        (4, (1, 3, 5, 6), (3, 1, 0)),
        (5, (1, 2, 3, 5, 6), (3, 2, 0)),
        (6, (1, 2, 3, 4, 5, 6), (3, 2, 1)),  # 0 is the mask
        (8, (1, 2, 3, 4, 5, 6, 7, 8), (3, 2, 3)),
    ],
)
def test_answers_then_prompts_then_the_order_of_the_target(count, ids, sources):
    found = draft_vocabulary(count, ANSWERS, PROMPTS, mask_token_id=0)
    assert found.ids == ids
    assert (found.from_answers, found.from_prompts, found.from_order) == sources
    assert (found.note is None) == (sources == (count, 0, 0))


def test_more_than_the_target_has_is_refused():
    with pytest.raises(DataError, match="the target has 8 tokens"):
        draft_vocabulary(9, ANSWERS, PROMPTS, mask_token_id=0)


def test_a_vocabulary_that_the_answers_do_not_fill_is_filled_and_told(workplace, capsys):
    assert run_command(train.main, ["arm.yaml", "--set", "drafter.draft_vocab=250", "--set", "training.steps=1"]) == 0
    manifest = Run.open("arm").manifest
    assert manifest.drafter.config["draft_vocab"] == 250
    assert any("answers hold" in caveat and "of 250 tokens" in caveat for caveat in manifest.caveats)
    assert "draft vocabulary" in capsys.readouterr().err


def drafter_of(target, vocab, **choice):
    fields = {"num_layers": 1, "target_layers": (0, 2), "block_size": 4, "mask_token_id": 3, "draft_vocab": len(vocab)}
    return Drafter(complete(DrafterChoice(**fields | choice), target, vocab)).initialise(0).eval()


def test_rows_of_each_sequence_are_the_shared_ones_and_its_prompts():
    target = tiny_target()
    drafter = drafter_of(target, (10, 20, 30), prompt_tokens=True)
    head = Head(target, drafter.config)
    outputs = head.outputs([[5, 20, 5], [7]])
    assert outputs.ids.tolist() == [10, 20, 30, 5, 7]
    assert outputs.allowed.tolist() == [[True, True, True, True, False], [True, True, True, False, True]]
    assert torch.equal(outputs.weight, target.head_weight[[10, 20, 30, 5, 7]])
    labels = torch.tensor([[5, 7, 20, -1], [5, 7, 10, -1]])
    assert outputs.rows(labels).tolist() == [[3, -1, 1, -1], [-1, 4, 0, -1]]
    logits = outputs.logits(torch.ones(2, 3, 32))
    assert logits.isinf().any(1).tolist() == [[False, False, False, False, True], [False, False, False, True, False]]
    assert vocabulary_of(drafter.config, [5, 20, 5]) == {5, 10, 20, 30}


def test_decoding_stays_lossless_and_drafts_from_the_prompt():
    target = tiny_target()
    prompts = [[5, 6, 7, 8, 9, 10], [11, 12], [13, 14, 15, 16]]
    plain = [target.greedy([p], 24, stop=False).tokens[0] for p in prompts]
    drafter = drafter_of(target, tuple(range(20, 40)), prompt_tokens=True)
    found = decode(target, drafter, prompts, max_new_tokens=24, stop_ids=frozenset()).sequences
    assert [s.tokens for s in found] == plain
    for prompt, sequence in zip(prompts, found, strict=True):
        for step, start in zip(sequence.steps, sequence.positions, strict=True):
            token = sequence.tokens[start - len(prompt) + step.emitted]  # the target's own, after what was accepted
            known = token in {*range(20, 40), *prompt}
            assert step.ended != "vocabulary" or not known


def test_prompt_tokens_cover_more_are_counted_and_never_exported(workplace, capsys):
    more = ["--set", "training.steps=2", "--set", "drafter.draft_vocab=20"]
    assert run_command(train.main, ["arm.yaml", *more, "--run", "runs/few"]) == 0
    argv = ["arm.yaml", *more, "--set", "drafter.prompt_tokens=true", "--run", "runs/more"]
    assert run_command(train.main, argv) == 0
    assert run_command(evaluate.main, ["few", "more", "--prompts", "test.jsonl"]) == 0
    covered = {}
    for name in ("few", "more"):
        (found,) = Run.open(name).manifest.evaluations.values()
        (dataset,) = found.datasets.values()
        covered[name] = dataset["vocabulary_coverage"]
    drafter = load_drafter(f"runs/more/checkpoints/{FINAL}")
    assert drafter.config.prompt_tokens
    target = Target.load(Run.open("more").manifest.training.settings["target"])
    wanted = known = 0
    for prompt in load_prompts(["test.jsonl"]):
        asked = target.encode_chat(messages(prompt))
        answer = target.greedy([asked], 6).tokens[0][1:]
        wanted += len(answer)
        known += sum(token in {*drafter.config.draft_vocab, *asked} for token in answer)
    assert covered["more"] == known / wanted > covered["few"]
    for layout in ("zlab", "speculators"):
        assert run_command(export.main, ["more", f"out-{layout}", "--format", layout]) == 65
        assert "prompt_tokens" in capsys.readouterr().err


def test_prompt_tokens_without_a_draft_vocabulary_are_refused(workplace, capsys):
    argv = ["arm.yaml", "--set", "drafter.draft_vocab=null", "--set", "drafter.prompt_tokens=true"]
    assert run_command(train.main, argv) == 65
    assert "prompt_tokens is for a draft_vocab" in capsys.readouterr().err
