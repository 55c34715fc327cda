"""What was declared before looking, published drafters, and rules for continuous integration."""

from __future__ import annotations

import re

import pytest

from analysis.comparison.pairwise import compare_runs
from analysis.comparison.rules import exit_code, judge, parse_rule
from analysis.errors import DataError, Exit, UsageError
from analysis.measures.published import published_for
from analysis.report.sections.overview import overall_table
from tests.analysis.runs import prompt, prompts_of, two_runs, write_run

BARE = {"gates": False, "history": False}


def codes(comparison):
    return [c.code for c in comparison.cautions]


def mixed(*roles):
    """Eight prompts of data set ``x`` and eight of ``y``, with these roles."""
    return [
        prompt(f"{dataset}{i}", 1 + i % 3, dataset=dataset, study_role=role)
        for dataset, role in zip("xy", roles, strict=True)
        for i in range(8)
    ]


def compared(tmp_path, rows, **more):
    a, b = write_run(tmp_path / "a", rows, **BARE), write_run(tmp_path / "b", rows, **BARE)
    return compare_runs(a, b, **more)


# --- declarations ----------------------------------------------------------------------------------------------


def test_what_was_declared_is_kept(tmp_path):
    found = compared(tmp_path, mixed(None, None), hypothesis="gates help", metric="accepted_length", margin=0.5)
    d = found.declaration
    assert (d.hypothesis, d.metric.key, d.metric_declared, d.margin) == ("gates help", "accepted_length", True, 0.5)
    assert (d.roles, d.picked, d.confirmatory) == ({"not recorded": 16}, None, False)


def test_a_subset_picked_by_the_call_is_post_hoc_unless_confirmatory(tmp_path):
    rows = mixed("confirmatory", "exploratory")
    picked = compared(tmp_path, rows, datasets=["y"])
    assert picked.overall.n_pairs == 8
    assert list(picked.by_dataset) == ["y"]
    assert picked.declaration.post_hoc
    assert {"post-hoc", "exploratory"} <= set(codes(picked))
    confirming = compared(tmp_path, rows, datasets=["x"])
    assert confirming.declaration.confirmatory
    assert not {"post-hoc", "exploratory", "mixed-roles"} & set(codes(confirming))
    assert "mixed-roles" in codes(compared(tmp_path, rows))


def test_an_unknown_data_set_is_named_with_those_there(tmp_path):
    with pytest.raises(DataError, match=r"data set.* z .*'prefix'.* x, y"):
        compared(tmp_path, mixed(None, None), datasets=["z"])


def test_confirmatory_prompts_that_were_explored_are_counted(tmp_path):
    confirming = prompts_of([1, 2, 3, 4, 5, 6], clusters=[0, 0, 1, 1, 2, 2], study_role="confirmatory")
    clean = compared(tmp_path, confirming)
    assert clean.declaration.overlap == (0, 0)
    # an earlier run explored two of the prompts, and another question of a third cluster
    explored = [dict(p, study_role="exploratory") for p in confirming[:2]]
    explored.append(prompt("new", 1, cluster_id="c2", study_role="exploratory"))
    earlier = write_run(tmp_path / "earlier", explored, **BARE)
    found = compared(tmp_path, confirming, earlier=[earlier])
    assert found.declaration.overlap == (2, 2)
    assert not found.declaration.confirmatory
    assert "overlap" in codes(found)


def test_metrics_and_margins_that_make_no_sense(tmp_path):
    rows = mixed(None, None)
    with pytest.raises(UsageError, match=r"metric 'speed'.* tau_pooled"):
        compared(tmp_path, rows, metric="speed")
    with pytest.raises(UsageError, match=r"tau_mean .*generate.*prefix"):
        compared(tmp_path, rows, metric="tau_mean", protocol="prefix")
    with pytest.raises(UsageError, match=r"margin.* 0.0"):
        compared(tmp_path, rows, margin=0.0)


def test_the_mean_over_prompts_may_be_the_headline(tmp_path):
    rows = prompts_of([[1, 2], [3], [0, 1, 2]])
    a, b = (write_run(tmp_path / name, rows, protocol="generate", **BARE) for name in "ab")
    found = compare_runs(a, b, metric="tau_mean")
    assert found.overall.estimand.key == "tau_mean"
    assert [e.estimand.key for e in found.others] == ["tau_pooled"]


# --- both protocols --------------------------------------------------------------------------------------------


def test_the_other_protocol_stands_beside_the_headline(tmp_path):
    from analysis.runlog.reading import Run
    from analysis.runlog.writing import RunWriter

    paths = []
    for name, extra in (("a", 0), ("b", 1)):
        path = write_run(tmp_path / name, prompts_of([[1, 2], [3], [0, 1, 2]]), protocol="generate", **BARE)
        other = write_run(tmp_path / f"{name}-prefix", prompts_of([x + extra for x in (1, 2, 3)]), **BARE)
        run, writer = Run.open(other), RunWriter.resume(path)
        writer.manifest.evaluations |= run.manifest.evaluations
        (eval_id,) = run.manifest.evaluations
        for table in ("acceptance", "prompts"):
            writer.append(table, run.read(table), part=eval_id)
        writer.commit()
        paths.append(path)
    found = compare_runs(*paths)
    assert found.overall.estimand.key == "tau_pooled"
    prefix = next(e for e in found.others if e.estimand.key == "accepted_length")
    assert prefix.estimate == 1.0
    # the margin is in tokens of tau, and says nothing of accepted lengths: the row owns up to having none
    within = compare_runs(*paths, margin=9)
    prefix = next(e for e in within.others if e.estimand.key == "accepted_length")
    assert (prefix.equivalence, prefix.cautions[-1].code) == (None, "no-margin")
    row = next(line for line in overall_table(within).splitlines() if "accepted length" in line)
    assert row.endswith(f"{prefix.verdict}, no margin stated |")


# --- published drafters ----------------------------------------------------------------------------------------


def named(target):
    return {"change": lambda m: setattr(m.target, "id", target)}


def test_weak_arms_are_held_against_the_published_drafter(tmp_path):
    weak = prompts_of([[1, 2], [3, 2], [0, 1, 2]], dataset="gsm8k")
    a, b = (write_run(tmp_path / n, weak, protocol="generate", **BARE, **named("Qwen/Qwen3-8B")) for n in "ab")
    found = compare_runs(a, b)
    assert found.published["dataset"].tolist() == ["gsm8k", "average", "average"]
    assert found.published["tau"].tolist() == [6.54, 6.49, 7.33]
    (warning,) = [c for c in found.cautions if c.code == "below-published"]
    assert {"2.57", "6.54"} <= set(re.findall(r"\d\.\d\d", warning.text))
    strong = prompts_of([[7, 7], [5, 6], [4, 5, 6]], dataset="gsm8k")
    a, b = (write_run(tmp_path / n, strong, protocol="generate", **BARE, **named("Qwen/Qwen3-8B")) for n in "ab")
    assert "below-published" not in codes(compare_runs(a, b))


def test_other_targets_and_temperatures_have_no_published_rows(tmp_path):
    from analysis.runlog.manifest import Target

    each = compared(tmp_path, prompts_of([1, 2], dataset="MATH-500")).by_dataset
    assert published_for(None, 0.0, each).empty
    assert published_for(Target(id="toy-135m"), 0.0, each).empty
    assert published_for(Target(id="qwen3_4b"), 0.5, each).empty
    assert published_for(Target(id="x/qwen3_4b"), 1.0, each)["tau"].tolist()[0] == 6.67


# --- rules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("delta<-0.05", ("delta", None, True, -0.05)),
        (" delta > 1 ", ("delta", None, False, 1.0)),
        ("delta[a|b [c]]<0", ("delta", "a|b [c]", True, 0.0)),
        ("speedup<1.5", ("speedup", None, True, 1.5)),
    ],
)
def test_rules_are_read(text, expected):
    rule = parse_rule(text)
    assert (rule.what, rule.dataset, rule.below, rule.bound) == expected


@pytest.mark.parametrize("text", ["delta", "delta<", "<1", "delta<=1", "delta<one", "delta=1", "delta<1.2.3", ""])
def test_an_invalid_rule_is_refused(text):
    with pytest.raises(UsageError, match=r"--fail-if .*WHAT<NUMBER"):
        parse_rule(text)


def judged(comparison, *texts):
    return exit_code([judge(parse_rule(text), comparison) for text in texts])


def test_the_whole_interval_decides(tmp_path):
    comparison = compare_runs(*two_runs(tmp_path, [3] * 40, [2] * 30 + [3] * 10, **BARE))
    lo, hi = comparison.overall.lo, comparison.overall.hi
    assert lo < -0.75 < hi < -0.05
    assert judged(comparison, "delta<-0.05") is Exit.RULE_FAILED
    assert judged(comparison, "delta<-0.75") is Exit.INCONCLUSIVE  # the point says -0.75, the interval cannot
    assert judged(comparison, "delta<-2") is Exit.OK
    assert judged(comparison, "delta>-2") is Exit.RULE_FAILED
    assert judged(comparison, "delta>0") is Exit.OK
    assert judged(comparison, "delta[sums]<-0.05") is Exit.RULE_FAILED
    assert judged(comparison, "delta<-2", "delta<-0.75") is Exit.INCONCLUSIVE
    assert judged(comparison, "delta<-0.75", "delta<-0.05") is Exit.RULE_FAILED
    assert judged(comparison) is Exit.OK


def test_no_interval_is_inconclusive_and_an_unknown_metric_is_not_a_pass(tmp_path):
    comparison = compare_runs(*two_runs(tmp_path, [3], [3], **BARE))
    assert judged(comparison, "delta<-0.05") is Exit.INCONCLUSIVE
    with pytest.raises(UsageError, match=r"'speedup<1'.* accepted_length, accepted_length\[sums\]"):
        judged(comparison, "speedup<1")
    with pytest.raises(UsageError, match=r"\'delta\[other\]<1\'"):
        judged(comparison, "delta[other]<1")
