"""What a training costs, against drafters that are built, steps that are run, and numbers by hand."""

import itertools
import json

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM

from analysis.errors import DataError, UsageError, run_command
from benchmarks.dry_run import configuration, peak_bytes, trainer_of
from drafters.axes import shaped
from drafters.commands import train
from drafters.config import load_config
from drafters.model import drafter as model
from drafters.model.drafter import Drafter
from drafters.target.frozen import Target
from drafters.target.shapes import KNOWN, count_parameters, target_config
from drafters.training.cost import memory, time
from drafters.training.cost.devices import PEAKS, REACHED
from drafters.training.cost.dry_run import Given, dry_run
from drafters.training.cost.shapes import sizes
from tests.drafters.commands.test_recipes import RECIPES
from tests.tiny import tiny_target

PROMPT = 40
FUSIONS = ("concat", "gated", "layerwise", "layerwise_gated")
FAST = Given(prompt_tokens=PROMPT, flops=1e12, bandwidth=1e11)
PUBLISHED = Given("h100", ranks=2, examples=792_000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("target") / "middle"
    target = tiny_target(vocab=2000, layers=12, hidden=128)
    target.model.save_pretrained(found)
    target.tokenizer.save_pretrained(found)
    return str(found)


@pytest.fixture(scope="module")
def target(folder):
    return Target.load(folder)


def arm(folder, drafter=(), training=(), answer=60, *, loss=None, features="stored"):
    base = {"num_layers": 3, "mask_token_id": 3, "draft_vocab": None}
    config = configuration(folder, base | dict(drafter), {"accumulate": 2} | dict(training), answer)
    corpus = config.corpus.model_copy(update={"features": features})
    return config.model_copy(
        update={"corpus": corpus, "loss": config.loss.model_copy(update={"distill": loss or "none"})}
    )


class TestParameters:
    @pytest.mark.parametrize(
        "axes",
        [
            {"fusion": fusion, "kv": kv, "kv_norm": norm, "mixing": mixing}
            for fusion, (kv, norm), mixing in itertools.product(
                FUSIONS, (("shared", "shared"), ("separate", "shared"), ("separate", "own")), ("none", "conv")
            )
        ]
        + [
            {"selection": selection, "selection_rank": 8, "confidence": confidence, "draft_vocab": vocab}
            for selection, confidence, vocab in itertools.product(
                ("argmax", "path", "markov", "markov_gated"), ("none", "head"), (None, 50)
            )
        ],
        ids=lambda axes: "-".join(map(str, axes.values())),
    )
    def test_they_are_those_of_a_drafter_that_is_built(self, folder, axes):
        config = arm(folder, axes)
        found = dry_run(config, FAST).sizes
        count = config.drafter.draft_vocab
        full = shaped(
            config.drafter, target_config(folder), "t", num_layers=12, vocab_size=2000,
            vocab=tuple(range(count)) if count else None,
        )  # fmt: skip
        built = Drafter(full).initialise(0)
        assert found.drafter["total"] == sum(p.numel() for p in built.parameters())
        assert found.drafter == built.parameter_counts()
        assert found.matrices == sum(m.weight.numel() for m in built.modules() if isinstance(m, torch.nn.Linear))

    def test_dflash_for_qwen3_8b_by_hand(self):
        config = load_config(RECIPES / "qwen3-8b-dflash.yaml")
        found = dry_run(config, Given("h100")).sizes
        layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 12288 + 2 * 4096 + 2 * 128
        assert found.drafter == {
            "fc": 5 * 4096**2, "norms": 2 * 4096, "layers": 5 * layer, "total": 5 * 4096**2 + 2 * 4096 + 5 * layer,
        }  # fmt: skip
        assert (found.target, found.embedding, found.head) == (8_190_735_360, 151_936 * 4096, 151_936 * 4096)

    def test_the_known_targets_have_their_published_counts(self):
        counts = {name: count_parameters(target_config(name)) for name in KNOWN}
        assert counts == {
            "Qwen/Qwen3-4B": 4_022_468_096, "Qwen/Qwen3-8B": 8_190_735_360, "smollm2": 134_515_008
        }  # fmt: skip

    def test_a_local_config_gives_the_shapes_of_the_weights_beside_it(self, folder, target):
        assert count_parameters(target_config(folder)) == sum(p.numel() for p in target.model.parameters())
        assert AutoModelForCausalLM.from_pretrained(folder).config.hidden_size == target_config(folder).hidden_size

    def test_a_target_without_known_shapes_is_refused(self, tmp_path):
        with pytest.raises(DataError, match="no such folder or known model"):
            target_config("nobody/nothing")
        with pytest.raises(DataError, match=r"no config\.json"):
            target_config(str(tmp_path))


def agrees(config, target, precision):
    config = config.model_copy(update={"training": config.training.model_copy(update={"precision": precision})})
    measured, computed = peak_bytes(trainer_of(config, target, PROMPT)), dry_run(config, FAST).memory
    assert computed.peak == pytest.approx(measured, rel=0.2)
    # what is there all along is known exactly: what a step takes beside it has to agree as well
    moving = computed.features + computed.activations + computed.workspace
    if computed.gradients == 4 * dry_run(config, FAST).sizes.drafter["total"]:
        assert moving == pytest.approx(measured - (computed.peak - moving), rel=0.2)


class TestMemory:
    @pytest.mark.parametrize("precision", ["float32", "bfloat16"])
    @pytest.mark.parametrize(
        ("drafter", "more"),
        [
            ({}, {}),
            ({"fusion": "gated"}, {}),
            ({"fusion": "layerwise", "kv": "separate", "target_layers": 9}, {}),
            ({"fusion": "layerwise_gated", "fusion_norm": "before", "target_layers": 9}, {}),
            ({"mixing": "conv"}, {}),
            ({"selection": "path", "selection_rank": 64}, {}),
            ({"selection": "markov", "selection_rank": 32}, {}),
            ({"selection": "markov", "selection_rank": 32, "confidence": "head"}, {"loss": "l1"}),
            ({}, {"loss": "kl"}),
            ({}, {"features": "online"}),
            ({"draft_vocab": 200}, {"answer": 200}),
            ({"draft_vocab": 200, "intermediate_size": 1024}, {"answer": 20}),
            ({"draft_vocab": 200}, {"training": {"accumulate": 1}}),
        ],
        ids=str,
    )
    def test_it_is_what_a_step_takes(self, folder, target, drafter, more, precision):
        agrees(arm(folder, drafter, **more), target, precision)

    def test_many_slots(self, folder, target):
        """More than LOGIT_ROWS, so that logits are made twice."""
        agrees(arm(folder, {"num_layers": 1}, {"anchors": 150}, answer=160), target, "float32")

    def test_scores_above_the_limit(self, folder, target, monkeypatch):
        for module in (model, memory, time):
            monkeypatch.setattr(module, "SCORE_LIMIT", 2**19)
        agrees(arm(folder, {"draft_vocab": 200}, {"anchors": 64}, answer=200), target, "float32")

    def test_ranks_hold_copies_or_parts(self, folder):
        alone, shared = (dry_run(arm(folder), Given(ranks=n, flops=1e12, bandwidth=1e11)).memory for n in (1, 2))
        assert (alone.copies, shared.copies) == (0, alone.weights)
        config = arm(folder, training={"sharding": "fsdp2"})
        parts = dry_run(config, Given(ranks=2, flops=1e12, bandwidth=1e11)).memory
        assert (parts.weights, parts.moments) == (shared.weights // 2, shared.moments // 2)
        assert (parts.gradients, parts.copies) == (shared.gradients, shared.copies)

    @pytest.mark.parametrize("path", sorted(RECIPES.glob("qwen3-8b-*.yaml")), ids=lambda p: p.stem)
    def test_the_recipes_fit_a_gpu_of_80_gb(self, path):
        config = load_config(path)
        longest = Given("h100", ranks=2, prompt_tokens=config.corpus.max_length - config.corpus.max_new_tokens)
        found = dry_run(config, longest)
        assert found.step.length == 3072
        assert found.memory.peak < 0.95 * 80e9  # the rest is for the device's context


class TestTime:
    @pytest.mark.parametrize(
        "drafter",
        [
            {"intermediate_size": 512},
            {"fusion": "gated"},
            {"fusion": "layerwise", "target_layers": 9, "kv": "separate"},
            {"mixing": "conv"},
            {"selection": "markov", "selection_rank": 32},
            {"selection": "path", "selection_rank": 32},
        ],
        ids=str,
    )
    def test_the_operations_are_those_that_torch_counts(self, folder, target, drafter):
        config = arm(folder, drafter)
        trainer = trainer_of(config, target, PROMPT)
        with FlopCounterMode(display=False) as counted:
            trainer.train_step()
        found = dry_run(config, FAST)
        assert found.step.micro_batches * found.work.operations == pytest.approx(counted.get_total_flops(), rel=0.02)

    def test_the_target_s_pass_is_counted(self, folder, target):
        stored, online = (dry_run(arm(folder, features=kind), FAST) for kind in ("stored", "online"))
        layers = sum(p.numel() for p in target.model.model.layers.parameters())
        assert online.work.target - stored.work.target == pytest.approx(2 * layers * online.step.rows, rel=0.01)

    def test_a_device_twice_as_fast_takes_half_the_time(self, folder):
        one, two = (
            dry_run(arm(folder), Given(flops=n * 1e12, bandwidth=n * 1e11)).time.total for n in (1, 2)
        )  # fmt: skip
        assert two == pytest.approx(one / 2)

    def test_the_published_run(self):
        found = dry_run(load_config(RECIPES / "qwen3-8b-dflash.yaml"), PUBLISHED)
        assert found.steps == 24_750
        assert found.device.flops == REACHED * PEAKS["h100"][0]
        assert found.device_hours == pytest.approx(2 * 24_750 * found.time.total / 3600)

    def test_more_ranks_than_micro_batches(self, folder):
        with pytest.raises(UsageError):
            dry_run(arm(folder), Given(ranks=3))


class TestCommand:
    def test_a_table_without_weights_and_nothing_written(self, workplace, capsys, monkeypatch):
        monkeypatch.setattr(Target, "load", None)
        before = sorted(workplace.rglob("*"))
        call = [str(RECIPES / "study-dflash.yaml"), "--dry-run", "--hardware", "a100"]
        assert run_command(train.main, call) == 0
        assert {"8,740,480", "134,515,008"} < set(capsys.readouterr().out.split())
        assert run_command(train.main, [*call, "--json", "--examples", "10"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["sizes"]["drafter"]["total"] == 8_740_480
        assert found["memory"]["peak"] == sum(v for k, v in found["memory"].items() if k != "peak")
        assert found["steps"] == 1200  # as the recipe says, whatever the examples
        assert sorted(workplace.rglob("*")) == before

    @pytest.mark.parametrize(
        ("options", "code"),
        [
            (["--hardware", "h100"], 64),
            (["--json"], 64),
            (["--dry-run", "--ranks", "0"], 64),
            (["--dry-run", "--set", "target=nobody/nothing"], 65),
            (["--dry-run", "--hardware", "h100", "--set", "training.precision=float64"], 64),
        ],
    )
    def test_what_cannot_be_is_refused(self, workplace, capsys, options, code):
        assert run_command(train.main, ["arm.yaml", *options]) == code
        assert len(capsys.readouterr().err.splitlines()) == 1

    def test_sizes_of_the_tiny_target(self, workplace, capsys):
        assert run_command(train.main, ["arm.yaml", "--dry-run", "--json", "--device-flops", "1e11"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["device"]["source"] == "given"


def test_sizes_refuse_what_is_unknown():
    config = load_config(RECIPES / "qwen3-8b-dflash.yaml")
    shape = target_config("Qwen/Qwen3-8B")
    full = shaped(config.drafter, shape, "q", num_layers=36, vocab_size=shape.vocab_size, vocab=None)
    with pytest.raises(DataError):
        sizes("nobody/nothing", full)
