"""What is made at the size of a real model: nothing of the size of batch x context x vocabulary, or the like."""

from dataclasses import dataclass

import pytest
import torch

from drafters.decoding.decode import decode
from drafters.decoding.sampling import Sampling
from drafters.evaluation.arms import BlockArm
from drafters.evaluation.prefix import Prefix
from drafters.model.drafter import Drafter
from drafters.prompts.sources import load_prompts
from drafters.target.frozen import Target
from tests import second_device
from tests.drafters.configs import drafter_config
from tests.largest import Largest

LENGTHS = (300, 5, 120, 41)


@pytest.fixture
def prompts(tiny):
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(4, 200, (length,), generator=generator).tolist() for length in LENGTHS]


def drafter_of(target, **changes):
    shape = {"vocab_size": target.vocab_size, "hidden_size": target.hidden_size, "num_target_layers": target.num_layers}
    return Drafter(drafter_config(**shape, target_layer_ids=(1, 3), **changes)).initialise(0).eval()


@dataclass
class Crossings:
    """What came from the other device, or went there: numbers that were waited for, tensors, and their elements."""

    waits: int = 0
    copies: int = 0
    elements: int = 0


@pytest.fixture
def crossings(monkeypatch):
    seen, run = Crossings(), second_device.run

    def counting(func, args, kwargs):
        out = run(func, args, kwargs)
        if isinstance(out, bool | int | float) and isinstance(args[0], second_device.Elsewhere):
            seen.waits += 1
        elif isinstance(out, torch.Tensor) and isinstance(args[0], torch.Tensor) and args[0].device != out.device:
            seen.elements += out.numel()
            seen.copies += 1
        return out

    monkeypatch.setattr(second_device, "run", counting)
    return seen


def test_prefill_makes_no_logits_but_the_last_and_no_mask(tiny, prompts):
    drafter = drafter_of(tiny)
    with Largest() as largest:
        decode(tiny, drafter, prompts, max_new_tokens=2)
    states = len(LENGTHS) * max(LENGTHS) * 2 * tiny.hidden_size  # of two layers, which the drafter reads
    assert states <= largest.numel < 2 * states
    # what it must not make: logits of all positions, and a mask of all pairs of positions
    assert 2 * states < len(LENGTHS) * max(LENGTHS) * min(tiny.vocab_size, max(LENGTHS))


def test_decoding_waits_for_the_device_as_often_whatever_the_drafters_depth(target_folder, prompts, crossings):
    found = []
    with second_device.second_device() as device:
        target = Target.load(str(target_folder), device=device)
        for depth in (1, 4):
            drafter = drafter_of(target, num_layers=depth).to(device)
            decode(target, drafter, prompts[1:2], max_new_tokens=2)  # the first decoding checks the target's masks
            crossings.waits = crossings.copies = crossings.elements = 0
            (sequence,) = decode(target, drafter, prompts[1:2], max_new_tokens=8).sequences
            found.append((len(sequence.steps), crossings.waits, crossings.copies))
            assert len(sequence.steps) > 3 and crossings.elements < 2 * target.vocab_size  # its ids go there once
    assert found[0] == found[1]
    assert found[0][2] > 0


@pytest.mark.parametrize("sampling", [Sampling(1.0, top_p=0.9), Sampling(1.0, greedy_draft=True)])
def test_sampling_moves_tokens_and_no_distribution(target_folder, prompts, crossings, sampling):
    settings = {"max_new_tokens": 8, "sampling": sampling}
    here = Target.load(str(target_folder))
    expected = decode(here, drafter_of(here), prompts[1:], **settings).sequences
    with second_device.second_device() as device:
        target = Target.load(str(target_folder), device=device)
        drafter = drafter_of(target).to(device)
        crossings.elements = 0
        found = decode(target, drafter, prompts[1:], **settings).sequences
    there = len(prompts[1:]) * max(LENGTHS[1:])  # the padded prompts
    assert crossings.elements < there + 2 * target.vocab_size
    assert found == expected


def test_an_evaluation_leaves_hidden_states_where_they_are(workplace, target_folder, crossings):
    asked = load_prompts(["test.jsonl"])
    with second_device.second_device() as device:
        target = Target.load(str(target_folder), device=device)
        arm = BlockArm(drafter_of(target, fusion="gated"), target, device)
        crossings.elements = 0
        (rows,) = Prefix(target, "e", lambda prompt: {}).batch(asked, [arm])
    tokens = sum(row["prompt_tokens"] + row["output_tokens"] - 1 for row in rows.tables["prompts"])
    assert len(rows.tables["gate_stats"]) == 4 * len(asked)
    # five numbers for every token and target layer, and what is negligible beside them, ids above all
    assert 10 * tokens <= crossings.elements < 12 * tokens < tokens * 2 * target.hidden_size
