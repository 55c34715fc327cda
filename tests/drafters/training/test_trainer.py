"""Training steps: schedule, accumulation, determinism, what the history says."""

import math

import pytest
import torch

from analysis.errors import DataError
from drafters.axes import complete
from drafters.config import load_config
from drafters.corpus.build import build_corpus
from drafters.corpus.vocabulary import draft_vocabulary
from drafters.model.blocks import IGNORED
from drafters.prompts.sources import load_prompts
from drafters.target.frozen import Target
from drafters.training.schedule import learning_rate
from drafters.training.trainer import Trainer


def vocabulary(config, corpus):
    if (size := config.drafter.draft_vocab) is None:
        return None
    counts = corpus.token_counts(), corpus.token_counts(answers=False)
    return draft_vocabulary(size, *counts, config.drafter.mask_token_id).ids


@pytest.fixture
def make_trainer(workplace):
    target = None

    def make(*overrides):
        nonlocal target
        config = load_config(workplace / "arm.yaml", overrides)
        target = target or Target.load(config.target)
        corpus = build_corpus(
            target, load_prompts(config.corpus.prompts), layer_ids=(1, 3), max_new_tokens=16, batch_size=8
        )
        drafter_config = complete(config.drafter, target, vocabulary(config, corpus))
        precision = "bfloat16" if config.training.precision == "bfloat16" else "float32"
        return Trainer(config, drafter_config, corpus, target, "cpu", precision)

    return make


def test_schedule_is_the_published_one():
    # 24,750 updates: 990 of warm-up, peak 6e-4, cosine to 0
    assert learning_rate(0, 24750, 6e-4, 0.04) == pytest.approx(6e-4 / 990)
    assert learning_rate(989, 24750, 6e-4, 0.04) == pytest.approx(6e-4)
    assert learning_rate(990, 24750, 6e-4, 0.04) == pytest.approx(6e-4)
    middle = 990 + (24750 - 990) // 2
    assert learning_rate(middle, 24750, 6e-4, 0.04) == pytest.approx(3e-4, rel=1e-3)
    assert learning_rate(24749, 24750, 6e-4, 0.04) < 1e-9
    assert learning_rate(0, 10, 1.0, 0.0) == 1.0


def gradients(trainer):
    before = {name: p.detach().clone() for name, p in trainer.drafter.named_parameters()}
    row = trainer.train_step()
    return row, {name: p.grad.clone() for name, p in trainer.drafter.named_parameters()}, before


@pytest.mark.parametrize("weighting", ["fixed", "progressive", "dpace"])
def test_accumulation_gives_the_gradients_of_the_whole_batch(make_trainer, weighting):
    # clipping off, so that gradients are compared as they are
    common = [f"loss.weighting={weighting}", "training.clip=1e9"]
    whole_row, whole, start = gradients(make_trainer(*common, "training.batch=4"))
    parts_row, parts, same_start = gradients(make_trainer(*common, "training.batch=1", "training.accumulate=4"))
    for name, gradient in whole.items():
        assert torch.equal(start[name], same_start[name])
        scale = gradient.abs().max()
        assert float((parts[name] - gradient).abs().max() / scale) < 1e-5, name
    assert whole_row["data_hash"] == parts_row["data_hash"]
    assert parts_row["loss"] == pytest.approx(whole_row["loss"], rel=1e-6)


@pytest.mark.parametrize("fusion", ["concat", "gated", "layerwise_gated"])
def test_bfloat16_products_change_the_numbers_but_not_what_is_computed(make_trainer, fusion):
    common = [f"drafter.fusion={fusion}", "training.clip=1e9"]
    row, exact, _ = gradients(make_trainer(*common))
    mixed_row, mixed, weights = gradients(make_trainer(*common, "training.precision=bfloat16"))
    assert mixed_row["data_hash"] == row["data_hash"]
    assert mixed_row["loss"] != row["loss"]
    assert mixed_row["loss"] == pytest.approx(row["loss"], rel=1e-2)
    flat, mixed_flat = (torch.cat([g.flatten() for g in each.values()]) for each in (exact, mixed))
    assert float(torch.cosine_similarity(flat, mixed_flat, dim=0)) > 0.99
    assert all(tensor.dtype == torch.float32 for tensor in (*mixed.values(), *weights.values()))


def test_arms_see_the_same_data_whatever_their_fusion(make_trainer):
    rows = [
        [make_trainer(f"drafter.fusion={fusion}", f"drafter.num_layers={layers}").train_step() for _ in range(1)]
        for fusion, layers in (("concat", 2), ("gated", 1))
    ]
    assert rows[0][0]["data_hash"] == rows[1][0]["data_hash"]


def test_history_tells_gamma(make_trainer):
    def gammas(*overrides):
        trainer = make_trainer("training.steps=3", *overrides)
        return [trainer.train_step()["gamma"] for _ in range(3)]

    assert gammas() == [3, 3, 3]  # B / 2
    assert gammas("loss={weighting: progressive, gamma_start: 2, gamma_end: 5}") == [2, 3.5, 5]
    assert gammas("loss.weighting=dpace") == [None] * 3


def test_another_data_or_anchor_seed_is_seen_in_the_hash(make_trainer):
    hashes = {make_trainer(*over).train_step()["data_hash"] for over in ([], ["seeds.data=1"], ["seeds.anchors=1"])}
    assert len(hashes) == 3


def test_every_example_comes_once_an_epoch(make_trainer):
    trainer = make_trainer("training.steps=null", "training.epochs=2", "training.batch=3")
    assert trainer.steps == math.ceil(2 * len(trainer.corpus) / 3)
    places = [trainer._locate(i) for i in range(2 * len(trainer.corpus))]
    for epoch in (0, 1):
        assert sorted(i for e, i in places if e == epoch) == list(range(len(trainer.corpus)))
    assert [i for e, i in places if e == 0] != [i for e, i in places if e == 1]


def test_training_learns_its_corpus(make_trainer):
    overrides = ["training.steps=300", "training.lr=1e-2", "training.anchors=16", "training.warmup=0.1"]
    trainer = make_trainer(*overrides, "drafter.draft_vocab=null", "drafter.intermediate_size=128")
    rows = [trainer.train_step() for _ in range(trainer.steps)]
    assert rows[0]["accepted_length"] < 1.5
    assert rows[-1]["accepted_length"] > 4  # of 6: the answers are learnt by heart
    assert rows[-1]["loss"] < rows[0]["loss"] / 5
    assert rows[-1]["accuracy_at"][0] > 0.9


def test_tokens_outside_the_draft_vocabulary_weigh_nothing(make_trainer):
    trainer = make_trainer("drafter.draft_vocab=5")
    vocab = torch.tensor(trainer.drafter.config.draft_vocab)
    (batch,) = map(trainer._collate, trainer._own_micro_batches())
    supervised = batch.rows != IGNORED
    assert torch.equal(supervised, torch.isin(batch.blocks.labels, vocab))
    assert torch.equal(vocab[batch.rows[supervised]], batch.blocks.labels[supervised])
    assert 0 < int(supervised.sum()) < int((batch.blocks.labels != IGNORED).sum())


@pytest.mark.parametrize("fusion", ["concat", "gated"])
def test_a_projection_that_keeps_the_basis_gives_every_layer_the_same_norm(make_trainer, fusion):
    drawn = make_trainer(f"drafter.fusion={fusion}")
    kept = make_trainer(f"drafter.fusion={fusion}", "training.projection_init=basis")
    weight = kept.drafter.fusion.fc.weight
    assert float(weight.norm()) == pytest.approx(float(drawn.drafter.fusion.fc.weight.norm()), rel=0.05)
    features = torch.cat(list(kept.reader.each(kept.corpus))).float()
    typical = features.norm(dim=-1).mean(0)
    norms = kept.drafter.fusion.contributions(features).contribution_norm.mean(0)
    assert float(norms.max() / norms.min()) < 1.05 < float(typical.max() / typical.min())
    expected = (features / typical[:, None]).sum(1)
    found = kept.drafter.fusion(features)[0].detach()
    cosine = torch.cosine_similarity(found, expected, dim=-1)
    assert float(cosine.min()) > 0.999
    for name, parameter in drawn.drafter.named_parameters():  # nothing else differs
        if name != "fusion.fc.weight":
            assert torch.equal(parameter, dict(kept.drafter.named_parameters())[name])


@pytest.mark.parametrize(
    "overrides",
    [
        ("drafter.fusion=layerwise", "training.projection_init=basis"),
        ("training.projection_init=basis", "training.init_from=somewhere"),
    ],
)
def test_an_initialisation_without_effect_is_refused(workplace, overrides):
    with pytest.raises(DataError, match="projection_init: basis"):
        load_config(workplace / "arm.yaml", overrides)


def test_a_share_of_the_corpus_is_part_of_a_larger_share(make_trainer):
    whole, half, few = (make_trainer(f"training.share={share}", "training.steps=null") for share in (1, 0.5, 0.2))
    n = len(whole.corpus)
    assert whole.examples.tolist() == list(range(n)) and len(half.examples) == math.ceil(n / 2)
    assert set(few.examples) < set(half.examples)
    seen = {few._locate(i)[1] for i in range(few.total_examples)}
    assert seen == set(few.examples)  # every example of the share once an epoch, and no other
    assert few.train_step()["loss"] > 0
