"""Gate means against sums done by hand; training curves and their health."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from analysis.gates import Gates, summarise
from analysis.history import health, load_history
from analysis.load import load
from analysis.runlog import Run, RunWriter
from analysis.schema import GATE_QUANTITIES
from analysis.wording import Caution
from tests.analysis.runs import LAYERS, prompts_of, write_run


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


def codes(tmp_path, rows, planned=None):
    """Warnings about a history of these rows."""
    change = {"change": lambda m: setattr(m.training, "steps", planned or len(rows))}
    folder = write_run(tmp_path / "a", prompts_of([1]), history=False, **change)
    writer = RunWriter.resume(folder)
    writer.append("history", [{"step": i, **row} for i, row in enumerate(rows)])
    writer.commit()
    run = Run.open(folder)
    return [c.code for c in health(run, load_history(run))]


FALLING = [{"loss": 5.0 / (1 + i), "ce": 5.0 / (1 + i)} for i in range(40)]


def test_a_healthy_training_has_no_warning(tmp_path):
    plateau = [{**row, "val_accepted_length": min(1 + i, 20) / 5} for i, row in enumerate(FALLING)]
    assert codes(tmp_path, plateau) == []
    assert health(Run.open(tmp_path / "a"), None) == ()


def test_an_unfinished_training_is_seen(tmp_path):
    assert codes(tmp_path, FALLING, planned=41) == ["history-short"]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_seen(tmp_path, bad):
    assert codes(tmp_path, [*FALLING[:30], {"loss": bad}, *FALLING[31:]]) == ["history-nan"]


def test_divergence_is_seen_in_the_unweighted_loss(tmp_path):
    rising = [{**row, "ce": row["ce"] if i < 30 else 3.0} for i, row in enumerate(FALLING)]
    assert codes(tmp_path, rising) == ["history-diverged"]
    # a schedule of the weights may raise the weighted loss: that is no divergence
    assert codes(tmp_path, [{**row, "loss": 1.0 + i} for i, row in enumerate(FALLING)]) == []


def test_an_accepted_length_that_still_rises_is_seen(tmp_path):
    growing = [{**row, "val_accepted_length": 1 + i / 40 if i % 5 == 4 else None} for i, row in enumerate(FALLING)]
    assert codes(tmp_path, growing) == ["history-rising"]
