"""The drafter against a dense mask, against its mask's promises, and against the reference implementation."""

import math
import pathlib

import pytest
import torch

from drafters.model import drafter as model_module
from drafters.model.drafter import Drafter, block_attention
from drafters.model.fusion import ACTIVATIONS, rms_normalise
from tests.drafters.configs import drafter_config

S, N = 20, 5
ANCHORS = torch.tensor([[0, 3, 7, 8, 19], [20, 1, 1, 12, 5]])


def inputs(config, seed=0, length=S, batch=2):
    g = torch.Generator().manual_seed(seed)
    features = torch.randn(batch, length, len(config.target_layer_ids), config.hidden_size, generator=g)
    embeddings = torch.randn(batch, N, config.block_size, config.hidden_size, generator=g)
    return features, embeddings


def test_block_attention_is_one_softmax_under_the_dense_mask():
    g = torch.Generator().manual_seed(1)
    b, size, heads, kv, d = 2, 6, 4, 2, 8
    q = torch.randn(b, N, size, heads, d, generator=g)
    k, v = torch.randn(2, b, N, size, kv, d, generator=g)
    ck, cv = torch.randn(2, b, kv, S, d, generator=g)
    found = block_attention(q, k, v, ck, cv, ANCHORS)

    # the whole score matrix over [context; every block], with the mask written out
    keys = torch.cat([ck, k.permute(0, 3, 1, 2, 4).flatten(2, 3)], 2).repeat_interleave(heads // kv, 1)
    values = torch.cat([cv, v.permute(0, 3, 1, 2, 4).flatten(2, 3)], 2).repeat_interleave(heads // kv, 1)
    queries = q.permute(0, 3, 1, 2, 4).flatten(2, 3)
    scores = queries @ keys.transpose(-1, -2) / math.sqrt(d)
    mask = torch.zeros(b, N * size, S + N * size, dtype=torch.bool)
    for row in range(b):
        for n in range(N):
            rows = slice(n * size, (n + 1) * size)
            mask[row, rows, : ANCHORS[row, n]] = True
            mask[row, rows, S + n * size : S + (n + 1) * size] = True
    dense = scores.masked_fill(~mask[:, None], float("-inf")).softmax(-1) @ values
    expected = dense.view(b, heads, N, size, d).permute(0, 2, 3, 1, 4)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fusion", ["concat", "gated", "layerwise", "layerwise_gated"])
class TestTheMaskKeepsItsPromises:
    def outputs(self, fusion, change):
        config = drafter_config(fusion=fusion, kv="separate" if fusion.startswith("layerwise") else "shared")
        drafter = Drafter(config).initialise(0)
        if fusion.endswith("gated"):
            torch.nn.init.normal_(drafter.fusion.gate.weight, generator=torch.Generator().manual_seed(9))
        features, embeddings = inputs(config)
        before = drafter.draft_hidden(features, embeddings, ANCHORS)
        change(features, embeddings)
        return before, drafter.draft_hidden(features, embeddings, ANCHORS)

    def test_hidden_states_at_or_after_the_anchor_change_nothing(self, fusion):
        def change(features, embeddings):
            features[0, 7:] += 1.0

        before, after = self.outputs(fusion, change)
        # anchors 0, 3, 7 of the first sequence see none of them; 8 and 19 do
        assert torch.equal(before[0, :3], after[0, :3])
        assert not torch.allclose(before[0, 3], after[0, 3])
        assert torch.equal(before[1], after[1])

    def test_the_last_context_state_matters(self, fusion):
        def change(features, embeddings):
            features[0, 6] += 1.0

        before, after = self.outputs(fusion, change)
        assert torch.equal(before[0, 1], after[0, 1])
        assert not torch.allclose(before[0, 2], after[0, 2])

    def test_another_block_changes_nothing(self, fusion):
        def change(features, embeddings):
            embeddings[0, 2] += 1.0

        before, after = self.outputs(fusion, change)
        untouched = [0, 1, 3, 4]
        assert torch.equal(before[0, untouched], after[0, untouched])
        assert not torch.allclose(before[0, 2], after[0, 2])

    def test_the_block_is_bidirectional(self, fusion):
        def change(features, embeddings):
            embeddings[0, 2, -1] += 1.0

        before, after = self.outputs(fusion, change)
        assert not torch.allclose(before[0, 2, 0], after[0, 2, 0])


def test_block_groups_give_the_same_output_and_gradients(monkeypatch):
    config = drafter_config()
    drafter = Drafter(config).initialise(0)
    features, embeddings = inputs(config)
    drafter.draft_hidden(features, embeddings, ANCHORS).square().sum().backward()
    whole = [p.grad.clone() for p in drafter.parameters()]
    drafter.zero_grad()
    monkeypatch.setattr(model_module, "SCORE_LIMIT", 2 * 4 * 6 * (S + 6) * 2)  # two blocks at a time
    drafter.draft_hidden(features, embeddings, ANCHORS).square().sum().backward()
    for parameter, expected in zip(drafter.parameters(), whole, strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ["sigmoid", "softmax", "tanh", "affine"])
@pytest.mark.parametrize("count", [1, 3, 5, 7, 9])
@pytest.mark.parametrize("gate_input", ["last", "none"])
def test_untrained_gate_is_concat_bit_for_bit(activation, count, gate_input):
    ids = tuple(range(count))
    concat = drafter_config(target_layer_ids=ids, num_target_layers=12)
    gated = drafter_config(
        target_layer_ids=ids, num_target_layers=12, fusion="gated", gate_activation=activation, gate_input=gate_input
    )
    features, embeddings = inputs(concat)
    expected = Drafter(concat).initialise(3).draft_hidden(features, embeddings, ANCHORS)
    assert torch.equal(Drafter(gated).initialise(3).draft_hidden(features, embeddings, ANCHORS), expected)


def test_gate_has_t_times_h_parameters():
    config = drafter_config(
        fusion="gated",
        target_layer_ids=(1, 9, 17, 25, 33),
        num_target_layers=36,
        hidden_size=4096,
        intermediate_size=8,
        num_layers=1,
    )
    with torch.device("meta"):
        counts = Drafter(config).parameter_counts()
    assert counts["gate"] == 20480
    assert counts["fc"] == 5 * 4096 * 4096
    assert counts["total"] == sum(v for k, v in counts.items() if k != "total")


def test_literal_linear_gate_reads_the_raw_state():
    config = drafter_config(fusion="gated", gate_activation="linear")
    fusion = Drafter(config).initialise(0).fusion
    features, _ = inputs(config)
    assert fusion.gate.weight.abs().min() > 0  # at 0 it would switch every feature off
    torch.testing.assert_close(fusion.gate_values(features), features[..., -1, :] @ fusion.gate.weight.T)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_gated_fusion_is_its_formula(activation):
    config = drafter_config(fusion="gated", gate_activation=activation)
    fusion = Drafter(config).initialise(0).fusion
    torch.nn.init.normal_(fusion.gate.weight, generator=torch.Generator().manual_seed(2))
    h = inputs(config)[0].double()
    state = h[..., -1, :]
    if activation != "linear":
        state = state / (state.square().mean(-1, keepdim=True) + config.rms_norm_eps).sqrt()
    z = state @ fusion.gate.weight.double().T
    g = {
        "sigmoid": lambda: 2 / (1 + (-z).exp()),
        "softmax": lambda: 3 * z.exp() / z.exp().sum(-1, keepdim=True),
        "tanh": lambda: 1 + z.tanh(),
        "affine": lambda: 1 + z,
        "linear": lambda: z,
    }[activation]()
    u = torch.cat([g[..., i : i + 1] * h[..., i, :] for i in range(3)], -1) @ fusion.fc.weight.double().T
    expected = u / (u.square().mean(-1, keepdim=True) + config.rms_norm_eps).sqrt()
    torch.testing.assert_close(fusion(h.float())[0].double(), expected, rtol=1e-4, atol=1e-5)


def test_static_gate_folds_into_the_projection():
    config = drafter_config(fusion="gated", gate_input="none")
    gated = Drafter(config).initialise(0)
    torch.nn.init.normal_(gated.fusion.gate.weight, generator=torch.Generator().manual_seed(4))
    concat = Drafter(drafter_config()).initialise(0)
    constants = gated.fusion.gate_values(torch.zeros(1, 3, 24))[0]
    with torch.no_grad():
        concat.fusion.fc.weight.copy_((gated.fusion.fc.weight.unflatten(1, (3, 24)) * constants[:, None]).flatten(1))
    features, embeddings = inputs(config)
    torch.testing.assert_close(
        gated.draft_hidden(features, embeddings, ANCHORS),
        concat.draft_hidden(features, embeddings, ANCHORS),
        rtol=1e-5,
        atol=1e-5,
    )


def test_contributions_add_up():
    config = drafter_config(fusion="gated")
    fusion = Drafter(config).initialise(0).fusion
    torch.nn.init.normal_(fusion.gate.weight, generator=torch.Generator().manual_seed(5))
    features = inputs(config)[0]
    found = fusion.contributions(features)
    torch.testing.assert_close(found.contribution_share.sum(-1), torch.ones(2, S), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.gated_norm, found.gate * found.feature_norm)
    one = fusion.fc.weight[:, 24:48] @ (found.gate[0, 0, 1] * features[0, 0, 1])
    assert float(found.contribution_norm[0, 0, 1]) == pytest.approx(float(one.norm()), rel=1e-5)


def test_arms_of_one_seed_share_their_weights():
    concat, gated = (Drafter(drafter_config(fusion=f)).initialise(7) for f in ("concat", "gated"))
    ours = dict(gated.named_parameters())
    for name, parameter in concat.named_parameters():
        assert torch.equal(parameter, ours[name]), name
    other = Drafter(drafter_config()).initialise(8)
    assert not torch.equal(other.layers[0].mlp.up_proj.weight, concat.layers[0].mlp.up_proj.weight)


def test_rms_normalise_has_unit_mean_square():
    x = rms_normalise(torch.randn(4, 30, generator=torch.Generator().manual_seed(0)) * 100, 1e-6)
    torch.testing.assert_close(x.square().mean(-1), torch.ones(4))


class TestParityWithTheReference:
    """dflash.model.DFlashDraftModel, the package of the authors of DFlash."""

    @pytest.fixture
    def reference(self):
        return pytest.importorskip("dflash.model")

    def pair(self, reference, block_size, folder, **changes):
        from drafters.checkpoints.folder import load_drafter
        from drafters.checkpoints.layouts import zlab_config

        config = drafter_config(block_size=block_size, **changes)
        settings = config.qwen3()
        data = zlab_config(config)
        for name in ("dflash_config", "block_size", "num_target_layers", "architectures"):
            setattr(settings, name, data[name])
        torch.manual_seed(block_size)
        theirs = reference.DFlashDraftModel(settings).eval()
        for parameter in theirs.parameters():  # norms away from 1, so that a swapped norm shows
            torch.nn.init.normal_(parameter, std=0.2)
        theirs.save_pretrained(folder)
        return config, theirs, load_drafter(folder)

    @pytest.mark.parametrize("block_size", [2, 4, 8, 16])
    @pytest.mark.parametrize("length", [1, 7, 40])
    def test_their_weights_in_our_model(self, reference, tmp_path, block_size, length):
        _, theirs, ours = self.pair(reference, block_size, tmp_path)
        g = torch.Generator().manual_seed(length)
        features = torch.randn(1, length, 3, 24, generator=g)
        embeddings = torch.randn(1, 1, block_size, 24, generator=g)
        with torch.no_grad():
            expected = theirs(
                position_ids=torch.arange(length + block_size)[None],
                noise_embedding=embeddings[0],
                target_hidden=features.flatten(-2),
            )
            found = ours.draft_hidden(features, embeddings, torch.tensor([[length]]))[:, 0]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)

    def test_our_weights_in_their_model(self, reference, tmp_path):
        from drafters.checkpoints.folder import save_drafter

        config = drafter_config(attention_bias=False)
        ours = Drafter(config).initialise(1).eval()
        save_drafter(ours, pathlib.Path(tmp_path))
        theirs, info = reference.DFlashDraftModel.from_pretrained(tmp_path, output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"]
        features, embeddings = inputs(config, batch=1)
        with torch.no_grad():
            expected = theirs.eval()(
                position_ids=torch.arange(S + 6)[None],
                noise_embedding=embeddings[:, 0],
                target_hidden=features.flatten(-2),
            )
            found = ours.draft_hidden(features, embeddings[:, :1], torch.tensor([[S]]))[:, 0]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
