"""Starting from another drafter: the same function at first, or a refusal that says why."""

import pytest
import torch

from analysis.errors import DataError, run_command
from analysis.runlog.reading import Run
from drafters.checkpoints.folder import load_drafter, weights_sha256
from drafters.commands import train
from drafters.model.drafter import Drafter
from drafters.training.warm_start import warm_start
from tests.drafters.configs import drafter_config


def drafter_of(seed, **changes):
    drafter = Drafter(drafter_config(**changes)).initialise(seed).eval()
    if seed == 1:  # the source: trained, so to say
        g = torch.Generator().manual_seed(1)
        for parameter in drafter.parameters():
            torch.nn.init.normal_(parameter, std=0.2, generator=g)
    return drafter


def outputs(drafter):
    g = torch.Generator().manual_seed(2)
    features, embeddings = torch.randn(2, 9, 3, 24, generator=g), torch.randn(2, 1, 6, 24, generator=g)
    with torch.no_grad():
        return drafter.draft_hidden(features, embeddings, torch.tensor([[9], [4]]))


SEPARATE = {"kv": "separate"}
OWN = {"kv": "separate", "kv_norm": "own"}
DFLASH2 = {"mixing": "conv", "conv_group_size": 8, "selection": "path", "selection_rank": 6}
MARKOV = {"selection": "markov", "selection_rank": 6}
STATIC = {"fusion": "gated", "gate_input": "none"}


@pytest.mark.parametrize(
    ("source", "ours"),
    [
        ({}, {}),
        *(({}, {"fusion": "gated", "gate_activation": a}) for a in ("sigmoid", "softmax", "tanh", "affine")),
        ({}, STATIC),
        ({}, SEPARATE),
        ({}, OWN),
        ({}, {"fusion": "gated"} | OWN),
        ({"fusion": "gated"}, {"fusion": "gated"} | SEPARATE),
        ({"fusion": "layerwise"}, {"fusion": "layerwise_gated"}),
        ({"fusion": "layerwise", "fusion_norm": "before"}, {"fusion": "layerwise", "fusion_norm": "before"} | SEPARATE),
        ({"fusion": "layerwise"} | SEPARATE, {"fusion": "layerwise_gated"} | OWN),
        ({}, DFLASH2),
        ({"fusion": "gated"}, {"fusion": "gated", "confidence": "head"} | DFLASH2),
        (DFLASH2, {"fusion": "gated"} | DFLASH2),
    ],
)
def test_the_start_is_the_same_function_bit_for_bit(source, ours):
    given, drafter = drafter_of(1, **source), drafter_of(0, **ours)
    assert not torch.equal(outputs(drafter), outputs(given))
    warm_start(drafter, given)
    assert torch.equal(outputs(drafter), outputs(given))


@pytest.mark.parametrize(
    ("source", "ours", "words"),
    [
        ({}, {"fusion": "layerwise"}, "has no fusion.layer_fusion_weights"),
        ({}, {"fusion": "gated", "gate_activation": "linear"}, "has no fusion.gate.weight"),
        ({"fusion": "gated"}, {}, "fusion.gate.weight, for which there is no place"),
        ({"fusion": "layerwise"}, {}, "fusion.fc.weight"),
        (SEPARATE, {}, "k_proj_target"),
        ({"fusion": "layerwise_gated"}, {"fusion": "layerwise"}, "no place"),
        ({"fusion": "gated"}, STATIC, "gate_input"),
        ({"fusion": "gated"}, {"fusion": "gated", "gate_activation": "tanh"}, "gate_activation"),
        ({"fusion": "layerwise"}, {"fusion": "layerwise", "fusion_norm": "before"}, "fusion_norm"),
        ({"target_layer_ids": (1, 2, 4)}, {}, "target_layer_ids"),
        ({"mask_token_id": 7}, {}, "mask_token_id"),
        ({"num_layers": 3}, {}, "num_layers"),
        (DFLASH2, {}, "another selection"),
        ({"mixing": "conv", "conv_group_size": 8}, {}, "attention_conv.base_kernel"),
        (DFLASH2, DFLASH2 | {"selection_rank": 5}, "predecessor_codebook has another shape"),
        # tables have a row for each token of the vocabulary, and a new gate halves what it scales
        ({"draft_vocab": (1, 2, 3)} | DFLASH2, {"draft_vocab": (1, 2, 4)} | DFLASH2, "another draft_vocab"),
        (MARKOV, MARKOV | {"selection": "markov_gated"}, "another selection"),
    ],
)
def test_what_would_be_another_function_is_refused(source, ours, words):
    drafter = drafter_of(0, **ours)
    before = weights_sha256(drafter)
    with pytest.raises(DataError, match=words):
        warm_start(drafter, drafter_of(1, **source))
    assert weights_sha256(drafter) == before


def test_a_run_starts_from_a_checkpoint(workplace, capsys):
    def run(*argv):
        return run_command(train.main, ["arm.yaml", *argv])

    assert run("--run", "runs/first", "--set", "training.steps=2") == 0
    checkpoint = "runs/first/checkpoints/final"
    start = ["--set", f"training={{steps: 6, init_from: {checkpoint}}}", "--set", "drafter.fusion=gated"]
    assert run("--run", "runs/second", *start) == 0
    first, second = (Run.open(f"runs/{name}") for name in ("first", "second"))
    # the weights that arms share, at the start of the second run and at the end of the first
    backbone = weights_sha256(load_drafter(checkpoint), backbone_only=True)
    assert second.manifest.drafter.init_sha256 == backbone != first.manifest.drafter.init_sha256
    assert run("--run", "runs/third", *start, "--set", "drafter.fusion=layerwise") == 65
    assert "init_from" in capsys.readouterr().err.strip().splitlines()[-1]
