"""Gate means against sums done by hand; training curves and their health."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from analysis.cautions import Caution
from analysis.measures.gain import gain_by_spread
from analysis.measures.gates import NOT_POSITIVE, Gates, summarise
from analysis.measures.history import health, load_history
from analysis.runlog.load import load
from analysis.runlog.pairing import pair
from analysis.runlog.reading import Run, conform, rows_to_table
from analysis.runlog.schema import GATE_MOMENTS, GATE_QUANTITIES, KEY
from analysis.runlog.writing import RunWriter
from analysis.stats.cluster import partition
from analysis.stats.regression import slope
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
    # residual sums over clusters, T - R n: -3 for the first, 14 - 11 = 3 for the second, 30 and 10 of 40 tokens
    assert gate["hi"] - gate["mean"] == pytest.approx(12.706205 * math.sqrt(9 * 4 + 9 * 4 / 3) / 40, rel=1e-6)


def test_every_layer_role_and_quantity_has_a_row(tmp_path):
    gates = summarise(loaded(tmp_path / "a", prompts_of([1, 2, 3]), fusion="gated"))
    assert isinstance(gates, Gates)
    assert len(gates.table) == 2 * len(LAYERS) * len(GATE_MOMENTS)
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


def token_moments(folder, values, clusters=None):
    """A run whose gate log-ratio at layer 2, answer tokens, has exactly these values per prompt."""
    write_run(folder, prompts_of([1] * len(values), clusters=clusters), fusion="gated", gates=False, history=False)
    run, writer = Run.open(folder), RunWriter.resume(folder)
    names = ["eval_id", "protocol", "prompt_id", "turn", "sample", "temperature", "dataset"]
    keys = run.read("prompts").select(names).to_pylist()
    zeros = {f"{q}_{kind}": 0.0 for q in GATE_MOMENTS for kind in ("sum", "sumsq")}
    rows = []
    for key, x in zip(keys, map(np.asarray, values), strict=True):
        moments = {"log_ratio_sum": float(x.sum()), "log_ratio_sumsq": float((x**2).sum())}
        for layer in (2, 28):
            found = moments if layer == 2 else {}
            rows.append({**key, "role": "answer", "layer": layer, "n": x.size, "n_log": x.size, **zeros, **found})
    writer.append("gate_stats", rows)
    writer.commit()
    return summarise(load(Run.open(folder), "prefix"))


def test_spread_over_tokens_and_its_parts(tmp_path):
    rng = np.random.default_rng(0)
    levels = rng.normal(0, 2, 400)
    values = [level + rng.normal(0, 1, 10) for level in levels]
    gates = token_moments(tmp_path / "a", values)
    row = gates.table[(gates.table["quantity"] == "log_ratio") & (gates.table["layer"] == 2)].iloc[0]
    tokens = np.concatenate(values)
    assert row["sd"] == pytest.approx(tokens.std())
    assert row["sd_within"] == pytest.approx(np.sqrt(np.mean([v.var(ddof=1) for v in values])))
    assert row["sd_between"] == pytest.approx(2, rel=0.1)
    # the interval of a variance is that of the mean of squared deviations, prompt by prompt
    per_prompt = np.array([((v - tokens.mean()) ** 2).mean() for v in values])
    half = 1.966 * per_prompt.std(ddof=1) / 20
    assert (row["sd_lo"], row["sd_hi"]) == pytest.approx((tokens.var() + np.array([-half, half])) ** 0.5, rel=1e-3)


def signed_gates(folder, **columns):
    """Ten answer tokens a prompt at layer 2: four gates of e, two of 1/e, four not positive."""
    write_run(folder, prompts_of([1, 2, 3]), fusion="gated", gates=False)
    writer = RunWriter.resume(folder)
    zeros = {f"{q}_{kind}": 0.0 for q in (*GATE_QUANTITIES, "log_gate", "log_ratio") for kind in ("sum", "sumsq")}
    found = {"n": 10, "n_log": 3, "log_gate_sum": 2.0, "log_gate_sumsq": 6.0} | columns
    keys = Run.open(folder).read("prompts").select([*KEY, "temperature", "dataset"]).to_pylist()
    table = rows_to_table("gate_stats", [{**key, "role": "answer", "layer": 2, **zeros, **found} for key in keys])
    if "n_log_gate" not in columns:
        table = table.drop_columns(["n_log_gate"])
    writer.append("gate_stats", conform(table, "gate_stats", "test"))
    writer.commit()
    return summarise(load(Run.open(folder), "prefix")).table.set_index("quantity")


def test_logs_are_over_positive_gates_and_the_share_of_the_others_is_told(tmp_path):
    table = signed_gates(tmp_path / "a", n_log_gate=6)
    assert table.loc["log_gate", ["mean", "tokens"]].tolist() == [pytest.approx(2 / 6), 18]
    assert table.loc["log_ratio", "tokens"] == 9
    assert table.loc[NOT_POSITIVE, ["mean", "tokens"]].tolist() == [pytest.approx(0.4), 30]


def test_a_run_from_before_the_count_of_positive_gates_is_read(tmp_path):
    table = signed_gates(tmp_path / "a", n_log=10)
    assert table.loc["log_gate", ["mean", "tokens"]].tolist() == [pytest.approx(0.2), 30]
    assert NOT_POSITIVE not in table.index


def test_a_gate_that_does_not_move_has_no_spread(tmp_path):
    still = summarise(loaded(tmp_path / "a", prompts_of([1, 2, 3]), fusion="concat"))
    assert not still.moving
    assert still.spread.empty
    assert (still.table.loc[still.table["quantity"] == "gate", "sd"] == 0).all()
    assert summarise(loaded(tmp_path / "b", prompts_of([1, 2, 3]), fusion="gated")).moving


def test_spread_of_a_prompt_is_within_it(tmp_path):
    gates = token_moments(tmp_path / "a", [[0.0, 2.0, 4.0], [9.0, 9.0, 9.0], [1.0, 1.0, 4.0]])
    assert gates.spread["prompt_id"].tolist() == ["p000", "p001", "p002"]
    assert gates.spread["spread"].tolist() == pytest.approx([2.0, 0.0, 3**0.5])


@pytest.mark.parametrize("side", ["A", "B"])
def test_gain_by_spread_is_a_clustered_regression(tmp_path, side):
    rng = np.random.default_rng(1)
    clusters = np.arange(60) % 20
    scale = rng.gamma(3, 1, 60)
    gates = token_moments(tmp_path / "g", [s * rng.normal(0, 1, 12) for s in scale], clusters)
    a, b = (rng.integers(0, 8, 60).tolist() for _ in "ab")
    pairs = pair(
        *(
            loaded(tmp_path / n, prompts_of(x, clusters), gates=False, history=False)
            for n, x in zip("ab", (a, b), strict=True)
        )
    )
    found = gain_by_spread(pairs, *((gates, None) if side == "A" else (None, gates)))
    x = gates.spread["spread"].to_numpy()
    gain = (np.array(b) - a) * (1 if side == "B" else -1)
    expected = slope(x / x.std(ddof=1), gain, partition(np.zeros(60, int)), partition(clusters))
    assert found.side == side
    assert (found.slope, found.lo, found.hi, found.p) == (expected.slope, expected.lo, expected.hi, expected.p)
    assert found.n_effective == expected.df + 1 <= 19
    fit = sm.OLS(gain, sm.add_constant(x / x.std(ddof=1))).fit(cov_type="cluster", cov_kwds={"groups": clusters})
    assert found.slope == pytest.approx(fit.params[1])
    assert expected.se == pytest.approx(fit.bse[1], rel=0.1)
    assert found.correlation == pytest.approx(np.corrcoef(x, gain)[0, 1])


def test_gain_by_spread_is_taken_within_data_sets(tmp_path):
    # in the second data set gates move more and gains are smaller, in neither is there a relation
    rng = np.random.default_rng(2)
    second = np.arange(60) % 2 == 1
    scale, names = np.where(second, 6.0, 1.0) * rng.uniform(0.9, 1.1, 60), np.where(second, "two", "one")
    a, b = rng.integers(2, 5, 60), np.where(second, rng.integers(0, 3, 60), rng.integers(4, 7, 60))
    gates = token_moments(tmp_path / "g", [s * rng.normal(0, 1, 12) for s in scale])
    rows = [[{**p, "dataset": n} for p, n in zip(prompts_of(v.tolist()), names, strict=True)] for v in (a, b)]
    pairs = pair(*(loaded(tmp_path / n, r, gates=False, history=False) for n, r in zip("ab", rows, strict=True)))
    found = gain_by_spread(pairs, None, gates)
    x = gates.spread["spread"].to_numpy()
    z = (x - x.mean()) / x.std(ddof=1)
    design = np.column_stack([z, second, ~second]).astype(float)
    fit = sm.OLS(b - a, design).fit(cov_type="HC2", use_t=True)
    assert (found.slope, found.p) == pytest.approx((fit.params[0], fit.pvalues[0]), rel=0.05)
    assert found.p > 0.05 > np.corrcoef(z, b - a)[0, 1] + 0.5  # between them there is one


def test_gain_by_spread_wants_a_gate_and_spread(tmp_path):
    evaluated = loaded(tmp_path / "a", prompts_of([1, 2, 3, 4]), gates=False)
    pairs = pair(evaluated, evaluated)
    assert gain_by_spread(pairs, None, None) is None
    constant = token_moments(tmp_path / "b", [[0.0, 1.0]] * 4)
    assert gain_by_spread(pairs, None, constant) is None


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


def test_a_spike_is_seen_and_marked(tmp_path):
    flat = [{**row, "ce": 2.0, "loss": 2.0 + 0.1 * (i % 2)} for i, row in enumerate(FALLING)]
    assert codes(tmp_path / "flat", flat) == []
    assert codes(tmp_path, [*flat[:30], {**flat[30], "loss": 9.0}, *flat[31:]]) == ["history-spikes"]
    assert load_history(Run.open(tmp_path / "a")).spikes == [30]


def test_an_accepted_length_that_still_rises_is_seen(tmp_path):
    growing = [{**row, "val_accepted_length": 1 + i / 40 if i % 5 == 4 else None} for i, row in enumerate(FALLING)]
    assert codes(tmp_path, growing) == ["history-rising"]
