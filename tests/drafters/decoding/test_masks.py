"""Masks in every attention implementation, held against decoding without any."""

from functools import partial

import pytest
import torch
import transformers as tf
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from transformers import masking_utils
from transformers.integrations import flex_attention as integration

from analysis.errors import DataError
from drafters.axes import DrafterChoice, complete
from drafters.decoding.decode import decode
from drafters.model.drafter import Drafter
from drafters.target.frozen import Target
from tests.tiny import tiny_target, tiny_tokenizer

IMPLEMENTATIONS = ["sdpa", "eager", "flex_attention"]
PROMPTS = [[5, 6, 7, 8, 9, 10], [11, 12], [13, 14, 15, 16]]


def eager_block_mask(create, *args, _compile, **options):
    return create(*args, **options)


@pytest.fixture
def uncompiled(monkeypatch):
    """The reference implementation of flex attention: compiling it takes a minute."""
    monkeypatch.setattr(masking_utils, "create_block_mask", partial(eager_block_mask, create_block_mask))
    monkeypatch.setattr(integration, "WrappedFlexAttention", lambda training: lambda: flex_attention)


def drafter_for(target):
    choice = DrafterChoice(num_layers=1, target_layers=(0, 2), block_size=4, intermediate_size=64, mask_token_id=3)
    return Drafter(complete(choice, target)).initialise(0).eval()


def plain(target, count=8):
    return [target.greedy([prompt], count, stop=False).tokens[0] for prompt in PROMPTS]


def decoded(target, prompts, drafter=None):
    return [s.tokens for s in decode(target, drafter, prompts, max_new_tokens=8, stop_ids=frozenset()).sequences]


@pytest.mark.filterwarnings("ignore")  # flex attention says that it is not compiled
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_drafted_output_is_plain_output(implementation, uncompiled, tmp_path):
    target = tiny_target(layers=4)
    expected = plain(target)
    target.model.save_pretrained(tmp_path)
    target.tokenizer.save_pretrained(tmp_path)
    model = tf.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation=implementation)
    target = Target(model, target.tokenizer, "tiny")
    assert target.attention == implementation
    assert decoded(target, PROMPTS, drafter_for(target)) == expected


def test_an_implementation_that_takes_no_mask_is_refused():
    target = tiny_target()
    target.attention = "flash_attention_2"
    with pytest.raises(DataError, match="flash_attention_2"):
        decoded(target, PROMPTS, drafter_for(target))


def own_attention(name):
    configs = {
        "gpt_neo": tf.GPTNeoConfig(
            vocab_size=272,
            hidden_size=32,
            num_layers=4,
            num_heads=4,
            attention_types=[[["global"], 4]],
            eos_token_id=2,
            bos_token_id=0,
        ),
        "bloom": tf.BloomConfig(vocab_size=272, hidden_size=32, n_layer=4, n_head=4, eos_token_id=2),
        "mpt": tf.MptConfig(vocab_size=272, d_model=32, n_layers=4, n_heads=4, eos_token_id=2),
    }
    torch.manual_seed(0)
    model = tf.AutoModelForCausalLM.from_config(configs[name])
    return Target(model, tiny_tokenizer(), name)


@pytest.mark.parametrize("name", ["gpt_neo", "mpt"])
def test_a_model_with_attention_of_its_own_that_reads_the_mask(name):
    target = own_attention(name)
    assert decoded(target, PROMPTS, drafter_for(target)) == plain(target)


def test_a_model_that_ignores_masks_or_positions_is_refused():
    target = own_attention("bloom")
    with pytest.raises(DataError, match="does not decode rows of different lengths"):
        decoded(target, PROMPTS)


def test_local_attention_is_refused():
    target = own_attention("gpt_neo")
    target.model.config.attention_layers = ["global", "local"] * 2
    with pytest.raises(DataError, match="local"):
        decoded(target, PROMPTS)
