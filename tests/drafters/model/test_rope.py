"""Rotary embeddings: whole and partial heads, scalings, old spellings; and what no drafter can have."""

import pytest
import torch
import transformers as tf
from transformers.models.stablelm import modeling_stablelm as stablelm

from analysis.errors import DataError
from drafters.axes import DrafterChoice, complete
from drafters.checkpoints.layouts import parse_config, zlab_config
from drafters.model.drafter import Drafter
from drafters.model.rotary import rotate
from drafters.target.frozen import Target
from tests.drafters.configs import drafter_config
from tests.tiny import tiny_target, tiny_tokenizer

YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 1024}


def partial_target(**rope):
    config = tf.StableLmConfig(
        vocab_size=272,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=2,
        eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.25} | rope,
    )
    return Target(tf.StableLmForCausalLM(config), tiny_tokenizer(), "partial")


def choice(**changes):
    return DrafterChoice(**({"num_layers": 1, "target_layers": (0, 2), "block_size": 4, "mask_token_id": 3} | changes))


def published(**changes):
    return zlab_config(complete(choice(), tiny_target())) | changes


def test_a_drafter_rotates_the_part_of_the_head_that_its_target_rotates():
    target = partial_target()
    drafter = Drafter(complete(choice(), target))
    theirs = stablelm.StableLmRotaryEmbedding(target.model.config)
    assert torch.equal(drafter.inv_freq, theirs.inv_freq)
    x, positions = torch.randn(1, 5, 2, 16), torch.arange(5)
    cos, sin = drafter.rotary(positions)
    turned = rotate(x, cos[:, None], sin[:, None])
    rotated, _ = stablelm.apply_rotary_pos_emb(x[..., :4], x[..., :4], *theirs(x, positions[None]), unsqueeze_dim=2)
    torch.testing.assert_close(turned[..., :4], rotated)
    assert torch.equal(turned[..., 4:], x[..., 4:])


def test_a_partial_rotation_is_drafted_and_exported_as_one():
    config = parse_config(published(rope_parameters={"rope_theta": 1e4, "partial_rotary_factor": 0.5}), "oak")
    assert 2 * Drafter(config).inv_freq.numel() == config.head_dim / 2
    again = zlab_config(config)
    assert (again["rope_parameters"]["partial_rotary_factor"], again["partial_rotary_factor"]) == (0.5, 0.5)
    assert parse_config(again, "oak") == config


@pytest.mark.parametrize("factor", [0.0, 0.4, 1.5])  # of a head of 8: 0, 3 and 12 dimensions
def test_a_part_that_cannot_be_rotated_is_refused(factor):
    rope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": factor}
    with pytest.raises(ValueError, match="partial_rotary_factor"):
        drafter_config(rope_parameters=rope)


@pytest.mark.parametrize("kind", ["dynamic", "longrope", "of_tomorrow"])
def test_a_rotation_that_depends_on_the_length_is_refused(kind):
    with pytest.raises(DataError, match=f"rope_type {kind}"):
        parse_config(published(rope_parameters={"rope_type": kind, "rope_theta": 1e4, "factor": 2.0}), "oak")


def test_a_target_with_such_a_rotation_is_refused():
    target = tiny_target()
    target.model.config.rope_parameters = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    with pytest.raises(DataError, match="rope_type dynamic"):
        complete(choice(), target)


def test_of_a_target_with_two_rotations_the_one_of_full_attention_is_taken():
    target = tiny_target()
    ropes = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}, "full_attention": YARN}
    target.model.config.rope_parameters = ropes
    assert complete(choice(), target).rope_parameters == YARN


@pytest.mark.parametrize(
    "older",
    [
        {"rope_scaling": {k: v for k, v in YARN.items() if k != "rope_theta"}, "rope_theta": 1e4},
        {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}, "rope_theta": 1e4},
        {"rope_parameters": YARN, "rope_theta": 1e4},
    ],
)
def test_older_spellings_are_the_same_rotation(older):
    data = {name: value for name, value in published().items() if not name.startswith("rope")}
    config = parse_config(data | older, "oak")
    assert config.rope_parameters == YARN
    assert parse_config(zlab_config(config), "oak") == config
    plain = parse_config(data | {"rope_theta": 1e4}, "oak")
    assert not torch.equal(Drafter(config).inv_freq, Drafter(plain).inv_freq)


def test_spellings_that_disagree_are_refused():
    with pytest.raises(DataError, match="rope_theta"):
        parse_config(published(rope_theta=5e5), "oak")


@pytest.mark.parametrize(
    "change",
    [
        {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0, "layer_types": None},
        {"sliding_window": 64, "layer_types": None},
        {"layer_types": ["sliding_attention"]},
        {"hidden_act": "gelu"},
        {"model_type": "llama"},
        {"mlp_bias": True},
        {"is_causal": True},
        {"causal": True},
        {"final_logit_softcapping": 30.0},
        {"attn_logit_softcapping": 30.0},
        {"dflash_config": published()["dflash_config"] | {"causal": True}},
        {"dflash_config": published()["dflash_config"] | {"selector_rank": 64}},
    ],
)
def test_what_another_drafter_computes_is_refused_by_name(change):
    with pytest.raises(DataError, match=r"causal|selector_rank|sliding-window|" + next(iter(change))):
        parse_config(published(**change), "oak")


@pytest.mark.parametrize(
    "change",
    [
        {"use_sliding_window": False, "sliding_window": 64, "layer_types": None},
        {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1, "layer_types": None},
        {"sliding_window": None, "final_logit_softcapping": None, "is_causal": False, "rope_scaling": None},
    ],
)
def test_fields_that_change_nothing_are_read_over(change):
    assert parse_config(published(**change), "oak") == parse_config(published(), "oak")
