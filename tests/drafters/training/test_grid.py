"""Every combination of fusion, context projections and loss weighting: trained, evaluated, saved, loaded, decoded."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from analysis.runlog.reading import Run
from drafters.checkpoints.folder import load_drafter, weights_sha256
from drafters.config import load_config, parse_source
from drafters.decoding.decode import decode
from drafters.evaluation.generation import GenerateSettings
from drafters.evaluation.replay import ReplaySettings
from drafters.evaluation.run import evaluate
from drafters.model import fusion_table
from drafters.model.drafter import Drafter
from drafters.prompts.sources import load_prompts, messages
from drafters.target.frozen import Target
from drafters.training.corpora import arm_corpus
from drafters.training.run import train

FUSIONS = ("concat", "gated", "layerwise", "layerwise_gated")
GRID = list(itertools.product(FUSIONS, ("shared", "separate"), ("fixed", "progressive", "dpace")))


def count_projected(drafter, monkeypatch):
    """Tokens of each call that projects context, as they come."""
    counts, project = [], drafter.project_context

    def counting(features, positions):
        counts.append(positions.numel())
        return project(features, positions)

    monkeypatch.setattr(drafter, "project_context", counting)
    return counts


@pytest.mark.parametrize("fusion", FUSIONS)
def test_every_combination_lives_a_whole_life(workplace, monkeypatch, fusion):
    """Two steps each, on one corpus; the arms of a fusion are evaluated together."""
    combinations = [(kv, weighting) for f, kv, weighting in GRID if f == fusion]
    folders, hashes = [], set()
    for kv, weighting in combinations:
        folder = workplace / "runs" / f"{kv}-{weighting}"
        drafter = f"drafter={{fusion: {fusion}, kv: {kv}, target_layers: [0, 2, 3]}}"
        overrides = [drafter, f"loss.weighting={weighting}", "training={steps: 2, lr: 1e-2}", "validation.seen=[]"]
        config = load_config("arm.yaml", overrides)
        train(config, folder, "cpu")
        folders.append(folder)
        run = Run.open(folder, allow_incomplete=True)
        rows = run.read("history").to_pylist()
        assert all(np.isfinite(row["loss"]) and row["grad_norm"] > 0 for row in rows)
        hashes.add(rows[-1]["data_hash"])
        assert run.has("fusion") == fusion.startswith("layerwise")
    assert len(hashes) == 1  # whatever the axes, the same data in the same order

    evaluate([str(f) for f in folders], [parse_source("test.jsonl:6")])
    target = Target.load(load_config("arm.yaml").target)
    prompts = [target.encode_chat(messages(p)) for p in load_prompts(["test.jsonl"])[:2]]
    plain = decode(target, None, prompts, max_new_tokens=12).sequences
    weights = set()
    for folder in folders:
        run = Run.open(folder)
        assert run.read("acceptance").num_rows == 6
        # gates are logged for what projects; a layer-wise fusion has a table of its own
        assert run.has("gates") == run.has("gate_stats") == (not fusion.startswith("layerwise"))
        drafter = load_drafter(folder / "checkpoints" / "final")
        assert weights_sha256(drafter) == run.manifest.drafter.checkpoint_sha256
        weights.add(weights_sha256(drafter))
        projected = count_projected(drafter, monkeypatch)
        found = decode(target, drafter, prompts, max_new_tokens=12).sequences
        assert [s.tokens for s in found] == [s.tokens for s in plain]
        committed = [len(p) + sum(step.emitted for step in s.steps) for p, s in zip(prompts, found, strict=True)]
        assert sum(projected) == sum(committed)  # each once, whatever the fusion
    assert len(weights) == len(folders)  # no axis went unread
    backbones = {Run.open(folder).manifest.drafter.init_sha256 for folder in folders}
    assert len(backbones) == 1  # shared weights start equal


ADDITIONS = {
    "dflash2": "mixing: conv, selection: path",
    "dspark": "selection: markov, confidence: head",
    "everything": "mixing: conv, selection: markov_gated, confidence: head, prompt_tokens: true",
}


@pytest.mark.parametrize("features", ["stored", "online"])
@pytest.mark.parametrize("fusion", ["gated", "layerwise"])
def test_additions_live_a_whole_life(workplace, fusion, features):
    """Trained with every distance, evaluated by every protocol, decoded without loss, saved and loaded."""
    folders = []
    for (name, added), distance in zip(ADDITIONS.items(), ("none", "kl", "l1"), strict=True):
        drafter = f"drafter={{fusion: {fusion}, kv: separate, {added}, selection_rank: 8}}"
        training = [f"loss.distill={distance}", "training={steps: 3, lr: 1e-2}", f"corpus.features={features}"]
        folder = workplace / "runs" / name
        train(load_config("arm.yaml", [drafter, *training]), folder, "cpu")
        folders.append(str(folder))
        loaded = load_drafter(folder / "checkpoints" / "final")
        run = Run.open(folder, allow_incomplete=True)
        assert weights_sha256(loaded) == run.manifest.drafter.checkpoint_sha256
        row = run.read("history").to_pylist()[-1]
        has = {column: row[column] is not None for column in ("distill", "selection_ce", "confidence_bce")}
        assert has == {
            "distill": distance != "none",
            "selection_ce": "path" in added,
            "confidence_bce": "head" in added,
        }
        fresh = Drafter(loaded.config).initialise(0)
        still = [n for (n, p), (_, q) in zip(loaded.named_parameters(), fresh.named_parameters(), strict=True)
                 if torch.equal(p, q)]  # fmt: skip
        assert not still  # every part learns
    for settings in (None, ReplaySettings(max_new_tokens=8), GenerateSettings(max_new_tokens=8)):
        evaluate(folders, [parse_source("test.jsonl:4")], settings=settings)
    target = Target.load(load_config("arm.yaml").target)
    prompts = [target.encode_chat(messages(p)) for p in load_prompts(["test.jsonl"])[:2]]
    plain = decode(target, None, prompts, max_new_tokens=12).sequences
    for folder in folders:
        rows = Run.open(folder).read("prompts").to_pandas()
        assert rows["matches_baseline"].dropna().all() and set(rows["protocol"]) == {"prefix", "replay", "generate"}
        tau = rows[rows["protocol"] != "prefix"].pivot(index="prompt_id", columns="protocol", values="steps")
        assert (tau["replay"] == tau["generate"]).all()  # the same walk
        found = decode(target, load_drafter(Path(folder) / "checkpoints/final"), prompts, max_new_tokens=12).sequences
        assert [s.tokens for s in found] == [s.tokens for s in plain]


def test_fusion_table_says_what_was_learnt(workplace):
    for fusion in ("layerwise", "layerwise_gated"):
        overrides = [f"drafter={{fusion: {fusion}, target_layers: [0, 2, 3]}}", "training={steps: 8, lr: 3e-2}"]
        config = load_config("arm.yaml", overrides)
        folder = workplace / "runs" / fusion
        train(config, folder, "cpu")
        table = Run.open(folder).read("fusion").to_pandas()
        drafter = load_drafter(folder / "checkpoints" / "final")
        target = Target.load(config.target)
        corpus = arm_corpus(config, target, load_prompts(config.corpus.prompts), "corpus")
        assert len(corpus) <= fusion_table.EXAMPLES
        features = np.concatenate([corpus[i].features.float().numpy() for i in range(len(corpus))])

        assert table["draft_layer"].tolist() == [0, 0, 0, 1, 1, 1]
        assert table["target_layer"].tolist() == [1, 3, 4] * 2  # indices into hidden_states
        np.testing.assert_allclose(table.groupby("draft_layer")[["weight", "contribution_share"]].sum(), 1, atol=1e-5)
        norms = np.linalg.norm(features, axis=-1).mean(0)
        np.testing.assert_allclose(table["mean_feature_norm"], [*norms, *norms], rtol=1e-5)
        learnt = drafter.fusion.layer_fusion_weights.detach().numpy()
        weights = table["weight"].to_numpy().reshape(2, 3)
        still = np.exp(learnt) / np.exp(learnt).sum(-1, keepdims=True)
        start = np.exp([[2, 0, 0], [0, 2, 0]])
        assert np.abs(weights - start / start.sum(-1, keepdims=True)).max() > 0.01  # it learnt
        if fusion == "layerwise":
            np.testing.assert_allclose(weights, still, rtol=1e-5)
            parts = still[1][:, None] * features  # [tokens, T, H]
            total = parts.sum(1, keepdims=True)
            shares = (parts * total).sum(-1) / (total**2).sum(-1)
            np.testing.assert_allclose(table["contribution_share"][3:], shares.mean(0), rtol=1e-4)
        else:
            assert np.abs(weights - still).max() > 1e-4  # the mean over tokens of weights that move
