"""Two runs in, one result out."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
from typing import get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
import pytest

import analysis
from analysis.comparison.pairwise import compare_runs
from analysis.errors import DataError, UsageError
from analysis.report.answers import headline
from analysis.runlog.reading import Run
from analysis.stats.exact import bootstrap_mean
from analysis.stats.flips import sign_flip_p
from analysis.wording import TAU_POOLED, Verdict
from tests.analysis.runs import prompts_of, simulated, study, two_runs, write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def comparison(runs):
    return compare_runs(*runs)


def test_the_headline_and_the_data_sets(comparison):
    assert comparison.overall.n_pairs == sum(e.n_pairs for e in comparison.by_dataset.values()) == 270
    assert list(comparison.by_dataset) == ["gsm_symbolic", "gsm_symbolic (unseen)", "humaneval"]
    methods = {name: e.method for name, e in comparison.by_dataset.items()}
    assert methods == {"gsm_symbolic": "cluster t", "gsm_symbolic (unseen)": "cluster flip", "humaneval": "exact"}
    weights = [e.n_pairs for e in comparison.by_dataset.values()]
    pooled = np.average([e.estimate for e in comparison.by_dataset.values()], weights=weights)
    assert comparison.overall.estimate == pytest.approx(pooled)
    assert {e.family_size for e in comparison.by_dataset.values()} == {3}
    assert comparison.overall.family_size == 1


def test_in_a_notebook_it_reads_as_its_conclusion(comparison):
    assert repr(comparison) == headline(comparison) and len(repr(comparison)) < 300


def test_a_data_set_of_clusters_of_one_is_exact(comparison):
    frame = comparison.pairs.frame
    rows = frame[frame["dataset"] == "humaneval"]
    d = (rows["tokens_b"] - rows["tokens_a"]).to_numpy()
    estimate = comparison.by_dataset["humaneval"]
    assert (estimate.lo, estimate.hi) == bootstrap_mean(d).interval()
    assert estimate.p == sign_flip_p(d)


def test_to_frame_has_a_row_per_estimate(comparison):
    frame = comparison.to_frame()
    assert frame["subset"].fillna("all").tolist() == ["all", "all", *comparison.by_dataset]
    assert frame["estimand"].tolist()[:2] == ["accepted_length", "accepted_length_balanced"]
    assert frame["verdict"].iloc[0] == str(comparison.overall.verdict)


def test_swapping_the_runs_mirrors_everything(comparison, runs):
    swapped = compare_runs(*reversed(runs))
    for forward, backward in zip(comparison.estimates, swapped.estimates, strict=True):
        assert backward.estimate == pytest.approx(-forward.estimate)
        assert backward.p == pytest.approx(forward.p)
        assert (backward.mean_a, backward.mean_b) == (forward.mean_b, forward.mean_a)


def test_a_run_against_itself_is_identical(runs):
    comparison = compare_runs(runs[0], runs[0])
    assert {e.verdict for e in comparison.estimates} == {Verdict.IDENTICAL}
    assert comparison.a.label != comparison.b.label


def test_facts_come_from_manifest_and_prompts(comparison):
    facts = {d.name: d for d in comparison.datasets}
    assert facts["gsm_symbolic"].seen == "template seen"
    assert facts["humaneval"].seen == "unseen"
    assert facts["humaneval"].coverage_a == 0.97
    assert facts["humaneval"].degenerate_a == 0.0
    assert facts["gsm_symbolic"].role == "confirmatory"


def test_generate_has_two_estimands_and_is_the_default(tmp_path):
    comparison = compare_runs(*study(tmp_path, protocol="generate"))
    assert comparison.overall.estimand is TAU_POOLED
    assert [e.estimand.key for e in comparison.others] == ["tau_mean", "tau_pooled_balanced"]
    tokens, steps = comparison.pairs.counts("a")
    assert comparison.overall.mean_a == pytest.approx(tokens.sum() / steps.sum())
    assert comparison.others[0].mean_a == pytest.approx((tokens / steps).mean())
    assert comparison.others[0].mean_a != pytest.approx(comparison.overall.mean_a, abs=1e-6)
    with pytest.raises(DataError, match="'prefix'"):
        compare_runs(tmp_path / "study-dflash", tmp_path / "study-dynadflash", protocol="prefix")


def test_protocols_without_a_common_one(tmp_path):
    a = write_run(tmp_path / "a", prompts_of([1, 2]))
    b = write_run(tmp_path / "b", prompts_of([1, 2]), protocol="generate")
    with pytest.raises(DataError, match=r"\(prefix; generate\)"):
        compare_runs(a, b)


def test_a_data_set_that_lost_every_pair_keeps_its_row(tmp_path):
    a, b = simulated({"one": (30, 30), "two": (1, 1)})
    b[-1]["accepted"] = [None]
    comparison = compare_runs(write_run(tmp_path / "a", a), write_run(tmp_path / "b", b))
    assert comparison.by_dataset["two"].n_pairs == 0
    assert comparison.by_dataset["two"].p_adjusted is None
    assert comparison.by_dataset["one"].family_size == 1
    assert "pairs-lost" in {c.code for c in comparison.cautions}


def test_clusters_are_shared_over_data_sets(tmp_path):
    # an augmented prompt and its original, in two data sets, are one cluster of the whole
    rows = [*prompts_of([1, 2, 3, 4]), *prompts_of([1, 2, 3, 4], dataset="augmented")]
    for i, row in enumerate(rows):
        row["prompt_id"], row["cluster_id"] = f"{i}", f"original-{i % 4}"
    comparison = compare_runs(write_run(tmp_path / "a", rows), write_run(tmp_path / "b", rows))
    assert comparison.overall.n_clusters == 4


def test_gates_of_either_arm_unusable_leaves_the_section_out(tmp_path):
    a, b = two_runs(tmp_path, [1, 2, 3], [2, 2, 4])
    write_run(b, prompts_of([2, 2, 4]), fusion="gated", poison_gates=True)
    comparison = compare_runs(a, b)
    assert comparison.a.gates is comparison.b.gates is None
    assert [c.code for c in comparison.cautions if c.code == "gates-nan"] == ["gates-nan"]
    with pytest.raises(DataError, match=r"^two: gate_stats .*--strict"):
        compare_runs(a, b, strict=True)


def test_an_unfinished_run_taken_anyway_is_named(tmp_path):
    a, _ = two_runs(tmp_path, [1, 2, 3], [2, 2, 4])
    b = write_run(
        tmp_path / "running", prompts_of([2, 2, 4]), change=lambda m: setattr(m.training, "status", "running")
    )
    with pytest.raises(DataError, match="running"):
        compare_runs(a, b)
    assert "unfinished" in {c.code for c in compare_runs(a, b, allow_incomplete=True).cautions}


def test_open_runs_are_taken_as_they_are(runs):
    opened = [Run.open(run) for run in runs]
    assert compare_runs(*opened).overall == compare_runs(*runs).overall


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"protocol": "pre"}, "'pre'"),
        ({"margin": "0.1"}, "'0.1'"),
        ({"margin": float("nan")}, "nan"),
        ({"margin": float("inf")}, "inf"),
        ({"margin": 1e-7}, "1e-07"),
        ({"min_coverage": 2}, "2"),
        ({"min_coverage": "0.9"}, "'0.9'"),
    ],
)
def test_a_wrong_call_names_the_value(runs, wrong, named):
    with pytest.raises(UsageError, match=re.escape(named)):
        compare_runs(*runs, **wrong)


def test_a_log_file_is_no_run_and_how_to_make_one_is_said(runs, tmp_path):
    (tmp_path / "log.jsonl").write_text("{}")
    with pytest.raises(DataError, match=r"analysis\.importers .*log\.jsonl --out runs/NAME"):
        compare_runs(runs[0], tmp_path / "log.jsonl")


def test_one_name_alone_is_a_list_of_one(runs, comparison):
    one = compare_runs(*runs, datasets="humaneval", controls=str(runs[0]), earlier=runs[1])
    assert one.overall.estimate == comparison.by_dataset["humaneval"].estimate
    assert [control.name for control in one.controls] == [comparison.a.name]


def test_a_small_margin_is_what_it_says(runs):
    estimate = compare_runs(*runs, margin=np.float32(1e-5)).by_dataset["humaneval"]
    assert estimate.equivalence.margin == pytest.approx(1e-5, rel=1e-6)


def test_results_are_told_apart_and_go_into_sets(comparison, runs):
    assert comparison == comparison
    assert len({comparison, comparison.pairs, compare_runs(*runs), comparison}) == 3


def test_nothing_compares_frames_or_arrays_field_by_field():
    """``==`` of two frames is a frame, so that a dataclass that compares its fields would raise ValueError."""

    def holds_many(annotation):
        return (get_origin(annotation) or annotation) in (pd.DataFrame, np.ndarray) or any(
            map(holds_many, get_args(annotation))
        )

    found = []
    for module in pkgutil.walk_packages(analysis.__path__, "analysis."):
        if module.name.endswith("__main__"):
            continue
        for cls in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(cls) and dataclasses.is_dataclass(cls) and cls.__module__ == module.name:
                hints = get_type_hints(cls)
                if any(holds_many(hints[field.name]) for field in dataclasses.fields(cls)):
                    found.append(cls.__name__)
                    assert "__eq__" not in vars(cls), cls
    assert {"Comparison", "Pairs", "Gates", "Plot"} <= set(found)
