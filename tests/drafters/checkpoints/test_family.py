"""DFlash2 and DSpark in the published layouts, both ways."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from analysis.errors import DataError
from drafters.checkpoints.export import export, without_draft_vocabulary
from drafters.checkpoints.folder import load_drafter, save_drafter, weights_sha256
from drafters.checkpoints.layouts import architecture, speculators_config
from drafters.checkpoints.readers import objection
from drafters.model.drafter import Drafter
from tests.drafters.configs import drafter_config
from tests.tiny import tiny_target

PATH = {"selection": "path", "selection_rank": 6, "selection_top_k": 4}
DFLASH2 = {"mixing": "conv", "conv_group_size": 8, **PATH}
DSPARK = {"selection": "markov", "selection_rank": 6, "confidence": "head"}
VOCABULARY = (2, 3, 5, 8, 13, 21, 34)


def drafter(**axes):
    made = Drafter(drafter_config(**axes)).initialise(0)
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g))
    return made.eval()


@pytest.mark.parametrize("vocabulary", [None, VOCABULARY])
@pytest.mark.parametrize(
    "axes", [DFLASH2, DSPARK, DFLASH2 | {"fusion": "gated"}, DSPARK | {"fusion": "layerwise"}, PATH]
)
def test_round_trip_is_bit_equal(tmp_path, axes, vocabulary):
    made = drafter(**axes, draft_vocab=vocabulary)
    save_drafter(made, tmp_path)
    loaded = load_drafter(tmp_path)
    assert loaded.config == made.config and weights_sha256(loaded) == weights_sha256(made)


def test_names_of_the_published_ones_and_of_our_own():
    assert architecture(drafter_config(**DFLASH2)) == "DFlash2DraftModel"
    # the published class has tables of the whole vocabulary
    assert architecture(drafter_config(**DFLASH2, draft_vocab=VOCABULARY)) == "DFlashConvPathDraftModel"
    assert architecture(drafter_config(**DSPARK)) == "DFlashMarkovConfidenceDraftModel"
    gated = drafter_config(**DFLASH2, fusion="gated", kv="separate")
    assert architecture(gated) == "DFlashGatedSeparateKVConvPathDraftModel"


def test_a_published_dflash2_file_loads(tmp_path):
    """Its dflash_config as z-lab writes it: the sizes, and nothing of our axes."""
    save_drafter(drafter(**DFLASH2), tmp_path)
    method = json.loads((tmp_path / "config.json").read_text())["dflash_config"]
    assert method == {
        "mask_token_id": 50,
        "target_layer_ids": [1, 3, 4],
        "conv_kernel_size": 2,
        "conv_group_size": 8,
        "selector_rank": 6,
        "selector_top_k": 4,
    }
    data = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(data | {"dflash_config": method | {"output_scale": 2.0}}))
    with pytest.raises(DataError, match="output_scale"):
        load_drafter(tmp_path)
    del method["selector_rank"]
    (tmp_path / "config.json").write_text(json.dumps(data | {"dflash_config": method}))
    with pytest.raises(DataError, match="selector_rank"):
        load_drafter(tmp_path)


@pytest.mark.parametrize(
    ("axes", "kind"),
    [
        (DFLASH2, "dflash2"),
        (DSPARK, "dspark"),
        (DSPARK | {"selection": "markov_gated", "confidence": "none"}, "dspark"),
        ({"confidence": "head"}, "dspark"),
    ],
)
def test_speculators_reads_what_is_exported_and_we_read_it_back(tmp_path, axes, kind):
    target = tiny_target(vocab=53, hidden=24, layers=8)
    made = drafter(**axes)
    export(made, tmp_path / "out", "speculators", target)
    data = json.loads((tmp_path / "out/config.json").read_text())
    assert data["speculators_model_type"] == kind and data["sample_from_anchor"] is False
    loaded = load_drafter(tmp_path / "out")
    assert loaded.config == made.config and weights_sha256(loaded) == weights_sha256(made)
    models = pytest.importorskip(f"speculators.models.{kind}")
    config = {"dflash2": "DFlash2SpeculatorConfig", "dspark": "DSparkSpeculatorConfig"}[kind]
    parsed = getattr(models, config).from_pretrained(tmp_path / "out")
    assert parsed.block_size == 6 and parsed.draft_vocab_size == 53
    if kind == "dflash2":
        assert (parsed.selector_rank, parsed.selector_top_k, parsed.conv_group_size) == (6, 4, 8)
    else:
        assert parsed.enable_confidence_head == (axes.get("confidence") == "head")


def test_a_markov_head_of_a_draft_vocabulary_gets_a_row_for_every_token(tmp_path):
    target = tiny_target(vocab=53, hidden=24, layers=8)
    made = drafter(**DSPARK, draft_vocab=VOCABULARY)
    export(made, tmp_path / "out", "speculators", target)
    tensors = load_file(tmp_path / "out/model.safetensors")
    rows = tensors["markov_head.markov_w1.weight"]
    assert rows.shape == (53, 6) and torch.equal(rows[list(VOCABULARY)], made.markov_head.markov_w1.weight.detach())
    assert weights_sha256(load_drafter(tmp_path / "out")) == weights_sha256(made)
    tensors["markov_head.markov_w1.weight"][4] = 1.0
    save_file(tensors, tmp_path / "out/model.safetensors")
    with pytest.raises(DataError, match="outside the draft vocabulary"):
        load_drafter(tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sample_from_anchor": True}, "samples from the anchor"),
        ({"markov_head_type": "rnn"}, "vanilla or gated"),
        ({"confidence_head_with_markov": False}, "confidence_head_with_markov"),
        ({"speculators_model_type": "xpress"}, "a xpress speculator; supported are dflash, dflash2, dspark"),
    ],
)
def test_what_is_another_drafter_is_refused(tmp_path, change, message):
    export(drafter(**DSPARK), tmp_path / "out", "speculators", tiny_target(vocab=53, hidden=24, layers=8))
    path = tmp_path / "out/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=message):
        load_drafter(tmp_path / "out")


def test_what_a_layout_has_no_place_for_is_refused():
    with pytest.raises(DataError, match="no DFlash2 with a draft vocabulary"):
        speculators_config(drafter_config(**DFLASH2, draft_vocab=VOCABULARY), "", [])
    with pytest.raises(DataError, match="does not support DFlashGatedConvPathDraftModel"):
        speculators_config(drafter_config(**DFLASH2, fusion="gated"), "", [])
    with pytest.raises(DataError, match="--full-head"):
        without_draft_vocabulary(drafter(**PATH, draft_vocab=VOCABULARY))


def test_engines_that_would_serve_another_drafter_are_named():
    own = drafter_config(**DFLASH2, fusion="gated")
    assert "not an architecture" in (objection("vllm", "zlab", own) or "")
    assert "--format speculators" in (objection("vllm", "zlab", drafter_config(**DSPARK)) or "")
    assert objection("vllm", "speculators", drafter_config(**DSPARK)) is None
    assert objection("vllm", "zlab", drafter_config(**DFLASH2)) is None
    assert "as another drafter" in (objection("sglang", "zlab", drafter_config(**DFLASH2)) or "")
