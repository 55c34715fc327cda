"""Parity with the public trainer's modules (speculators 0.9): forward, loss and one optimizer step."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from drafters.config import LossSettings
from drafters.model.blocks import make_blocks
from drafters.model.drafter import Drafter
from drafters.model.head import OutputRows
from drafters.training.losses import Supervision, block_loss, decaying
from drafters.training.objective import DISTANCES, Objective
from tests.drafters.configs import drafter_config

pytest.importorskip("speculators")
eager = pytest.importorskip("speculators.losses.eager")

VOCAB, HIDDEN, LENGTH, BLOCK, GAMMA = 53, 24, 30, 6, 4.0
ANCHORS = [9, 10, 13, 17, 20, 23]  # theirs leave out what runs past the end
KINDS = {
    "dflash2": {"mixing": "conv", "conv_group_size": 8, "selection": "path", "selection_rank": 6, "selection_top_k": 4},
    "dspark": {"selection": "markov", "selection_rank": 6, "confidence": "head"},
    "dspark_gated": {"selection": "markov_gated", "selection_rank": 6, "confidence": "head"},
}


@pytest.fixture
def case():
    """One document whose every token is the target's choice, so that public losses (argmax of the target's logits) and
    ours (the token) have the same labels."""
    g = torch.Generator().manual_seed(0)
    head = torch.randn(VOCAB, HIDDEN, generator=g)
    final = 2 * torch.randn(LENGTH, HIDDEN, generator=g)
    tokens = torch.cat((torch.tensor([4]), (final @ head.T).argmax(-1)[:-1]))
    return SimpleNamespace(
        head=head,
        embed=torch.randn(VOCAB, HIDDEN, generator=g),
        final=final,
        tokens=tokens,
        features=torch.randn(LENGTH, 3, HIDDEN, generator=g),
        supervised=np.arange(LENGTH) >= 9,
    )


def public(kind, drafter, case, monkeypatch):
    """Their model with our weights; their loss of the blocks at ANCHORS."""
    from speculators import SpeculatorsConfig, VerifierConfig
    from speculators.models.dflash import core
    from speculators.models.dflash2 import DFlash2DraftModel, DFlash2SpeculatorConfig
    from speculators.models.dspark import DSparkDraftModel, DSparkSpeculatorConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig

    layers = drafter.config.qwen3()
    layers._attn_implementation = "eager"
    common = {
        "transformer_layer_config": layers,
        "draft_vocab_size": VOCAB,
        "block_size": BLOCK,
        "aux_hidden_state_layer_ids": [i + 1 for i in drafter.config.target_layer_ids],
        "mask_token_id": drafter.config.mask_token_id,
        "sample_from_anchor": False,
        "speculators_config": SpeculatorsConfig(
            algorithm="dflash",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=BLOCK - 1)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path="", architectures=[]),
        ),
    }
    if kind == "dflash2":
        sizes = {"conv_kernel_size": 2, "conv_group_size": 8, "selector_rank": 6, "selector_top_k": 4}
        config, model = DFlash2SpeculatorConfig(**common, **sizes), DFlash2DraftModel
    else:
        heads = {"markov_rank": 6, "markov_head_type": "gated" if kind.endswith("gated") else "vanilla"}
        config, model = DSparkSpeculatorConfig(**common, **heads), DSparkDraftModel
    monkeypatch.setattr(core, "resolve_verifier_norm_class", lambda config: torch.nn.RMSNorm)
    theirs = model(config=config)
    # our weights, the target's embedding and head, and no final norm: the final state is given after it
    state = {name.removeprefix("fusion."): value.clone() for name, value in drafter.named_parameters()}
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected
    assert all(n.startswith(("embed_tokens", "lm_head", "verifier_", "rotary", "t2d", "d2t")) for n in missing), missing
    with torch.no_grad():
        theirs.embed_tokens.weight.copy_(case.embed)
        theirs.lm_head.weight.copy_(case.head)
        theirs.verifier_lm_head.weight.copy_(case.head)
    theirs.verifier_norm = torch.nn.Identity()
    anchors = torch.tensor(ANCHORS)
    monkeypatch.setattr(core, "select_anchors", lambda *_: (anchors, torch.ones(len(anchors), dtype=torch.bool)))
    loss_config = {"ce": (eager.ce_loss, 0.1), "l1": (lambda q, p: 2 * eager.tv_loss(q, p), 0.9)}
    _, loss, _ = theirs(**inputs(case), loss_config=loss_config, **settings())
    return theirs, loss


def inputs(case):
    return {
        "hidden_states": case.features.flatten(1)[None],
        "input_ids": case.tokens[None],
        "loss_mask": torch.from_numpy(case.supervised.astype(np.int64))[None],
        "verifier_last_hidden_states": case.final[None],
        "document_ids": torch.zeros(1, LENGTH, dtype=torch.int64),
    }


def settings():
    return {"tv_loss_fn": eager.tv_loss, "gamma": GAMMA, "max_anchors": len(ANCHORS)}


def ours(drafter, case):
    blocks = make_blocks(
        [case.tokens],
        [case.supervised],
        [np.array(ANCHORS)],
        block_size=BLOCK,
        mask_token_id=drafter.config.mask_token_id,
    )
    head = OutputRows(case.head, torch.arange(VOCAB), None, torch.arange(VOCAB))
    hidden = drafter.draft_hidden(case.features[None], case.embed[blocks.ids], blocks.anchors)[:, :, 1:]
    places = (blocks.anchors[..., None] + torch.arange(BLOCK - 1)).clamp(max=LENGTH - 1)
    asked = Supervision(
        blocks.labels,
        blocks.previous,
        blocks.real,
        torch.ones_like(blocks.labels, dtype=torch.bool),
        case.final[places],
    )
    objective = Objective.of(drafter, LossSettings(distill="l1"))
    found = block_loss(hidden, head, asked, decaying(BLOCK, GAMMA), objective)
    # theirs is divided by the number of supervised slots, ours by the sum of their weights
    return found.numerator / int((blocks.labels >= 0).sum())


@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_one_optimizer_step_agree(kind, case, monkeypatch):
    drafter = Drafter(drafter_config(**KINDS[kind])).initialise(0)
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():  # away from the start, where the additions do nothing
        for parameter in drafter.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=g))
    theirs, expected = public(kind, drafter, case, monkeypatch)
    found = ours(drafter, case)
    assert float(found) == pytest.approx(float(expected), rel=1e-5)

    named = {name.removeprefix("fusion."): parameter for name, parameter in drafter.named_parameters()}
    for parameters, loss in ((named.values(), found), (theirs.parameters(), expected)):
        optimizer = torch.optim.SGD([p for p in parameters if p.requires_grad], lr=0.1)
        loss.backward()
        optimizer.step()
    other = dict(theirs.named_parameters())
    for name, parameter in named.items():
        assert torch.allclose(parameter, other[name], atol=1e-5), name


@pytest.mark.parametrize(("name", "reference"), [("kl", "kl_div_loss"), ("tv", "tv_loss")])
def test_distances_agree(name, reference):
    g = torch.Generator().manual_seed(2)
    draft, target = 3 * torch.randn(2, 1, 7, VOCAB, generator=g).unbind(0)[0], 3 * torch.randn(1, 7, VOCAB, generator=g)
    expected = getattr(eager, reference)(draft, target)[0]
    assert torch.allclose(DISTANCES[name](draft[0], target[0]), expected, atol=1e-5)
