"""What is made at the size of a real model: no tensor of the size of batch x context x vocabulary, or anything like it."""

import pytest
import torch

from drafters.decode import decode
from drafters.model import Drafter
from tests.drafters.configs import drafter_config
from tests.largest import Largest

LENGTHS = (300, 5, 120, 41)


@pytest.fixture
def prompts(tiny):
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(4, 200, (length,), generator=generator).tolist() for length in LENGTHS]


@pytest.fixture
def drafter(tiny):
    shape = {"vocab_size": tiny.vocab_size, "hidden_size": tiny.hidden_size, "num_target_layers": tiny.num_layers}
    return Drafter(drafter_config(**shape, target_layer_ids=(1, 3))).initialise(0).eval()


def test_prefill_makes_no_logits_but_the_last_and_no_mask(tiny, drafter, prompts):
    with Largest() as largest:
        decode(tiny, drafter, prompts, max_new_tokens=2)
    states = len(LENGTHS) * max(LENGTHS) * 2 * tiny.hidden_size  # of two layers, which the drafter reads
    assert states <= largest.numel < 2 * states
    # what it must not make: logits of all positions, and a mask of all pairs of positions
    assert 2 * states < len(LENGTHS) * max(LENGTHS) * min(tiny.vocab_size, max(LENGTHS))
