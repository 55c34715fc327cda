"""Whether two arms had the same chance, from manifests."""

from __future__ import annotations

import pytest

from analysis.errors import DataError
from analysis.measures.fairness import cautions_of, compare_arms, design_differences, require_same_target, same_target
from analysis.runlog.manifest import Target
from analysis.runlog.reading import Run
from tests.analysis.runs import prompts_of, write_run


def arm(folder, change=None, **more):
    return Run.open(write_run(folder, prompts_of([1, 2]), change=change, gates=False, history=False, **more))


def statuses(a, b):
    return {row.key: row.status for row in compare_arms(a, b, "prefix")}


def test_arms_of_one_study_differ_in_parameters_alone(tmp_path):
    a, b = arm(tmp_path / "a"), arm(tmp_path / "b", fusion="gated")
    assert {key for key, status in statuses(a, b).items() if status != "ok"} == {"parameters"}
    assert [(d.what, d.a, d.b) for d in design_differences(a.manifest, b.manifest)] == [
        ("fusion", "concat", "gated"),
        ("gate parameters", "0", "2,880"),
        ("total parameters", "10,664,640", "10,667,520"),
        ("trainable parameters", "10,664,640", "10,667,520"),
    ]


CHANGES = {
    "chat-template": lambda m: setattr(m.target, "chat_template_sha256", "99" * 32),
    "corpus": lambda m: setattr(m.training, "corpus_sha256", "99" * 32),
    "data-order": lambda m: setattr(m.training, "data_hash", "99" * 32),
    "steps": lambda m: setattr(m.training, "steps", 30),
    "precision": lambda m: setattr(m.training, "precision", "bfloat16"),
    "seeds": lambda m: m.training.seeds.update(init=1),
    "init": lambda m: setattr(m.drafter, "init_sha256", "99" * 32),
    "prompts": lambda m: setattr(next(iter(m.evaluations.values())), "prompt_set_sha256", "99" * 32),
    "block-size": lambda m: setattr(next(iter(m.evaluations.values())), "block_size", 16),
    "evaluation-settings": lambda m: next(iter(m.evaluations.values())).settings.update(max_new_tokens=9),
    "training-settings": lambda m: m.training.settings.update(batch=8),
}


@pytest.mark.parametrize("key", sorted(CHANGES))
def test_every_row_can_differ(tmp_path, key):
    a, b = arm(tmp_path / "a"), arm(tmp_path / "b", CHANGES[key])
    assert {k for k, status in statuses(a, b).items() if status == "differs"} == {key}
    (warning,) = cautions_of(compare_arms(a, b, "prefix"))
    assert warning.code == f"{key}-differs"


def test_differing_settings_are_named(tmp_path):
    a, b = arm(tmp_path / "a"), arm(tmp_path / "b", lambda m: m.training.settings.update(batch=8, lr={"peak": 1.0}))
    row = next(r for r in compare_arms(a, b, "prefix") if r.key == "training-settings")
    assert (row.a, row.b) == ("batch 4, lr —", "batch 8, lr peak 1.0")


def test_what_is_not_known_is_said_to_be_unknown(tmp_path):
    def bare(manifest):
        manifest.target = manifest.training = manifest.drafter = None

    a, b = arm(tmp_path / "a"), arm(tmp_path / "b", bare)
    found = statuses(a, b)
    assert {key for key, status in found.items() if status == "unknown"} == {
        "target", "target-weights", "chat-template", "corpus", "data-order", "steps", "precision", "seeds", "init",
        "parameters", "training-settings",
    }  # fmt: skip
    (warning,) = cautions_of(compare_arms(a, b, "prefix"))
    assert warning.code == "unknown"
    require_same_target(a, b)
    with pytest.raises(DataError, match=r"b: .*target.*--strict"):
        require_same_target(a, b, strict=True)


def test_targets_are_told_apart_by_weights_then_by_name(tmp_path):
    def named(target_id, sha256=None):
        return Target(id=target_id, sha256=sha256)

    assert same_target(named("x", "1"), named("y", "1")) is True  # one model under two paths
    assert same_target(named("x", "1"), named("x", "2")) is False
    assert same_target(named("x"), named("y", "1")) is False
    assert same_target(named("x"), named("x", "1")) is True
    assert same_target(None, named("x")) is None
    a, b = arm(tmp_path / "a"), arm(tmp_path / "b", lambda m: setattr(m.target, "sha256", "99" * 32))
    with pytest.raises(DataError, match=r"toy-135m, sha256 abababababab; .*999999999999"):
        require_same_target(a, b)


def test_several_evaluations_are_compared_as_a_set(tmp_path):
    def twice(manifest):
        (evaluation,) = manifest.evaluations.values()
        manifest.evaluations["second"] = evaluation.model_copy(update={"settings": {"x": 1}})

    a, b, c = arm(tmp_path / "a", twice), arm(tmp_path / "b", twice), arm(tmp_path / "c")
    assert statuses(a, b)["evaluation-settings"] == "ok"
    assert statuses(a, c)["evaluation-settings"] == "differs"


def test_parameters_of_one_arm_alone_come_in_its_own_order(tmp_path):
    # from a set they would come in another order in every process, and reports would change by themselves
    baseline, drafter = arm(tmp_path / "a").manifest, arm(tmp_path / "b").manifest
    baseline = baseline.model_copy(update={"drafter": baseline.drafter.model_copy(update={"parameters": {}})})
    items = [d.what for d in design_differences(baseline, drafter)]
    counted = [item for item, count in drafter.drafter.parameters.items() if count]
    assert items == [f"{item} parameters" for item in counted] and len(items) > 3
