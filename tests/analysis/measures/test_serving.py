"""Serving experiments: ratios by block, acceptance beside the decoder's, latency, goodput, crossover, failed trials."""

import math

import numpy as np
import pytest

from analysis.commands.serving import bound, main
from analysis.errors import DataError, UsageError
from analysis.measures.serving import serving
from analysis.measures.throughput import throughput
from analysis.runlog.manifest import Manifest
from analysis.runlog.reading import Run
from analysis.runlog.writing import RunWriter


def write(folder, trials, requests=(), **manifest):
    writer = RunWriter(folder, Manifest(name=folder.name, created_by="test", **manifest))
    rows = []
    for number, trial in enumerate(trials):
        row = {"trial": number, "block": 0, "order": 0, "arm": "plain", "engine": "draftlab", "status": "ok"}
        rows.append(row | {"concurrency": 8, "requests": 2, "duration_s": 1.0} | trial)
    writer.append("throughput", rows)
    if requests:
        writer.append("requests", list(requests))
    writer.finish()
    return Run.open(folder)


def two_arms(speeds, level=8):
    """Trials from (plain, draft) tokens/s per block."""
    return [
        {"block": block, "order": order, "arm": arm, "tokens_per_s": speed, "concurrency": level}
        for block, pair in enumerate(speeds)
        for order, (arm, speed) in enumerate(zip(("plain", "draft"), pair, strict=True))
    ]


def test_ratio_is_the_geometric_mean_over_blocks_with_its_t_interval(tmp_path):
    found = serving(write(tmp_path / "run", two_arms([(50, 100), (40, 60), (80, 200)])))
    plain, draft = found.changes
    assert (plain.arm, plain.ratio, plain.tokens_per_s) == ("plain", None, pytest.approx(170 / 3))
    assert draft.ratios == pytest.approx((2.0, 1.5, 2.5))
    logs = np.log([2.0, 1.5, 2.5])
    half = 4.302652729911275 * logs.std(ddof=1) / math.sqrt(3)  # t of two degrees of freedom at 0.975
    assert draft.ratio == pytest.approx(7.5 ** (1 / 3))
    assert (draft.lo, draft.hi) == pytest.approx((math.exp(logs.mean() - half), math.exp(logs.mean() + half)))
    assert draft.verdict is None and draft.p is None
    assert any("3 blocks" in caution for caution in found.cautions)


def test_six_blocks_allow_a_verdict(tmp_path):
    found = serving(write(tmp_path / "run", two_arms([(50, 100 + i) for i in range(6)])))
    assert str(found.changes[1].verdict) == "B better" and found.changes[1].p < 0.05
    assert not found.cautions


def test_a_failed_trial_enters_nothing(tmp_path):
    trials = two_arms([(50, 100), (50, 150)])
    trials[3] |= {"status": "failed", "reason": "died", "tokens_per_s": None}
    trials.append({"block": 1, "order": 2, "arm": "gone", "status": "failed", "tokens_per_s": None})
    found = serving(write(tmp_path / "run", trials))
    assert [(c.arm, c.trials, len(c.ratios)) for c in found.changes] == [("plain", 2, 0), ("draft", 1, 1)]
    assert found.changes[1].ratio == pytest.approx(2)
    assert len(found.trials) == 5


def test_accepted_tokens_beside_those_of_our_decoder(tmp_path):
    counts = {"drafts": 10, "draft_tokens": 70, "accepted": 25, "accepted_at": [10, 8, 7]}
    trials = two_arms([(50, 100), (50, 100)])
    for trial in trials:
        if trial["arm"] == "draft":
            trial |= counts
    offline = {"draft": {"drafts": 10, "draft_tokens": 70, "accepted": 25, "steps": 10}}
    (a,) = serving(write(tmp_path / "same", trials, serving={"offline": offline})).acceptance
    assert (a.tau, a.offline_tau, a.exact, a.per_position) == (3.5, 3.5, True, (1.0, 0.8, 0.7))
    assert not a.disagrees
    offline = {"draft": {"drafts": 9, "draft_tokens": 63, "accepted": 25, "steps": 9}}
    found = serving(write(tmp_path / "other", trials, serving={"offline": offline}))
    assert found.acceptance[0].exact is False and found.acceptance[0].disagrees
    assert any("likely causes" in caution for caution in found.cautions)
    (a,) = serving(write(tmp_path / "alone", trials)).acceptance
    assert (a.offline_tau, a.exact, a.disagrees) == (None, None, False)


def test_latency_and_goodput(tmp_path):
    requests = [
        {"trial": trial, "request": i, "prompt_id": f"p{i}", "status": "ok", "ttft_s": 0.1 * (i + 1), "e2e_s": 1.0 + i,
         "output_tokens": 11}
        for trial in (0, 1) for i in range(4)
    ]  # fmt: skip
    trials = [{"tokens_per_s": 10.0, "duration_s": 2.0}, {"block": 1, "tokens_per_s": 10.0, "duration_s": 3.0}]
    trials.append({"block": 2, "status": "failed"})
    requests.append(requests[0] | {"trial": 2, "ttft_s": 99.0})
    found = serving(write(tmp_path / "run", trials, requests), bounds={"ttft_s": 0.25, "e2e_s": 1.5})
    (of,) = found.latencies
    assert of.requests == 8
    assert of.seconds["ttft_s"][0] == pytest.approx(0.25)
    assert of.seconds["tpot_s"][0] == pytest.approx(np.median([0.09 + 0.09 * i for i in range(4)]))
    assert (of.goodput, of.within) == (pytest.approx(2 / 5.0), pytest.approx(0.25))
    with pytest.raises(DataError):
        serving(Run.open(tmp_path / "run"), bounds={"itl": 1})


def sweep(tmp_path, ratios):
    trials = [t for level, ratio in ratios.items() for t in two_arms([(50, 50 * ratio)] * 2, level)]
    return serving(write(tmp_path / "run", trials)).crossovers[0]


def test_crossover_is_interpolated_in_log_concurrency(tmp_path):
    found = sweep(tmp_path, {1: 2.0, 2: 2.0, 4: 0.5, 8: 0.25})
    assert found.concurrency == pytest.approx(2 * math.sqrt(2))


@pytest.mark.parametrize(
    ("ratios", "pays"),
    [
        ({1: 2.0, 2: 1.5}, "at every"),
        ({1: 0.5, 2: 0.6}, "at no"),
        ({1: 0.5, 2: 1.6}, "not in one range"),
        ({1: 1.5, 2: 0.6, 4: 1.2}, "not in one range"),
    ],
)
def test_without_a_crossover(tmp_path, ratios, pays):
    found = sweep(tmp_path, ratios)
    assert found.concurrency is None and pays in found.pays


def test_a_run_of_several_arms_is_not_one_side_of_a_comparison(tmp_path):
    trials = two_arms([(50, 100)])
    trials.append({"arm": "other", "tokens_per_s": 10.0})
    several, one = write(tmp_path / "several", trials), write(tmp_path / "one", two_arms([(50, 100)]))
    assert throughput(several, one) is None and throughput(one, one) is not None


def test_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "runs" / "exp", two_arms([(50, 100), (40, 60)]) + two_arms([(50, 40)], 16), label="an experiment")
    assert main(["exp", "--bound", "ttft=1"]) == 0
    text = (tmp_path / "reports" / "exp" / "report.md").read_text()
    assert "| draft | 8 |" in text and "+73.2%" in text
    assert (tmp_path / "reports" / "exp" / "figures" / "serving-concurrency.png").exists()
    again = {p: p.read_bytes() for p in (tmp_path / "reports").rglob("*") if p.is_file()}
    assert main(["exp", "--bound", "ttft=1"]) == 0
    assert again == {p: p.read_bytes() for p in (tmp_path / "reports").rglob("*") if p.is_file()}
    with pytest.raises(DataError):
        main(["exp", "--baseline", "nobody"])
    for wrong in ("itl=1", "ttft", "ttft=x", "ttft=-1"):
        with pytest.raises(UsageError):
            bound(wrong)
