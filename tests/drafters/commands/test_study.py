"""A study from nothing: arms, controls, baseline, evaluation, speed and reports by one command."""

import shutil

import pytest
import yaml

from analysis.comparison.pairwise import compare_runs
from analysis.errors import DataError, run_command
from analysis.runlog.reading import Run
from drafters.checkpoints.run_files import FINAL
from drafters.commands import study, train

PLANNED = {"a": "plain", "b": "gated", "protocol": "prefix", "controls": ["gated-frozen", "gated-shuffled"]}


@pytest.fixture
def tiny_study(workplace):
    """study.yaml: two arms of the workplace's configuration, its gate controls, a baseline, and a plan."""
    for name, fusion in (("plain", "concat"), ("gated", "gated")):
        arm = {"extends": "arm.yaml", "name": name, "drafter": {"fusion": fusion}, "training": {"steps": 6}}
        (workplace / f"{name}.yaml").write_text(yaml.safe_dump(arm))
    prompts = [{"source": "test.jsonl", "name": "gsm8k"}]
    described = {
        "arms": ["plain.yaml", "gated.yaml"],
        "baselines": {"next-token": "next-token", "lookup": "prompt-lookup"},
        "gate_controls": ["gated"],
        "evaluation": {"prompts": prompts, "replay": 12},
        "speed": {"runs": ["plain", "gated"], "prompts": [{**prompts[0], "count": 3}], "max_new_tokens": 12},
    }
    (workplace / "study.yaml").write_text(yaml.safe_dump(described))
    (workplace / "reports").mkdir()
    (workplace / "reports/plan.yaml").write_text(yaml.safe_dump({"comparisons": [PLANNED]}))
    return workplace


def test_one_command_makes_runs_and_reports_and_again_changes_nothing(tiny_study, capsys):
    assert study.main(["study.yaml"]) == 0
    runs = {path.name: Run.open(str(path)) for path in (tiny_study / "runs").iterdir()}
    assert set(runs) == {"plain", "gated", "gated-frozen", "gated-shuffled", "next-token", "lookup"}
    asked = {name: run.read("prompts").to_pandas().groupby("protocol").size().to_dict() for name, run in runs.items()}
    assert all(counts["prefix"] == counts["replay"] == 12 for counts in asked.values())
    assert {name for name, counts in asked.items() if counts.get("generate") == 3} == {"plain", "gated"}
    times = runs["gated"].read("timings").to_pandas()
    assert set(times["mode"]) == {"draft", "plain"}
    # the headline is of many first blocks, speed and losslessness of the few whole answers beside plain decoding
    planned, answers = (
        compare_runs("plain", "gated", protocol="prefix"),
        compare_runs("plain", "gated", protocol="generate"),
    )
    assert (planned.protocol, planned.overall.n_pairs, answers.overall.n_pairs) == ("prefix", 12, 3)
    assert planned.speed is not None and planned.speed.ratios == answers.speed.ratios
    assert planned.benchmarks is not None and planned.benchmarks.rows == answers.benchmarks.rows
    replayed = compare_runs("plain", "gated")
    assert replayed.protocol == "replay" and replayed.overall.n_pairs == 12 and len(replayed.headroom) == 2
    assert answers.b.gates is not None and answers.b.gates.table.equals(replayed.b.gates.table)
    assert "Logged on the prompts of protocol replay." in answers.to_markdown()
    assert compare_runs("plain", "gated", controls=["gated-frozen"]).protocol == "replay"
    assert planned.outputs.a.matches == planned.outputs.a.checked == 3
    assert "| plain decoding | speed-up, pooled |" in (tiny_study / "reports/plain-vs-gated/report.md").read_text()

    def tables():
        return {path: path.read_bytes() for path in (tiny_study / "runs").rglob("*.parquet") if path.is_file()}

    before = tables()
    assert len(before) > 10
    assert study.main(["study.yaml"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert tables() == before


@pytest.mark.slow
def test_logs_without_weights_are_set_aside_and_made_anew(tiny_study, capsys):
    assert study.main(["study.yaml"]) == 0
    runs = tiny_study / "runs"
    made = sorted(path.name for path in runs.iterdir())
    for name in ("plain", "gated", "next-token", "lookup"):  # what a clone of a repository has
        shutil.rmtree(runs / name / "checkpoints")
    logs = (runs / "plain/run.json").read_bytes()
    assert run_command(train.main, ["plain.yaml"]) == 65
    assert "its weights are not here" in capsys.readouterr().err

    assert study.main(["study.yaml"]) == 0
    assert sorted(path.name for path in (runs / study.SET_ASIDE).iterdir()) == made
    assert (runs / study.SET_ASIDE / "plain/run.json").read_bytes() == logs
    assert sorted(path.name for path in runs.iterdir() if path.name != study.SET_ASIDE) == made
    assert (runs / "plain/checkpoints" / FINAL).exists()
    shutil.rmtree(runs / "plain/checkpoints")
    assert study.main(["study.yaml"]) == 0  # one alone, and a name that is taken
    assert {path.name for path in (runs / study.SET_ASIDE).iterdir()} == {*made, "plain-2"}


@pytest.mark.slow
def test_controls_of_another_training_are_set_aside(tiny_study):
    assert study.main(["study.yaml"]) == 0
    runs = tiny_study / "runs"
    shutil.rmtree(runs / "gated")
    assert train.main(["gated.yaml"]) == 0  # the same again: its controls' logs hold
    assert study.main(["study.yaml"]) == 0
    assert not (runs / study.SET_ASIDE).exists()
    shutil.rmtree(runs / "gated")
    assert train.main(["gated.yaml", "--set", "seeds.data=1"]) == 0
    (tiny_study / "gated.yaml").write_text((tiny_study / "gated.yaml").read_text() + "seeds: {data: 1}\n")
    assert study.main(["study.yaml"]) == 0
    assert {path.name for path in (runs / study.SET_ASIDE).iterdir()} == {"gated-frozen", "gated-shuffled"}


def test_a_run_that_the_study_does_not_make_is_named_before_any_training(tiny_study, capsys):
    text = (tiny_study / "study.yaml").read_text().replace("- gated\n", "- gatd\n")
    (tiny_study / "study.yaml").write_text(text)
    assert run_command(study.main, ["study.yaml"]) == 65
    assert "gatd is no run of this study; its runs are plain, gated" in capsys.readouterr().err
    assert not list((tiny_study / "runs").iterdir())


def test_a_grid_has_a_cell_for_every_combination(tiny_study):
    arm = tiny_study / "plain.yaml"
    cells = study.cells_of(
        arm, {"drafter.num_layers": [1, 2], "training.share": [0.5, 1.0], "drafter.target_layers": [2]}
    )
    assert [cell.name for cell in cells] == [
        "plain-num_layers-1-share-0.5-target_layers-2",
        "plain-num_layers-1-share-1.0-target_layers-2",
        "plain-num_layers-2-share-0.5-target_layers-2",
        "plain",  # the arm as it stands
    ]
    assert [(c.drafter.num_layers, c.training.share) for c in cells] == [(1, 0.5), (1, 1.0), (2, 0.5), (2, 1.0)]
    assert [cell.name for cell in study.cells_of(arm, {})] == ["plain"]
    with pytest.raises(DataError, match="no such field"):
        study.cells_of(arm, {"drafter.depth": [1]})


def test_further_seeds_are_runs_of_their_own(tiny_study):
    described = {"extends": "study.yaml", "seeds": [1], "baselines": None, "gate_controls": [], "speed": None}
    (tiny_study / "seeds.yaml").write_text(yaml.safe_dump(described))
    plan = {"comparisons": [{"a": ["plain", "plain-seed1"], "b": ["gated", "gated-seed1"], "protocol": "prefix"}]}
    (tiny_study / "reports/plan.yaml").write_text(yaml.safe_dump(plan))
    assert study.main(["seeds.yaml"]) == 0
    runs = {path.name: Run.open(str(path)) for path in (tiny_study / "runs").iterdir()}
    assert set(runs) == {"plain", "plain-seed1", "gated", "gated-seed1"}
    drafters = {name: run.manifest.drafter for name, run in runs.items()}
    assert {run.manifest.training.corpus_sha256 for run in runs.values()} == {
        runs["plain"].manifest.training.corpus_sha256
    }
    # arms of one seed share initial weights and data, seeds of one arm share neither
    for suffix in ("", "-seed1"):
        one, other = runs[f"plain{suffix}"].manifest.training, runs[f"gated{suffix}"].manifest.training
        assert one.data_hash == other.data_hash and one.seeds == other.seeds
        assert drafters[f"plain{suffix}"].init_sha256 == drafters[f"gated{suffix}"].init_sha256
    assert drafters["plain"].init_sha256 != drafters["plain-seed1"].init_sha256
    assert runs["plain"].manifest.training.data_hash != runs["plain-seed1"].manifest.training.data_hash
    report = (tiny_study / "reports/plain-x2-vs-gated-x2/report.md").read_text()
    assert "over the 12 prompts that every run has" in report
