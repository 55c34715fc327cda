"""Layer-wise fusion and separate context projections, against their formulas in numpy."""

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from drafters.model.drafter import Drafter
from drafters.model.layerwise import initial_logits
from tests.drafters.configs import drafter_config

EPS = 1e-6
SHAPES = [(1, 5), (2, 5), (7, 9), (9, 6), (5, 7)]  # draft layers, target layers


def config_of(draft_layers, target_layers, fusion="layerwise", **changes):
    ids = tuple(range(1, target_layers + 1))
    return drafter_config(num_layers=draft_layers, target_layer_ids=ids, num_target_layers=14, fusion=fusion, **changes)


def drafter_of(draft_layers=2, target_layers=5, fusion="layerwise", **changes):
    """Initialised, with norms away from 1 and a gate away from 0."""
    drafter = Drafter(config_of(draft_layers, target_layers, fusion, **changes)).initialise(0).eval()
    g = torch.Generator().manual_seed(1)
    for name, parameter in drafter.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, mean=1.0, std=0.2, generator=g)
        if name.startswith("fusion.gate"):
            torch.nn.init.normal_(parameter, std=0.3, generator=g)
        if name == "fusion.layer_fusion_weights":
            torch.nn.init.normal_(parameter, generator=g)
    return drafter


def features_of(target_layers, length=6, hidden=24, seed=3):
    """Later states are larger, as in a real target."""
    g = torch.Generator().manual_seed(seed)
    scale = torch.arange(1, target_layers + 1)[:, None] * 2.0
    return torch.randn(2, length, target_layers, hidden, generator=g) * scale


def array(tensor):
    return tensor.detach().double().numpy()


def norm(x):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + EPS)


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class TestFormula:
    """What the docstring of drafters.model.layerwise says, once more in numpy."""

    @pytest.mark.parametrize("draft_layers,target_layers", SHAPES)
    @pytest.mark.parametrize("fusion", ["layerwise", "layerwise_gated"])
    @pytest.mark.parametrize("place", ["after", "before"])
    def test_context_features(self, draft_layers, target_layers, fusion, place):
        fused = drafter_of(draft_layers, target_layers, fusion, fusion_norm=place).fusion
        features = features_of(target_layers)
        h, scale = array(features), array(fused.hidden_norm.weight)
        found = fused(features)
        assert len(found) == draft_layers
        for i in range(draft_layers):
            logits = array(fused.layer_fusion_weights)[i]
            if fusion == "layerwise_gated":
                logits = logits + norm(h[..., -1, :]) @ array(fused.gate.weight)[i].T
            alpha = softmax(logits)[..., None]
            if place == "after":
                expected = norm((alpha * h).sum(-2)) * scale
            else:
                expected = (alpha * norm(h) * scale).sum(-2)
            np.testing.assert_allclose(array(found[i]), expected, atol=1e-6, rtol=1e-6)

    def test_shares_are_projections_on_the_sum(self):
        for place in ("after", "before"):
            fused = drafter_of(3, 5, "layerwise_gated", fusion_norm=place).fusion
            features = features_of(5)
            shares = fused.contribution_shares(features)
            torch.testing.assert_close(shares.sum(-1), torch.ones(2, 6, 3), rtol=1e-5, atol=1e-5)
            alpha, h = array(fused.weights(features)), array(features)
            if place == "before":
                h = norm(h) * array(fused.hidden_norm.weight)
            parts = alpha[1, 4, 2][:, None] * h[1, 4]
            u = parts.sum(0)
            np.testing.assert_allclose(array(shares)[1, 4, 2], parts @ u / (u @ u), atol=1e-5)

    def test_one_block_with_separate_projections(self):
        """Attention of one block over four context tokens and itself: the whole layer's arithmetic."""
        for own in ("shared", "own"):
            drafter = drafter_of(1, 5, kv="separate", kv_norm=own)
            attention, config = drafter.layers[0].self_attn, drafter.config
            g = torch.Generator().manual_seed(4)
            context, block = torch.randn(4, 24, generator=g), torch.randn(6, 24, generator=g)
            cos, sin = drafter.rotary(torch.arange(4))
            ck, cv = attention.project_context(context[None], cos, sin)
            cos, sin = (part[None, None, :, None] for part in drafter.rotary(torch.arange(4, 10)))
            found = attention(block[None, None], ck, cv, torch.tensor([[4]]), cos, sin, None)[0, 0]

            d = config.head_dim
            w = {name: array(parameter) for name, parameter in attention.named_parameters()}

            def heads(x, name, d=d, w=w):
                return (array(x) @ w[f"{name}.weight"].T).reshape(len(x), -1, d)

            def turn(x, start, d=d):
                angle = (start + np.arange(len(x)))[:, None] * 10000.0 ** (-np.arange(0, d, 2) / d)
                a, b, c, s = x[..., : d // 2], x[..., d // 2 :], np.cos(angle)[:, None], np.sin(angle)[:, None]
                return np.concatenate((a * c - b * s, b * c + a * s), -1)

            k_norm = w["k_norm_target.weight" if own == "own" else "k_norm.weight"]
            q = turn(norm(heads(block, "q_proj")) * w["q_norm.weight"], 4)
            k = np.concatenate(
                (
                    turn(norm(heads(context, "k_proj_target")) * k_norm, 0),
                    turn(norm(heads(block, "k_proj")) * w["k_norm.weight"], 4),
                )
            )
            v = np.concatenate((heads(context, "v_proj_target"), heads(block, "v_proj")))
            out = np.zeros((6, 4, d))
            for head in range(4):
                shared = head // 2  # two query heads read one key head
                out[:, head] = softmax(q[:, head] @ k[:, shared].T / math.sqrt(d)) @ v[:, shared]
            expected = out.reshape(6, -1) @ w["o_proj.weight"].T
            np.testing.assert_allclose(array(found), expected, atol=1e-6, rtol=0)


class TestStart:
    def test_view_by_depth(self):
        # seven draft layers over nine target layers, as published
        assert initial_logits("depth", 7, 9).argmax(-1).tolist() == [0, 1, 2, 3, 5, 6, 7]
        assert initial_logits("depth", 2, 3).tolist() == [[2, 0, 0], [0, 2, 0]]
        assert initial_logits("depth", 9, 5).argmax(-1).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4]

    def test_view_by_distance(self):
        assert initial_logits("distance", 7, 9).argmax(-1).tolist() == [0, 1, 3, 4, 5, 7, 8]
        assert initial_logits("distance", 2, 3).tolist() == [[0, -2, -4], [-4, -2, 0]]
        assert initial_logits("distance", 1, 5).argmax(-1).tolist() == [0]

    def test_uniform_is_the_mean(self):
        drafter = Drafter(config_of(3, 5, fusion_init="uniform"))
        features = features_of(5)
        mean = norm(array(features).mean(-2))
        for context in drafter.fusion(features):
            np.testing.assert_allclose(array(context), mean, atol=1e-6)

    def test_initialising_draws_no_fusion_weight(self):
        for fusion in ("layerwise", "layerwise_gated"):
            drafter = Drafter(config_of(7, 9, fusion)).initialise(5)
            assert torch.equal(drafter.fusion.layer_fusion_weights, initial_logits("depth", 7, 9))

    @pytest.mark.parametrize("draft_layers,target_layers", SHAPES)
    @pytest.mark.parametrize("place", ["after", "before"])
    def test_an_untrained_gate_changes_no_bit(self, draft_layers, target_layers, place):
        plain, gated = (
            Drafter(config_of(draft_layers, target_layers, f, fusion_norm=place)).initialise(3)
            for f in ("layerwise", "layerwise_gated")
        )
        embeddings = torch.randn(2, 3, 6, 24, generator=torch.Generator().manual_seed(0))
        anchors = torch.tensor([[0, 2, 5], [6, 1, 3]])
        outputs = [d.draft_hidden(features_of(target_layers), embeddings, anchors) for d in (plain, gated)]
        assert torch.equal(*outputs)

    def test_an_untrained_gate_learns(self):
        drafter = Drafter(config_of(2, 5, "layerwise_gated", kv="separate")).initialise(3)
        embeddings = torch.randn(2, 1, 6, 24, generator=torch.Generator().manual_seed(0))
        drafter.draft_hidden(features_of(5), embeddings, torch.tensor([[4], [6]])).square()[..., 0].sum().backward()
        for name, parameter in drafter.named_parameters():
            assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


class TestOneHot:
    """All weight on one target layer, and no norm: that layer is read directly."""

    def pick(self, fusion, choices):
        with torch.no_grad():
            fusion.layer_fusion_weights.fill_(-1e4)
            for layer, choice in enumerate(choices):
                fusion.layer_fusion_weights[layer, choice] = 0.0

    def test_context_is_that_state(self):
        fusion = Drafter(config_of(3, 5)).fusion
        self.pick(fusion, [4, 0, 2])
        fusion.hidden_norm = torch.nn.Identity()
        features = features_of(5)
        for context, choice in zip(fusion(features), [4, 0, 2], strict=True):
            assert torch.equal(context, features[..., choice, :])

    def test_drafter_is_the_one_that_projects_nothing_else(self):
        layerwise = Drafter(config_of(2, 5)).initialise(0)
        self.pick(layerwise.fusion, [3, 3])
        concat = Drafter(config_of(2, 5, "concat")).initialise(0)
        with torch.no_grad():
            concat.fusion.fc.weight.zero_()[:, 3 * 24 : 4 * 24].fill_diagonal_(1.0)
        embeddings = torch.randn(2, 1, 6, 24, generator=torch.Generator().manual_seed(0))
        outputs = [d.draft_hidden(features_of(5), embeddings, torch.tensor([[4], [6]])) for d in (layerwise, concat)]
        torch.testing.assert_close(*outputs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("fusion", ["concat", "gated", "layerwise", "layerwise_gated"])
@pytest.mark.parametrize("own", ["shared", "own"])
def test_separate_projections_equal_to_the_shared_ones_are_shared(fusion, own):
    shared = drafter_of(2, 5, fusion)
    separate = Drafter(config_of(2, 5, fusion, kv="separate", kv_norm=own))
    weights = dict(shared.named_parameters())
    with torch.no_grad():
        for name, parameter in separate.named_parameters():
            parameter.copy_(weights[name.replace("_target", "")])
    embeddings = torch.randn(2, 1, 6, 24, generator=torch.Generator().manual_seed(0))
    outputs = [d.draft_hidden(features_of(5), embeddings, torch.tensor([[4], [6]])) for d in (shared, separate)]
    assert torch.equal(*outputs)
    # and each is read: the context's by the context alone, the block's by the block alone
    for name, reads in (("k_proj_target", "context"), ("v_proj_target", "context"), ("v_proj", "block")):
        before = getattr(separate.layers[0].self_attn, name).weight.clone()
        with torch.no_grad():
            getattr(separate.layers[0].self_attn, name).weight.mul_(1.5)
        first = separate.draft_hidden(features_of(5), embeddings, torch.tensor([[0], [6]]))
        with torch.no_grad():
            getattr(separate.layers[0].self_attn, name).weight.copy_(before)
        # a block at anchor 0 has no context
        alone = shared.draft_hidden(features_of(5), embeddings, torch.tensor([[0], [6]]))
        assert torch.equal(first[0], alone[0]) == (reads == "context"), name
        assert not torch.equal(first[1], alone[1]), name


def test_parameters_are_counted_by_item():
    # Qwen3-8B's shapes: DFlash with five layers of each, DFlare with seven and nine, as published
    shapes = {
        "num_target_layers": 36,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
    }
    layer = 4096 * 4096 * 2 + 4096 * 1024 * 2 + 4096 * 12288 * 3 + 2 * 128 + 2 * 4096
    with torch.device("meta"):
        dflash = Drafter(drafter_config(**shapes, num_layers=5, target_layer_ids=(1, 9, 17, 25, 33)))
        ids = tuple(range(1, 34, 4))
        dflare = Drafter(
            drafter_config(**shapes, num_layers=7, target_layer_ids=ids, fusion="layerwise", kv="separate")
        )
        gated = Drafter(drafter_config(**shapes, num_layers=7, target_layer_ids=ids, fusion="layerwise_gated"))
    assert dflash.parameter_counts() == {
        "fc": 5 * 4096 * 4096,
        "norms": 2 * 4096,
        "layers": 5 * layer,
        "total": 5 * 4096 * 4096 + 2 * 4096 + 5 * layer,
    }
    assert dflare.parameter_counts() == {
        "layer_fusion_weights": 7 * 9,
        "norms": 2 * 4096,
        "layers": 7 * layer,
        "context_kv": 7 * 2 * 4096 * 1024,
        "total": 63 + 2 * 4096 + 7 * (layer + 2 * 4096 * 1024),
    }
    assert gated.parameter_counts()["gate"] == 7 * 9 * 4096


def test_a_norm_of_their_own_wants_separate_keys():
    with pytest.raises(ValidationError, match="kv: separate"):
        drafter_config(kv_norm="own")
