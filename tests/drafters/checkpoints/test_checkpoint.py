"""Checkpoint folders: the published layout, and nothing taken that does not fit."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from analysis.errors import DataError
from drafters.checkpoints.folder import load_drafter, save_drafter, weights_sha256
from drafters.model.drafter import Drafter
from tests.drafters.configs import drafter_config


@pytest.fixture
def saved(tmp_path):
    drafter = Drafter(drafter_config(fusion="gated", gate_activation="tanh")).initialise(0)
    torch.nn.init.normal_(drafter.fusion.gate.weight, generator=torch.Generator().manual_seed(0))
    save_drafter(drafter, tmp_path)
    return drafter, tmp_path


def change_config(folder, **changes):
    data = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(data | changes))


def test_round_trip_is_bit_equal(saved):
    drafter, folder = saved
    loaded = load_drafter(folder)
    assert loaded.config == drafter.config
    assert weights_sha256(loaded) == weights_sha256(drafter)


def test_names_are_the_published_ones(saved):
    _, folder = saved
    names = load_file(folder / "model.safetensors").keys()
    assert {"fc.weight", "hidden_norm.weight", "norm.weight", "gate.weight"} <= names
    layer = {name.removeprefix("layers.0.") for name in names if name.startswith("layers.0.")}
    assert layer == {
        *("input_layernorm.weight", "post_attention_layernorm.weight"),
        *(f"self_attn.{p}_proj.weight" for p in "qkvo"),
        *("self_attn.q_norm.weight", "self_attn.k_norm.weight"),
        *(f"mlp.{p}_proj.weight" for p in ("gate", "up", "down")),
    }


def test_a_gated_drafter_has_its_own_architecture_name(saved, tmp_path_factory):
    _, folder = saved
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["DFlashGatedDraftModel"]
    concat = tmp_path_factory.mktemp("concat")
    save_drafter(Drafter(drafter_config()), concat)
    assert json.loads((concat / "config.json").read_text())["architectures"] == ["DFlashDraftModel"]


def test_draft_vocabulary_is_stored_as_offsets(tmp_path):
    save_drafter(Drafter(drafter_config(draft_vocab=(2, 3, 10))), tmp_path)
    assert load_file(tmp_path / "model.safetensors")["d2t"].tolist() == [2, 2, 8]
    assert load_drafter(tmp_path).config.draft_vocab == (2, 3, 10)
    assert json.loads((tmp_path / "config.json").read_text())["draft_vocab_size"] == 3


def test_published_fields_in_their_other_places(saved):
    drafter, folder = saved
    data = json.loads((folder / "config.json").read_text())
    del data["rope_parameters"]  # older files have rope_theta alone, and the block size inside dflash_config
    data["rope_theta"] = 10000.0
    data["dflash_config"]["block_size"] = data.pop("block_size")
    (folder / "config.json").write_text(json.dumps(data))
    assert load_drafter(folder).config == drafter.config


def test_missing_layer_ids_are_not_guessed(saved):
    _, folder = saved
    change_config(folder, dflash_config={"mask_token_id": 5})
    with pytest.raises(DataError, match="target_layer_ids"):
        load_drafter(folder)


@pytest.mark.parametrize("change", [{"architectures": ["EagleModel"]}, {"layer_types": ["sliding_attention"] * 2}])
def test_other_architectures_are_refused(saved, change):
    _, folder = saved
    change_config(folder, **change)
    with pytest.raises(DataError):
        load_drafter(folder)


@pytest.mark.parametrize(
    "method",
    [
        {"final_logit_softcapping": 30.0},  # of other drafters of the family: another function of the same tensors
        {"is_causal": True},
        {"fusion": "layerwise"},  # not what the architecture's name says
        {"kv": "separate"},
        {"fusion": "summed"},
        {"target_layer_ids": [3, 1, 4]},
        {"target_layer_ids": [1, 3, 3]},
        {"target_layer_ids": [1, 3, 7]},
    ],
)
def test_what_would_be_another_function_is_refused(saved, method):
    _, folder = saved
    data = json.loads((folder / "config.json").read_text())
    change_config(folder, dflash_config=data["dflash_config"] | method)
    with pytest.raises(DataError):
        load_drafter(folder)


def test_layer_ids_are_those_stored(tmp_path):
    # not those that the default rule would give for three of eight layers
    drafter = Drafter(drafter_config(target_layer_ids=(0, 1, 6), fusion="layerwise"))
    save_drafter(drafter, tmp_path)
    assert load_drafter(tmp_path).config.target_layer_ids == (0, 1, 6)


@pytest.mark.parametrize("edit", ["missing", "unknown", "shape"])
def test_tensors_that_do_not_fit_are_named(saved, edit):
    _, folder = saved
    tensors = load_file(folder / "model.safetensors")
    if edit == "missing":
        del tensors["gate.weight"]  # never filled in at random
    elif edit == "unknown":
        tensors["layers.0.self_attn.k_proj_target.weight"] = torch.zeros(2)  # never dropped in silence
    else:
        tensors["fc.weight"] = torch.zeros(3, 3)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(DataError, match=r"gate\.weight|k_proj_target|fc\.weight"):
        load_drafter(folder)


def test_truncated_weights_are_refused(saved):
    _, folder = saved
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match="damaged"):
        load_drafter(folder)
