"""Checkpoints that travel: out in two layouts, back bit-equal, read by the reference implementation."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from analysis.errors import DataError, run_command
from drafters.axes import DrafterChoice, complete
from drafters.checkpoints import export as exporting
from drafters.checkpoints.folder import load_drafter, weights_sha256
from drafters.checkpoints.readers import check_reader, unsafe_readers
from drafters.commands import export, train
from drafters.model.drafter import Drafter

CHOICE = {"num_layers": 2, "target_layers": (0, 2, 3), "block_size": 6, "mask_token_id": 3}
VOCAB = tuple(range(4, 200, 3))
AXES = [
    (fusion, kv, norm)
    for fusion in ("concat", "gated", "layerwise", "layerwise_gated")
    for kv, norm in (("shared", "shared"), ("separate", "shared"), ("separate", "own"))
]


def drafter_for(target, vocab=None, **choice):
    """With every parameter drawn, so that none can be forgotten unseen."""
    config = complete(DrafterChoice(**(CHOICE | choice)), target).model_copy(update={"draft_vocab": vocab})
    drafter = Drafter(config).eval()
    g = torch.Generator().manual_seed(0)
    for parameter in drafter.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=g)
    return drafter


def same(a, b):
    return a.config == b.config and weights_sha256(a) == weights_sha256(b)


def outputs(drafter):
    config = drafter.config
    g = torch.Generator().manual_seed(1)
    features = torch.randn(2, 9, len(config.target_layer_ids), config.hidden_size, generator=g)
    embeddings = torch.randn(2, 1, config.block_size, config.hidden_size, generator=g)
    with torch.no_grad():
        return drafter.draft_hidden(features, embeddings, torch.tensor([[9], [4]]))


def read(folder):
    return json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")


@pytest.mark.parametrize("vocab", [None, VOCAB])
@pytest.mark.parametrize("fusion,kv,norm", AXES)
def test_out_and_back_is_bit_equal(tiny, tmp_path, fusion, kv, norm, vocab):
    ours = drafter_for(tiny, vocab, fusion=fusion, kv=kv, kv_norm=norm)
    exporting.export(ours, tmp_path / "out", "zlab", tiny if vocab else None)
    assert same(load_drafter(tmp_path / "out"), ours)
    if (fusion, kv) == ("concat", "shared"):
        exporting.export(ours, tmp_path / "theirs", "speculators", tiny)
        back = load_drafter(tmp_path / "theirs")
        assert same(back, ours)
        exporting.export(back, tmp_path / "again", "zlab", tiny if vocab else None)
        assert same(load_drafter(tmp_path / "again"), ours)


def test_every_drafter_but_dflash_has_a_name_of_its_own(tiny, tmp_path):
    names = {}
    for fusion, kv, norm in AXES:
        folder = tmp_path / f"{fusion}-{kv}-{norm}"
        exporting.export(drafter_for(tiny, fusion=fusion, kv=kv, kv_norm=norm), folder, "zlab")
        (name,) = read(folder)[0]["architectures"]
        names.setdefault(name, set()).add((fusion, kv))
    assert all(len(kinds) == 1 for kinds in names.values())
    assert len(names) == 8
    assert names["DFlashDraftModel"] == {("concat", "shared")}
    assert all(name.startswith("DFlash") for name in names)


def test_a_draft_vocabulary_takes_its_rows_of_the_head_along(tiny, tmp_path):
    exporting.export(drafter_for(tiny, VOCAB), tmp_path / "out", "zlab", tiny)
    data, tensors = read(tmp_path / "out")
    assert data["draft_vocab_size"] == len(VOCAB)
    assert tensors["d2t"].dtype == torch.int64
    ids = torch.arange(len(VOCAB)) + tensors["d2t"]
    assert ids.tolist() == list(VOCAB)
    assert torch.equal(tensors["lm_head.weight"], tiny.head_weight[ids])


@pytest.mark.parametrize("vocab", [None, VOCAB])
def test_speculators_layout(tiny, tmp_path, vocab):
    """Against the fields that vllm-project/speculators declares for a dflash speculator."""
    ours = drafter_for(tiny, vocab)
    exporting.export(ours, tmp_path / "out", "speculators", tiny, "org/target")
    data, tensors = read(tmp_path / "out")
    size = len(vocab) if vocab else tiny.vocab_size
    assert {
        "speculators_model_type": "dflash",
        "architectures": ["DFlashSpeculator"],
        "aux_hidden_state_layer_ids": [1, 3, 4],  # indices into hidden_states
        "block_size": 6,
        "draft_vocab_size": size,
        "mask_token_id": 3,
        "sample_from_anchor": False,
        "sliding_window_non_causal": True,  # False makes every layer causal in vLLM
    }.items() <= data.items()
    assert data["speculators_config"] == {
        "algorithm": "dflash",
        "default_proposal_method": "greedy",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 5, "verifier_accept_k": 1}],
        "verifier": {"name_or_path": "org/target", "architectures": ["Qwen3ForCausalLM"]},
    }
    layers = data["transformer_layer_config"]
    assert (layers["model_type"], layers["num_hidden_layers"], layers["vocab_size"]) == ("qwen3", 2, tiny.vocab_size)
    assert torch.equal(tensors["embed_tokens.weight"], tiny.model.model.embed_tokens.weight)
    assert tensors["lm_head.weight"].shape == (size, tiny.hidden_size)
    if vocab:
        assert tensors["t2d"].dtype == torch.bool and tensors["t2d"].nonzero()[:, 0].tolist() == list(vocab)
        # row i of the head is token i + d2t[i], and t2d picks the same rows
        assert torch.equal(tensors["lm_head.weight"], tiny.head_weight[tensors["t2d"]])
    else:
        assert not {"t2d", "d2t"} & tensors.keys()
    drafters_own = {name.removeprefix("fusion.") for name, _ in ours.named_parameters()}
    assert tensors.keys() - drafters_own - {"t2d", "d2t"} == {"embed_tokens.weight", "lm_head.weight"}


@pytest.mark.parametrize("via", ["zlab", "speculators"])
def test_the_reference_implementation_gives_the_same_logits(tiny, tmp_path, via):
    reference = pytest.importorskip("dflash.model")
    ours = drafter_for(tiny)
    exporting.export(ours, tmp_path / "out", "zlab")
    if via == "speculators":
        exporting.export(ours, tmp_path / "theirs", "speculators", tiny)
        exporting.export(load_drafter(tmp_path / "theirs"), tmp_path / "back", "zlab")
    folder = tmp_path / ("out" if via == "zlab" else "back")
    theirs, info = reference.DFlashDraftModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    prompt = torch.tensor([[5, 9, 30, 77, 12]])
    features = tiny.forward(prompt, layer_ids=ours.config.target_layer_ids).features
    ids = torch.tensor([[40, 3, 3, 3, 3, 3]])
    with torch.no_grad():
        expected = theirs.eval()(
            position_ids=torch.arange(5 + 6)[None],
            noise_embedding=tiny.embed(ids),
            target_hidden=features.flatten(-2),
        )
        found = ours.draft_hidden(features, tiny.embed(ids)[None], torch.tensor([[5]]))[:, 0]
        logits = [hidden @ tiny.head_weight.T for hidden in (found, expected)]
    torch.testing.assert_close(*logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ["sigmoid", "softmax", "tanh", "affine", "linear"])
@pytest.mark.parametrize("kv", ["shared", "separate"])
def test_a_folded_gate_is_the_same_function(tiny, activation, kv):
    gated = drafter_for(tiny, fusion="gated", gate_input="none", gate_activation=activation, kv=kv)
    torch.nn.init.normal_(gated.fusion.gate.weight, generator=torch.Generator().manual_seed(2))  # well away from 1
    folded = exporting.fold_gate(gated)
    assert folded.config == gated.config.model_copy(update={"fusion": "concat"})
    torch.testing.assert_close(outputs(folded), outputs(gated), rtol=1e-5, atol=1e-5)
    # and it is the gate that was folded: without it, it is another function
    bare = exporting.fold_gate(gated)
    bare.fusion.fc.weight.data.copy_(gated.fusion.fc.weight)
    assert not torch.allclose(outputs(bare), outputs(gated), atol=1e-2)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"fusion": "gated"}, "changes from token to token"),
        ({"fusion": "concat"}, "no gate"),
        ({"fusion": "layerwise_gated"}, "no gate before a projection"),
    ],
)
def test_what_cannot_be_folded_is_not(tiny, choice, words):
    with pytest.raises(DataError, match=words):
        exporting.fold_gate(drafter_for(tiny, **choice))


@pytest.mark.parametrize("fusion,kv,norm", AXES[1:])
def test_nothing_is_dropped_to_fit_speculators(tiny, tmp_path, fusion, kv, norm):
    with pytest.raises(DataError, match="does not support"):
        exporting.export(drafter_for(tiny, fusion=fusion, kv=kv, kv_norm=norm), tmp_path / "out", "speculators", tiny)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_holds_something_is_left_alone(tiny, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="not empty"):
        exporting.export(drafter_for(tiny), tmp_path, "zlab")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_public_dflare_loads(tiny, tmp_path):
    """config.json and tensor names as AngelSlim writes them: no fusion named, the rope flat."""
    ours = drafter_for(tiny, fusion="layerwise", kv="separate")
    exporting.export(ours, tmp_path / "out", "zlab")
    data, tensors = read(tmp_path / "out")
    assert "layer_fusion_weights" in tensors and tensors["layer_fusion_weights"].shape == (2, 3)
    for name in ("k_proj_target", "v_proj_target"):
        assert f"layers.1.self_attn.{name}.weight" in tensors
    data["architectures"] = ["QwenDFlareDraftModel"]
    data["dflash_config"] = {"mask_token_id": 3, "target_layer_ids": [0, 2, 3]}
    theta = data.pop("rope_parameters")["rope_theta"]
    data |= {"rope_theta": theta, "rope_scaling": None, "tie_word_embeddings": True, "num_anchors": 512}
    (tmp_path / "out" / "config.json").write_text(json.dumps(data))
    save_file({name: t.bfloat16() for name, t in tensors.items()}, tmp_path / "out" / "model.safetensors")
    public = load_drafter(tmp_path / "out")
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.copy_(parameter.bfloat16())
    assert same(public, ours)
    assert torch.equal(outputs(public), outputs(ours))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tensors_are_in_the_targets_type(tiny, tmp_path, dtype):
    exporting.export(drafter_for(tiny, VOCAB), tmp_path / "out", "zlab", tiny, dtype=dtype)
    data, tensors = read(tmp_path / "out")
    assert data["dtype"] == dtype
    kinds = {name: tensor.dtype for name, tensor in tensors.items()}
    assert kinds.pop("d2t") == torch.int64 and set(kinds.values()) == {getattr(torch, dtype)}


def test_a_full_head_leaves_the_draft_vocabulary_out(tiny, tmp_path):
    ours = drafter_for(tiny, VOCAB)
    exporting.export(ours, tmp_path / "ours", "zlab", tiny)
    written = exporting.export_run(str(tmp_path / "ours"), tmp_path / "whole", "zlab", full_head=True, reader="sglang")
    data, tensors = read(tmp_path / "whole")
    assert written.config.draft_vocab is None
    assert "draft_vocab_size" not in data and not {"d2t", "lm_head.weight"} & tensors.keys()
    back = load_drafter(tmp_path / "whole")
    assert weights_sha256(back) == weights_sha256(written)


@pytest.mark.parametrize(
    ("choice", "vocab", "reader", "refused"),
    [
        ({}, None, "sglang", False),
        ({}, VOCAB, "sglang", True),
        ({}, VOCAB, "dflash", True),
        ({}, VOCAB, "vllm", False),
        ({"fusion": "gated"}, None, "sglang", True),
        ({"fusion": "gated"}, None, "vllm", False),
        ({"fusion": "layerwise", "kv": "separate"}, None, "dflash", True),
        ({}, None, "angelslim", True),
    ],
)
def test_a_reader_that_would_drop_something_is_refused(tiny, choice, vocab, reader, refused):
    config = drafter_for(tiny, vocab, **choice).config
    if refused:
        with pytest.raises(DataError, match=reader):
            check_reader(reader, "zlab", config)
        if reader != "angelslim":
            assert reader in unsafe_readers("zlab", config)
    else:
        check_reader(reader, "zlab", config)
        assert reader not in unsafe_readers("zlab", config)


def test_the_folder_says_who_reads_it(tiny, tmp_path):
    exporting.export(drafter_for(tiny, VOCAB), tmp_path / "out", "zlab", tiny)
    text = (tmp_path / "out" / "README.md").read_text()
    assert "Not for sglang" in text and "num_speculative_tokens" in text and "Not for vllm" not in text


def test_angelslim_layout_is_that_of_a_public_dflare(tiny, tmp_path):
    ours = drafter_for(tiny, fusion="layerwise", kv="separate")
    exporting.export(ours, tmp_path / "out", "angelslim")
    data, _ = read(tmp_path / "out")
    assert data["architectures"] == ["QwenDFlareDraftModel"]
    assert data["dflash_config"] == {"mask_token_id": 3, "target_layer_ids": [0, 2, 3]}
    assert same(load_drafter(tmp_path / "out"), ours)
    others = [{}, {"fusion": "layerwise"}, {"fusion": "layerwise", "kv": "separate", "kv_norm": "own"}]
    for choice in [*others, {"fusion": "layerwise", "kv": "separate", "fusion_norm": "before"}]:
        with pytest.raises(DataError, match="DFlare"):
            exporting.export(drafter_for(tiny, **choice), tmp_path / "no", "angelslim")
    with pytest.raises(DataError, match="--full-head"):
        exporting.export(
            drafter_for(tiny, VOCAB, fusion="layerwise", kv="separate"), tmp_path / "no", "angelslim", tiny
        )
    assert not (tmp_path / "no").exists()


def test_the_verifier_resolves(tiny, tmp_path, target_folder, monkeypatch):
    monkeypatch.chdir(target_folder.parent)
    exporting.export(drafter_for(tiny), tmp_path / "ours", "zlab")
    exporting.export_run(str(tmp_path / "ours"), tmp_path / "out", "speculators", target=target_folder.name)
    verifier = read(tmp_path / "out")[0]["speculators_config"]["verifier"]["name_or_path"]
    assert verifier == str(target_folder)


def test_speculators_own_parser(tiny, tmp_path):
    speculators = pytest.importorskip("speculators")
    exporting.export(drafter_for(tiny, VOCAB), tmp_path / "out", "speculators", tiny, "org/target")
    found = speculators.SpeculatorModelConfig.from_pretrained(tmp_path / "out")
    assert found.speculators_model_type == "dflash" and found.draft_vocab_size == len(VOCAB)


def test_a_speculator_that_does_not_say_how_deep_its_target_is(tiny, tmp_path, capsys):
    exporting.export(drafter_for(tiny), tmp_path / "theirs", "speculators", tiny)
    data, _ = read(tmp_path / "theirs")
    del data["num_target_layers"]  # as speculators itself writes it
    (tmp_path / "theirs" / "config.json").write_text(json.dumps(data))
    found = load_drafter(tmp_path / "theirs")
    assert found.config.num_target_layers is None
    assert found.config.target_layer_ids == (0, 2, 3)
    with pytest.raises(SystemExit):
        export.main([str(tmp_path / "theirs"), str(tmp_path / "out")])  # --format is required
    code = run_command(export.main, [str(tmp_path / "theirs"), str(tmp_path / "out"), "--format", "zlab"])
    assert code == 64 and "--target" in capsys.readouterr().err
    exporting.export(found, tmp_path / "out", "zlab", tiny)
    assert load_drafter(tmp_path / "out").config.num_target_layers == tiny.num_layers


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"speculators_model_type": "eagle3"}, "supported are dflash"),
        ({"sample_from_anchor": True}, "samples from the anchor"),
        ({"aux_hidden_state_layer_ids": None}, "are unknown"),
        ({"aux_hidden_state_layer_ids": [0, 2]}, "outside"),  # the embeddings
        ({"aux_hidden_state_layer_ids": [4, 2]}, "ascend"),
        ({"mask_token_id": None}, "mask_token_id"),
        ({"draft_vocab_size": 20}, "d2t"),
    ],
)
def test_speculators_that_are_something_else_are_refused(tiny, tmp_path, change, words):
    exporting.export(drafter_for(tiny), tmp_path / "out", "speculators", tiny)
    data, _ = read(tmp_path / "out")
    (tmp_path / "out" / "config.json").write_text(json.dumps(data | change))
    with pytest.raises(DataError, match=words):
        load_drafter(tmp_path / "out")


def test_command(workplace, target_folder, capsys):
    def run(*argv):
        code = run_command(export.main, list(argv))
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    for name, over in (("arm", []), ("static", ["fusion: gated, gate_input: none"]), ("moving", ["fusion: gated"])):
        changes = [f"drafter={{{o}}}" for o in over]
        argv = ["arm.yaml", "--run", f"runs/{name}", "--set", "training.steps=2"]
        assert run_command(train.main, argv + [part for c in changes for part in ("--set", c)]) == 0
    capsys.readouterr()
    final = load_drafter("runs/arm/checkpoints/final")

    # the run names its target, whose rows for the draft vocabulary go along
    for layout in ("zlab", "speculators"):
        code, text = run("arm", f"out/{layout}", "--format", layout)
        assert code == 0 and layout in text
        assert same(load_drafter(workplace / "out" / layout), final)
        assert len(load_file(workplace / "out" / layout / "model.safetensors")["lm_head.weight"]) == len(
            final.config.draft_vocab
        )
    # back, from a folder that names no target
    assert run("out/speculators", "back", "--format", "zlab")[0] == 64
    code, _ = run("out/speculators", "back", "--format", "zlab", "--target", str(target_folder))
    assert code == 0 and same(load_drafter("back"), final)

    code, text = run("moving", "no", "--format", "zlab", "--fold-gate")
    assert code == 65 and "token to token" in text and text.count("\n") == 1
    code, text = run("static", "no", "--format", "speculators")
    assert code == 65 and "--fold-gate" in text and text.count("\n") == 1
    assert not (workplace / "no").exists()
    assert run("static", "folded", "--format", "speculators", "--fold-gate")[0] == 0
    assert load_drafter("folded").config.fusion == "concat"


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("d2t", lambda d2t: torch.arange(len(d2t)), "t2d and d2t"),
        ("t2d", lambda t2d: t2d.roll(1), "t2d and d2t"),
        ("t2d", lambda t2d: t2d[:-1], "t2d and d2t"),
        ("d2t", lambda d2t: d2t + 200, "ascending token ids"),
        ("d2t", lambda d2t: d2t - 5, "ascending token ids"),
        ("d2t", lambda d2t: d2t.flip(0), "ascending token ids"),
        ("d2t", lambda d2t: d2t[:-1], "draft_vocab_size"),
        ("lm_head.weight", lambda head: head[:-1].clone(), "lm_head.weight"),
    ],
)
def test_maps_of_a_draft_vocabulary_that_disagree_are_refused(tiny, tmp_path, name, change, words):
    exporting.export(drafter_for(tiny, VOCAB), tmp_path / "out", "speculators", tiny)
    path = tmp_path / "out" / "model.safetensors"
    tensors = load_file(path)
    tensors[name] = change(tensors[name])
    save_file(tensors, path)
    with pytest.raises(DataError, match=words):
        load_drafter(tmp_path / "out")


def test_a_map_of_another_vocabulary_beside_the_whole_one_is_refused(tiny, tmp_path):
    exporting.export(drafter_for(tiny), tmp_path / "out", "speculators", tiny)
    path = tmp_path / "out" / "model.safetensors"
    flags = torch.zeros(tiny.vocab_size, dtype=torch.bool)
    save_file(load_file(path) | {"t2d": flags}, path)
    with pytest.raises(DataError, match="t2d and d2t"):
        load_drafter(tmp_path / "out")
    save_file(load_file(path) | {"t2d": ~flags}, path)
    assert load_drafter(tmp_path / "out").config.draft_vocab is None
