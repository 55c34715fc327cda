"""Runs of schema version 1, which earlier releases wrote and ``tests/data/schema-1`` keeps, are still runs."""

import json
import shutil
from pathlib import Path

from analysis.comparison.pairwise import compare_runs
from analysis.runlog.reading import Run
from analysis.runlog.schema import SCHEMA_VERSION
from analysis.runlog.writing import RunWriter

OLD = Path(__file__).parents[2] / "data" / "schema-1"


def test_runs_of_version_1_are_compared():
    compared = compare_runs(OLD / "dflash", OLD / "dynadflash")
    assert compared.a.manifest.schema_version == compared.b.manifest.schema_version == 1
    # accepted draft tokens and steps, counted by hand; every step adds one token
    assert compared.overall.mean_a == (42 + 24) / 24
    assert compared.overall.mean_b == (47 + 21) / 21


def test_a_run_of_version_1_that_gets_new_tables_becomes_one_of_this_version(tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(OLD / "dflash", folder)
    before = Run.open(folder)
    key = before.read("acceptance").slice(0, 1).to_pylist()[0]
    names = ("eval_id", "prompt_id", "turn", "sample", "temperature", "dataset", "position", "eligible", "accepted")
    row = {name: key[name] for name in names} | {"protocol": "replay", "entropy": 0.5, "margin": 2.0, "ranks": [0, 3]}
    writer = RunWriter.resume(folder)
    writer.append("anchors", [row], part="new")
    writer.commit()
    assert json.loads((folder / "run.json").read_text())["schema_version"] == SCHEMA_VERSION
    after = Run.open(folder)
    assert after.read("anchors").to_pylist() == [row]
    assert after.read("acceptance").equals(before.read("acceptance"))
