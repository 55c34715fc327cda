"""Published claims against reports: each status, GPU hours by hand, the page."""

import json

import pytest
import yaml

from analysis.commands import report
from analysis.errors import DataError, run_command
from analysis.measures.claims import Claim, Claims, Status, Training, Where, judge_claim
from tests.analysis.runs import simulated, write_run

BASE = {"paper": "P", "claim": "c", "published": "+1", "command": "make it"}


@pytest.mark.parametrize(
    ("expects", "verdict", "status"),
    [
        ("B better", "B better", Status.REPRODUCED),
        ("B better", "A better", Status.NOT_REPRODUCED),
        ("B better", "equivalent", Status.NOT_REPRODUCED),
        ("B better", "inconclusive", Status.UNDECIDED),
        ("equivalent", "equivalent", Status.REPRODUCED),
        ("equivalent", "identical", Status.REPRODUCED),
        ("equivalent", "B better", Status.NOT_REPRODUCED),
        ("equivalent", "inconclusive", Status.UNDECIDED),  # no difference found is no equivalence
    ],
)
def test_a_claim_is_judged_by_the_verdict(expects, verdict, status):
    results = {"r": {"overall": {"verdict": verdict}, "by_dataset": {"d": {"verdict": "inconclusive"}}}}
    assert judge_claim(Claim(**BASE, expects=expects, here=Where(report="r")), results).status == status
    of_dataset = Claim(**BASE, expects=expects, here=Where(report="r", dataset="d"))
    assert judge_claim(of_dataset, results).status == Status.UNDECIDED


def test_what_no_report_answers_is_not_tested_and_a_wrong_place_is_named():
    assert judge_claim(Claim(**BASE), {}).status == Status.NOT_TESTED
    with pytest.raises(DataError, match=r"no such estimate.*'dataset': 'x'"):
        judge_claim(Claim(**BASE, expects="B better", here=Where(report="r", dataset="x")), {"r": {"by_dataset": {}}})


def test_gpu_hours_by_hand():
    # 1,000 examples: (2 x 1e9 x 100 + 6 x 1e8 x 10 x 16) = 2.96e11 operations each
    training = Training(
        runs=2, examples=1000, tokens=100, anchors=10, block_size=16, target_parameters=1e9, drafter_parameters=1e8
    )
    assert training.gpu_hours == pytest.approx(2 * 1000 * 2.96e11 / (989e12 * 0.35) / 3600)


def test_the_shipped_claims_are_valid():
    path = report.default_plan().parent / "claims.yaml"
    claims = Claims.model_validate(yaml.safe_load(path.read_text()))
    folders = {entry.folder for entry in report.read_plan(path.parent / "plan.yaml").entries}
    assert {claim.here.report for claim in claims.claims if claim.here} <= folders


def test_the_page_follows_the_reports(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    a, b = simulated({"sums": (80, 80)}, effect=0.9, seed=1)
    for name, prompts in (("a", a), ("b", b)):
        write_run(tmp_path / name, prompts, gates=False, history=False)
    claims = [{**BASE, "expects": "B better", "here": {"report": "a-vs-b"}}, {**BASE, "claim": "unseen|claim"}]
    (tmp_path / "claims.yaml").write_text(yaml.safe_dump({"claims": claims}))
    plan = {"comparisons": [{"a": str(tmp_path / "a"), "b": str(tmp_path / "b")}], "claims": "claims.yaml"}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    assert report.main(["plan.yaml"]) == 0
    text = (tmp_path / "replication.md").read_text()
    assert "Of 2 published claims: 1 reproduced, 0 not reproduced, 0 undecided, 1 not tested at this scale." in text
    estimate = json.loads((tmp_path / "a-vs-b/result.json").read_text())["overall"]["estimate"]
    assert f"[The report](a-vs-b/report.md) has {estimate:+.3f} (" in text and "unseen\\|claim" in text
    claims[0]["here"]["report"] = "b-vs-a"  # which the plan does not write
    (tmp_path / "claims.yaml").write_text(yaml.safe_dump({"claims": claims}))
    capsys.readouterr()
    assert report.main(["plan.yaml"]) == 0
    assert "replication: not updated, since b-vs-a was not written" in capsys.readouterr().out
    assert (tmp_path / "replication.md").read_text() == text
    plan["claims"] = "claims.yml"
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    assert run_command(report.main, ["plan.yaml"]) == 65
    assert "claims.yml" in capsys.readouterr().err
