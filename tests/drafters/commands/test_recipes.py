"""The recipes that ship: they load, say what was published, and the arms of a study differ only in what they are."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from analysis.commands.report import read_plan
from drafters.axes import DrafterAxes
from drafters.commands.study import Study, cells_of
from drafters.config import load_config, read_yaml
from drafters.evaluation.controls import CONTROLS
from drafters.model.fusion import GatedFusion
from drafters.serving.plan import ServingPlan
from drafters.settings import parse
from tests.drafters.configs import drafter_config

RECIPES = Path(__file__).parents[3] / "drafters" / "recipes"
STUDIES = sorted(p for p in RECIPES.glob("study*.yaml") if "arms" in read_yaml(p))
NOT_ARMS = {"study-common.yaml", *(p.name for p in STUDIES)}
SERVING = sorted(RECIPES.glob("serving-*.yaml"))
ARMS = sorted(p for p in RECIPES.glob("*.yaml") if p.name not in NOT_ARMS and p not in SERVING)
STUDY, SEEDS, FAMILY = (read_yaml(RECIPES / f"study{name}.yaml") for name in ("", "-seeds", "-family"))


@pytest.mark.parametrize(
    "path",
    sorted(p for p in RECIPES.glob("*.yaml") if p.name not in NOT_ARMS and p not in SERVING),
    ids=lambda p: p.stem,
)
def test_an_arm_is_named_as_its_file(path):
    assert load_config(path).name == path.stem


@pytest.mark.parametrize("path", SERVING, ids=lambda p: p.stem)
def test_a_serving_experiment_is_that_of_the_write_up(path):
    plan = parse(ServingPlan, read_yaml(path), path.name)
    assert plan.name == path.stem and plan.max_tokens == 64 and plan.ignore_eos and plan.temperature == 0
    assert sum(source.count for source in plan.prompts) == 24
    assert next(iter(plan.arms)) == "plain" and plan.arms["plain"].drafter is None
    made = {load_config(RECIPES / name).name for name in STUDY["arms"]}
    used = {arm.drafter or arm.model for arm in plan.arms.values()} - {None, "smollm2"}
    assert used and used <= made
    assert plan.balanced or plan.arms["plain"].engine != "draftlab"


def test_arms_of_the_study_differ_in_drafter_and_loss_alone():
    arms = [load_config(RECIPES / name) for name in {*STUDY["arms"], *FAMILY["arms"]}]
    shared = [arm.model_dump(exclude={"name", "label", "drafter", "loss"}) for arm in arms]
    assert "DFlare" in {arm.label for arm in arms} and all(other == shared[0] for other in shared)
    shapes = [arm.drafter.model_dump(exclude=set(DrafterAxes.model_fields)) for arm in arms]
    assert all(other == shapes[0] for other in shapes)


def test_the_family_is_a_factorial_and_dflare_beside_it():
    arms = [load_config(RECIPES / name).drafter for name in FAMILY["arms"]]
    cells = [(a.fusion, a.mixing, a.selection) for a in arms if a.fusion != "layerwise"]
    assert sorted(cells) == sorted(itertools.product(("concat", "gated"), ("none", "conv"), ("argmax", "path")))
    assert [(a.mixing, a.selection) for a in arms if a.fusion == "layerwise"] == [("none", "argmax"), ("conv", "path")]


@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.stem)
def test_the_cells_of_a_study_are_runs_of_their_own(path):
    described = parse(Study, read_yaml(path), path.name)
    cells = [cell for arm in described.arms for cell in cells_of(RECIPES / arm, described.grid)]
    assert len({cell.name for cell in cells}) == len(cells) > 1
    assert all(cell.corpus == cells[0].corpus for cell in cells)


def test_two_thirds_of_the_families_and_more_are_trained_on():
    trained = {source.source for source in load_config(RECIPES / "study-dflash.yaml").corpus.prompts}
    asked = {source["source"] for source in STUDY["evaluation"]["prompts"]}
    assert len(trained) == 24 and len(asked - trained) == 6  # six are held out whole


def test_the_plan_reports_just_the_runs_that_the_study_makes():
    made = {load_config(RECIPES / name).name for name in STUDY["arms"]} | set(STUDY["baselines"])
    made |= {f"{run}-{control}" for run in STUDY["gate_controls"] for control in CONTROLS}
    made |= {load_config(RECIPES / name).name for name in FAMILY["arms"]}
    made |= {f"{load_config(RECIPES / name).name}-seed{n}" for name in SEEDS["arms"] for n in SEEDS["seeds"]}
    planned = read_plan(RECIPES.parents[1] / "reports" / "plan.yaml")
    assert made == {run for entry in (*planned.comparisons, *planned.factorials) for run in entry.runs}
    assert {entry.run for entry in planned.serving} <= {path.stem for path in SERVING}


def test_dflare_as_published():
    arm = load_config(RECIPES / "qwen3-8b-dflare.yaml")
    drafter = arm.drafter
    assert (drafter.fusion, drafter.kv, drafter.num_layers, drafter.block_size) == ("layerwise", "separate", 7, 16)
    assert drafter.target_layers == (1, 5, 9, 13, 17, 21, 25, 29, 33)
    assert arm.loss.weighting == "progressive"


def test_the_experiment_of_the_write_up():
    """One epoch, batches of 32, 700 prompts held out; and a gate with its parameters that starts as DFlash."""
    arms = [load_config(RECIPES / f"qwen3-8b-{name}.yaml") for name in ("dflash", "dynadflash", "dflare")]
    for arm in arms:
        assert (arm.training.epochs, arm.training.batch * arm.training.accumulate, arm.training.warmup) == (1, 32, 0.04)
        assert arm.corpus == arms[0].corpus and arm.corpus.holdout.count == 700
    gate = GatedFusion(drafter_config(fusion="gated", gate_activation=arms[1].drafter.gate_activation)).gate
    assert gate.weight.numel() == 3 * 24  # T x H
    assert torch.equal(gate(torch.randn(5, 3, 24)), torch.ones(5, 3))
    with torch.no_grad():
        gate.weight -= 10
    assert (gate(torch.randn(5, 3, 24)) < 0).any()  # unbounded


def test_a_recipe_is_read_without_torch():
    code = (
        "import sys; from drafters.config import load_config; load_config(sys.argv[1]); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(ARMS[0])], check=False).returncode == 0
