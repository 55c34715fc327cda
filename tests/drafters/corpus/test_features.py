"""Hidden states stored with a corpus, or read again in every step: the same training, in either type of the target."""

import json

import pytest
import torch
from safetensors import safe_open

from analysis.errors import DataError
from analysis.runlog.reading import Run
from drafters.commands import evaluate, generate, train
from drafters.config import load_config
from drafters.corpus.build import build_corpus
from drafters.corpus.features import FeatureReader
from drafters.prompts.sources import load_prompts
from drafters.training.corpora import arm_corpus

LAYERS = (1, 3)


def trained(name, *changes):
    sets = [part for change in changes for part in ("--set", change)]
    assert train.main(["arm.yaml", "--run", f"runs/{name}", *sets]) == 0
    return Run.open(name)


@pytest.fixture
def corpora(workplace, tiny):
    """(with stored features, without) of the same prompts."""
    prompts = load_prompts(load_config("arm.yaml").corpus.prompts)
    return [build_corpus(tiny, prompts, layer_ids=ids, max_new_tokens=16, batch_size=8) for ids in (LAYERS, ())]


def test_tokens_alone_are_kept(corpora):
    stored, bare = corpora
    assert stored.layer_ids == LAYERS and bare.layer_ids == ()
    for one, other in zip(stored, bare, strict=True):
        assert one.tokens.equal(other.tokens) and one.supervised.equal(other.supervised)
        assert one.example_id == other.example_id and other.features is None
    with safe_open(next(bare.folder.glob("shard-*")), framework="pt") as shard:
        assert set(shard.keys()) == {"tokens", "supervised"}


def test_what_is_read_is_what_would_be_stored(corpora, tiny):
    stored, bare = corpora
    reader = FeatureReader(tiny, LAYERS)
    lengths = [5, 17, 1]
    examples = [[corpus[i] for i in range(3)] for corpus in corpora]
    kept, read = (reader.padded(group, lengths) for group in examples)
    assert kept.shape == read.shape == (3, 17, 2, tiny.hidden_size) and read.dtype == torch.float32
    for row, length in enumerate(lengths):
        assert torch.allclose(kept[row, :length], read[row, :length], rtol=2**-8, atol=1e-3)  # bfloat16 keeps 8 bits
    for one, other in zip(reader.each(stored), reader.each(bare), strict=True):
        assert one.shape == other.shape and torch.allclose(one.float(), other, rtol=2**-8, atol=1e-3)


def test_one_corpus_serves_arms_of_any_layers(workplace, tiny):
    folders = set()
    for layers in ("[1, 3]", "[0, 2, 4]"):
        config = load_config("arm.yaml", ["corpus.features=online", f"drafter.target_layers={layers}"])
        folders.add(arm_corpus(config, tiny, load_prompts(config.corpus.prompts), "corpus").folder)
    assert len(folders) == 1


def test_given_answers_cost_no_pass_of_the_target(workplace, tiny, monkeypatch):
    config = load_config("arm.yaml", ["corpus.features=online", "corpus.given_answers=true"])
    monkeypatch.setattr(tiny, "forward", None)
    corpus = arm_corpus(config, tiny, load_prompts(config.corpus.prompts), "corpus")
    assert len(corpus) == 20


@pytest.mark.parametrize("fusion", ["gated", "layerwise"])
def test_training_is_the_same(workplace, fusion):
    # float32: the only difference is then that stored features were rounded
    common = ("training.precision=float32", f"drafter.fusion={fusion}")
    stored, online = (trained(kind, f"corpus.features={kind}", *common) for kind in ("stored", "online"))
    assert stored.manifest.training.data_hash == online.manifest.training.data_hash
    losses = [run.read("history")["loss"].to_pylist() for run in (stored, online)]
    assert losses[0] != losses[1] and losses[0] == pytest.approx(losses[1], rel=0.01)
    if fusion == "layerwise":
        shares = [run.read("fusion")["contribution_share"].to_pylist() for run in (stored, online)]
        assert shares[0] == pytest.approx(shares[1], abs=0.02)
    else:
        finals = [workplace / "runs" / run.name / "checkpoints/final" for run in (stored, online)]
        one, other = (json.loads((final / "mean_gate.json").read_text()) for final in finals)
        assert one["tokens"] == other["tokens"] and one["mean"] == pytest.approx(other["mean"], abs=1e-3)


@pytest.mark.parametrize(
    ("fusion", "precision"),
    [
        ("gated", "float32"),
        ("layerwise", "bfloat16"),
        pytest.param("gated", "bfloat16", marks=pytest.mark.slow),
        pytest.param("layerwise", "float32", marks=pytest.mark.slow),
    ],
)
def test_a_target_in_bfloat16(workplace, capsys, fusion, precision):
    changes = ("target_dtype=bfloat16", f"training.precision={precision}", f"drafter.fusion={fusion}")
    run = trained("arm", *changes, "corpus.features=online")
    first, *_, last = run.read("history")["loss"].to_pylist()
    assert last < first
    asked = ["runs/arm", "--prompts", "test.jsonl"]
    evaluate.main(asked)
    evaluate.main([*asked, "--protocol", "generate", "--max-new-tokens", "12", "--baseline", "--batch-size", "3"])
    prompts = Run.open("arm").read("prompts").to_pylist()
    whole = [row for row in prompts if row["protocol"] == "generate"]
    assert len(whole) == 12 and len(prompts) == 24
    # in bfloat16 a pass over a block rounds otherwise than passes over its tokens: only near ties may differ
    assert all(row["matches_baseline"] or row["mismatch_margin"] < 0.1 for row in whole)
    assert generate.main(["runs/arm", "What is 1 plus 2?", "--max-new-tokens", "8"]) == 0
    assert "tau" in capsys.readouterr().out


def test_targets_of_two_types_are_two_targets(workplace):
    wide, narrow = trained("wide"), trained("narrow", "target_dtype=bfloat16")
    assert wide.manifest.target.sha256 != narrow.manifest.target.sha256
    with pytest.raises(DataError, match=r"different targets .*float32.*bfloat16"):
        evaluate.main(["runs/wide", "runs/narrow", "--prompts", "test.jsonl"])
