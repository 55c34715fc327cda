"""The recipes that ship: they load, say what was published, and the arms of a study differ only in what they are."""

from pathlib import Path

import pytest
import yaml

from analysis.commands.report import PlanEntry
from drafters.config import load_config, read_yaml
from drafters.evaluation.controls import CONTROLS

RECIPES = Path(__file__).parents[3] / "drafters" / "recipes"
NOT_ARMS = ("study.yaml", "study-seeds.yaml", "study-common.yaml")
STUDY, SEEDS = (read_yaml(RECIPES / name) for name in ("study.yaml", "study-seeds.yaml"))


@pytest.mark.parametrize(
    "path", sorted(p for p in RECIPES.glob("*.yaml") if p.name not in NOT_ARMS), ids=lambda p: p.stem
)
def test_an_arm_is_named_as_its_file(path):
    assert load_config(path).name == path.stem


def test_arms_of_the_study_differ_in_drafter_and_loss_alone():
    arms = [load_config(RECIPES / name) for name in STUDY["arms"]]
    shared = [arm.model_dump(exclude={"name", "label", "drafter", "loss"}) for arm in arms]
    assert "DFlare" in {arm.label for arm in arms} and all(other == shared[0] for other in shared)
    axes = {"fusion", "gate_activation", "gate_input", "fusion_init", "fusion_norm", "kv", "kv_norm"}
    shapes = [arm.drafter.model_dump(exclude=axes) for arm in arms]
    assert all(other == shapes[0] for other in shapes)


def test_the_plan_reports_just_the_runs_that_the_study_makes():
    plan = yaml.safe_load((RECIPES.parents[1] / "reports" / "plan.yaml").read_text())
    made = {load_config(RECIPES / name).name for name in STUDY["arms"]} | {STUDY["baseline"]}
    made |= {f"{run}-{control}" for run in STUDY["gate_controls"] for control in CONTROLS}
    made |= {f"{load_config(RECIPES / name).name}-seed{n}" for name in SEEDS["arms"] for n in SEEDS["seeds"]}
    assert made == {run for entry in plan["comparisons"] for run in PlanEntry.model_validate(entry).runs}


def test_dflare_as_published():
    arm = load_config(RECIPES / "qwen3-8b-dflare.yaml")
    drafter = arm.drafter
    assert (drafter.fusion, drafter.kv, drafter.num_layers, drafter.block_size) == ("layerwise", "separate", 7, 16)
    assert drafter.target_layers == (1, 5, 9, 13, 17, 21, 25, 29, 33)
    assert arm.loss.weighting == "progressive"
