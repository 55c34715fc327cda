"""Gate means and acceptance by draft position, against sums done by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from analysis.gates import Gates, summarise
from analysis.history import load_history
from analysis.load import load
from analysis.pair import pair
from analysis.positions import positions
from analysis.runlog import Run, RunWriter
from analysis.schema import GATE_QUANTITIES
from analysis.wording import Caution
from tests.analysis.runs import LAYERS, prompt, prompts_of, write_run


def loaded(folder, prompts, **more):
    return load(Run.open(write_run(folder, prompts, **more)), more.get("protocol", "prefix"))


# --- gates -----------------------------------------------------------------------------------------------------


def test_means_are_over_tokens_with_intervals_over_clusters(tmp_path):
    folder = write_run(tmp_path / "a", prompts_of([1, 2, 3], clusters=[0, 0, 1]), fusion="gated", gates=False)
    writer = RunWriter.resume(folder)
    keys = (
        Run.open(folder)
        .read("prompts")
        .select(["eval_id", "protocol", "prompt_id", "turn", "sample", "temperature", "dataset"])
    )
    zeros = {f"{q}_{kind}": 0.0 for q in (*GATE_QUANTITIES, "log_gate", "log_ratio") for kind in ("sum", "sumsq")}
    rows = [
        {**key, "role": "answer", "layer": 2, "n": n, "n_log": n, **zeros, "gate_sum": total}
        for key, n, total in zip(keys.to_pylist(), (10, 20, 10), (8.0, 22.0, 14.0), strict=True)
    ]
    writer.append("gate_stats", rows)
    writer.commit()
    table = summarise(load(Run.open(folder), "prefix")).table
    gate = table[table["quantity"] == "gate"].iloc[0]
    assert gate["mean"] == pytest.approx(44 / 40)
    assert (gate["tokens"], gate["prompts"], gate["clusters"]) == (40, 3, 2)
    # residual sums over clusters, T - R n: -3 for the first, 14 - 11 = 3 for the second; se^2 = 2 * 18 / 40^2
    assert gate["hi"] - gate["mean"] == pytest.approx(12.706205 * math.sqrt(2 * 18) / 40, rel=1e-6)


def test_every_layer_role_and_quantity_has_a_row(tmp_path):
    gates = summarise(loaded(tmp_path / "a", prompts_of([1, 2, 3]), fusion="gated"))
    assert isinstance(gates, Gates)
    assert len(gates.table) == 2 * len(LAYERS) * len(GATE_QUANTITIES)
    shares = gates.table[gates.table["quantity"] == "contribution_share"]
    assert shares.groupby("role")["mean"].sum().tolist() == pytest.approx([1.0, 1.0])
    assert (gates.table["lo"] <= gates.table["mean"]).all()
    assert len(gates.sample) == 3 * 2 * len(LAYERS)


def test_no_gates_is_not_an_error_and_nan_is_a_caution(tmp_path):
    assert summarise(loaded(tmp_path / "a", prompts_of([1, 2]), gates=False)) is None
    unusable = summarise(loaded(tmp_path / "b", prompts_of([1, 2]), poison_gates=True))
    assert isinstance(unusable, Caution)
    assert unusable.code == "gates-nan"


def test_nan_in_the_sample_of_tokens_is_a_caution_too(tmp_path):
    folder = write_run(tmp_path / "a", prompts_of([1, 2]))
    run = Run.open(folder)
    table = run.read("gates").to_pandas()
    table.loc[3, "gate"] = np.nan
    writer = RunWriter.resume(folder)
    writer.append("gates", table.to_dict("list"), part=next(iter(run.manifest.evaluations)))
    writer.commit()
    assert isinstance(summarise(load(Run.open(folder), "prefix")), Caution)


# --- positions -------------------------------------------------------------------------------------------------


def curve(tmp_path, prompts, protocol="prefix"):
    evaluated = loaded(tmp_path / "a", prompts, protocol=protocol, gates=False)
    return positions(evaluated, evaluated, pair(evaluated, evaluated))[0].curve


def test_survival_counts_slots_at_risk_only(tmp_path):
    prompts = [prompt("x", 3, eligible=7), prompt("y", 0, eligible=1), prompt("z", 2, eligible=2)]
    table = curve(tmp_path, prompts)
    assert table["at_risk"].tolist() == [3, 2, 1, 1, 1, 1, 1]
    assert table["survival"].tolist() == pytest.approx([2 / 3, 1.0, 1.0, 0, 0, 0, 0])


def test_survival_adds_up_to_the_accepted_length(tmp_path):
    accepted = [0, 1, 7, 3, 3, 2, 5, 0]
    assert curve(tmp_path, prompts_of(accepted))["survival"].sum() == pytest.approx(np.mean(accepted))


def test_survival_pools_steps(tmp_path):
    table = curve(tmp_path, prompts_of([[1, 0, 0], [2]]), "generate")
    assert table.loc[0, "survival"] == pytest.approx(2 / 4)
    assert table.loc[0, "at_risk"] == 4


def test_survival_intervals_stay_inside_and_have_a_width(tmp_path):
    table = curve(tmp_path, prompts_of([0] * 30))
    assert (table["survival"] == 0).all()
    assert (table["lo"] == 0).all()
    assert table["hi"].between(0.05, 0.2).all()  # Wilson for 0 of 30: 0.11 with z, a little more with t
    assert (curve(tmp_path / "one", prompts_of([2]))[["lo", "hi"]] == [0.0, 1.0]).all(axis=None)


def test_lost_prompts_are_no_part_of_the_curve(tmp_path):
    a = loaded(tmp_path / "a", prompts_of([7] * 30 + [0]), gates=False)
    b = loaded(tmp_path / "b", prompts_of([7] * 30 + [None]), gates=False)
    assert positions(a, b, pair(a, b))[0].curve["survival"].tolist() == [1.0] * 7


# --- history ---------------------------------------------------------------------------------------------------


def test_history_is_in_order_and_knows_its_last_values(tmp_path):
    folder = write_run(tmp_path / "a", prompts_of([1]), history=False)
    assert load_history(Run.open(folder)) is None
    writer = RunWriter.resume(folder)
    writer.append("history", [{"step": 1, "loss": 2.0}, {"step": 0, "loss": 3.0, "val_accepted_length": 1.5}])
    writer.commit()
    history = load_history(Run.open(folder))
    assert history.curves["step"].tolist() == [0, 1]
    assert (history.last("loss"), history.last("val_accepted_length"), history.last("ce")) == (2.0, 1.5, None)
    assert pd.isna(history.curves.loc[1, "val_accepted_length"])
