"""Replay against decoding on the embedded real target, step by step but for named near-ties. Minutes long."""

import pytest

from drafters.axes import DrafterChoice, complete
from drafters.decoding.decode import decode
from drafters.evaluation.arms import BlockArm, LookupArm
from drafters.evaluation.generation import top_two_margin
from drafters.evaluation.replay import Replay, ReplaySettings
from drafters.model.drafter import Drafter
from drafters.prompts.identity import Prompt, messages
from drafters.target import smollm2
from drafters.target.frozen import Target

LENGTH, COUNT = 48, 100

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not smollm2.converted_folder().exists(), reason="smollm2 was never converted here"),
]


def test_the_walk_is_decoding_on_a_hundred_answers(tmp_path, monkeypatch):
    target = Target.load("smollm2")
    monkeypatch.setenv("DRAFTLAB_CACHE", str(tmp_path / "cache"))
    choice = DrafterChoice(num_layers=1, target_layers=3, block_size=8, mask_token_id=16)
    drafter = Drafter(complete(choice, target)).initialise(0)
    prompts = [
        Prompt(prompt_id=str(n), dataset="sums", turns=(f"What is {n} plus {3 * n + 1}?",), cluster_id=str(n))
        for n in range(COUNT)
    ]
    protocol = Replay(target, "x", lambda prompt: {}, ReplaySettings(max_new_tokens=LENGTH, keep_output=True))
    rows, lookups = (found.tables for found in protocol.batch(prompts, [BlockArm(drafter, target), LookupArm(8)]))
    encoded = [target.encode_chat(messages(prompt)) for prompt in prompts]
    decoded = decode(target, drafter, encoded, max_new_tokens=LENGTH).sequences
    compared = 0
    for prompt, asked, row, found in zip(prompts, encoded, rows["prompts"], decoded, strict=True):
        if found.tokens != row["output_ids"]:
            first = next(i for i, (a, b) in enumerate(zip(found.tokens, row["output_ids"], strict=False)) if a != b)
            assert top_two_margin(target, [*asked, *found.tokens[:first]]) < 1e-2, prompt.prompt_id
            continue
        steps = [
            (s["position"], s["accepted"], s["ended"]) for s in rows["acceptance"] if s["prompt_id"] == prompt.prompt_id
        ]
        expected = [(p, s.accepted, s.ended) for p, s in zip(found.positions, found.steps, strict=True)]
        assert steps == expected, f"prompt {prompt.prompt_id}: the drafter itself is near a tie"
        compared += 1
    assert compared >= 0.9 * COUNT
    emitted = [s["emitted"] for s in lookups["acceptance"]]
    assert sum(emitted) / len(emitted) > 1  # prompt lookup finds something in repeated digits
