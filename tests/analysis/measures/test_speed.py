"""Speed-ups, where time goes, serving trials, and whether the output was the target's own."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from scipy import stats

from analysis.comparison.pairwise import compare_runs
from analysis.comparison.rules import judge, parse_rule
from analysis.errors import Exit
from analysis.measures.lossless import cautions_of, outputs
from analysis.measures.sessions import Design
from analysis.measures.speed import speed
from analysis.report.sections.cautions import not_covered
from analysis.report.sections.speed import answers_by_dataset, answers_told, throughput_tables, unstable_baseline
from analysis.runlog.load import load
from analysis.runlog.pairing import pair
from analysis.runlog.reading import Run
from analysis.wording import SPEEDUP_MEAN, SPEEDUP_POOLED, Verdict
from tests.analysis.runs import prompt, prompts_of, write_run


def timing(prompt_id, mode, decode_s, tokens, repeat=0, order=0, **parts):
    parts = parts or {"draft_s": 0.0, "verify_s": decode_s, "other_s": 0.0}
    row = {"prompt_id": prompt_id, "mode": mode, "repeat": repeat, "order": order, "prefill_s": 0.1}
    return {**row, "decode_s": decode_s, "output_tokens": tokens, **parts}


def timed(folder, rows, steps, clusters=None):
    prompts = prompts_of([[1] * n for n in steps], clusters)
    run = write_run(folder, prompts, protocol="generate", gates=False, history=False, timings=rows)
    return load(Run.open(run), "generate")


def arms(tmp_path, times, tokens, steps=None, clusters=None):
    """Two arms over prompts of these output lengths; ``times``: seconds per prompt of (A plain, A draft, B plain, B
    draft)."""
    steps = steps or [2] * len(tokens)
    made = []
    for name, plain, draft, order in (("a", times[0], times[1], 1), ("b", times[2], times[3], 2)):
        rows = [timing(f"p{i:03d}", "plain", s, n) for i, (s, n) in enumerate(zip(plain, tokens, strict=True))]
        rows += [
            timing(f"p{i:03d}", "draft", s, n, order=order) for i, (s, n) in enumerate(zip(draft, tokens, strict=True))
        ]
        made.append(timed(tmp_path / name, rows, steps, clusters))
    return speed(*made, pair(*made))


def ratio(found, what, against, estimand=SPEEDUP_POOLED):
    (match,) = [
        r for r in found.ratios if (r.what, r.against, r.estimand) == (what, against, estimand) and not r.subset
    ]
    return match


# --- speed-ups -------------------------------------------------------------------------------------------------


def test_pooled_and_mean_speed_ups_by_hand(tmp_path):
    plain, fast = [10.0, 4.0, 2.0], [4.0, 4.0, 1.0]
    found = arms(tmp_path, (plain, plain, plain, fast), [11, 5, 3])
    assert ratio(found, "B", "plain").estimate == pytest.approx(16 / 9)
    assert ratio(found, "B", "plain", SPEEDUP_MEAN).estimate == pytest.approx((2.5 * 1 * 2) ** (1 / 3))
    assert ratio(found, "A", "plain").estimate == pytest.approx(1.0)
    assert ratio(found, "B", "A").estimate == pytest.approx(16 / 9)


def test_the_interval_of_the_mean_is_a_t_on_logs(tmp_path):
    rng = np.random.default_rng(0)
    plain, a, b = rng.gamma(20, 0.1, (3, 30))
    found = ratio(arms(tmp_path, (plain, a, plain, b), [21] * 30), "B", "A", SPEEDUP_MEAN)
    test = stats.ttest_1samp(np.log(a / b), 0)
    assert found.p == pytest.approx(test.pvalue)
    assert (found.lo, found.hi) == pytest.approx(tuple(np.exp(test.confidence_interval())))


def test_the_interval_of_the_pooled_ratio_agrees_with_a_cluster_bootstrap(tmp_path):
    rng = np.random.default_rng(1)
    tokens = rng.integers(10, 80, 120)
    level = rng.gamma(30, 1 / 30, 40).repeat(3)
    a = tokens * level * rng.gamma(40, 1 / 40, 120)
    b = tokens * level**0.5 * rng.gamma(40, 1 / 40, 120) / 1.3
    clusters = np.repeat(range(40), 3)
    found = ratio(arms(tmp_path, (a, a, a, b), (tokens + 1).tolist(), clusters=clusters), "B", "A")
    draws = rng.multinomial(40, np.full(40, 1 / 40), 4000)[:, clusters]
    replicates = np.log((draws @ a) / (draws @ b))
    assert (math.log(found.hi) - math.log(found.lo)) / 2 / stats.t.ppf(0.975, 39) == pytest.approx(
        replicates.std(), rel=0.06
    )
    assert found.n_clusters == 40


def test_a_ratio_of_speed_ups_forgives_a_slower_machine(tmp_path):
    plain = [4.0, 6.0, 5.0]
    found = arms(tmp_path, (plain, [2.0, 3.0, 2.5], [2 * s for s in plain], [4.0, 6.0, 5.0]), [9, 9, 9])
    assert ratio(found, "B", "A").estimate == pytest.approx(0.5)
    assert ratio(found, "B's speed-up", "A's").estimate == pytest.approx(1.0)


def test_speed_ups_over_the_same_plain_timings_are_no_second_ratio_of_the_arms(tmp_path):
    plain = [4.0, 6.0, 5.0]
    shared = arms(tmp_path, (plain, [2.0, 3.0, 2.5], plain, [4.0, 6.0, 5.0]), [9, 9, 9])
    assert {(r.what, r.against) for r in shared.ratios} == {("A", "plain"), ("B", "plain"), ("B", "A")}
    # of another session they are not the same, be it by a hair
    own = arms(tmp_path, (plain, [2.0, 3.0, 2.5], [4.0, 6.0, 5.001], [4.0, 6.0, 5.0]), [9, 9, 9])
    assert ratio(own, "B's speed-up", "A's").estimate == pytest.approx(0.5 * 15.001 / 15)


def test_what_intervals_of_times_do_not_cover_is_told_where_there_are_times(tmp_path):
    run = write_run(tmp_path / "a", prompts_of([[1], [2]]), protocol="generate", gates=False, history=False)
    without_times = not_covered(compare_runs(run, run))
    rows = [timing(f"p00{i}", "draft", 1.0 + i, 11) for i in range(2)]
    timed(tmp_path / "t", rows, [1, 1])
    with_times = not_covered(compare_runs(tmp_path / "t", tmp_path / "t"))
    assert len(with_times) == len(without_times) + 1


def test_repeats_are_summed_and_single_tokens_left_out(tmp_path):
    rows = [timing("p000", "draft", 1.0, 11), timing("p000", "draft", 3.0, 11, repeat=1), timing("p001", "draft", 1, 1)]
    a = timed(tmp_path / "a", rows, [2, 2])
    b = timed(tmp_path / "b", [timing("p000", "draft", 1.0, 11), timing("p001", "draft", 1, 1)], [2, 2])
    found = speed(a, b, pair(a, b))
    assert ratio(found, "B", "A").estimate == pytest.approx(2.0)
    assert (found.timed, found.repeats, found.left_out) == ({"A": 1, "B": 1}, {"A": 2, "B": 1}, {"A": 1, "B": 1})
    assert found.costs == {}


def test_a_verdict_is_drawn_between_arms_only(tmp_path):
    rng = np.random.default_rng(2)
    plain = rng.gamma(50, 0.1, 60)
    found = arms(tmp_path, (plain, plain, plain, plain / rng.gamma(400, 1 / 300, 60)), [21] * 60)
    assert ratio(found, "B", "A").verdict is Verdict.B_BETTER
    assert ratio(found, "B", "plain").verdict is None
    assert ratio(found, "A", "plain").estimate == 1.0


def test_arms_timed_apart_have_no_verdict_on_speed(tmp_path):
    """Of 3% between two sessions an interval over prompts knows nothing, however narrow it is."""
    rng = np.random.default_rng(3)
    plain = rng.gamma(50, 0.1, 60)
    noise = rng.normal(0, 0.005, (2, 60))
    # A's plain decoding is of its own session, so the arms cannot have taken turns
    found = arms(tmp_path, (plain * 1.001, plain * np.exp(noise[0]), plain, 0.97 * plain * np.exp(noise[1])), [21] * 60)
    apart = ratio(found, "B", "A")
    assert apart.lo > 1 and (apart.design, apart.p, apart.verdict) == (Design.ONE_EACH, None, None)
    assert "one-session" in [c.code for c in apart.cautions]
    # by turns with plain decoding in both sessions, what a session adds is in the speed-ups of both arms
    both = ratio(found, "B's speed-up", "A's")
    assert (both.design, both.verdict) == (Design.BY_TURNS, Verdict.B_BETTER)


def test_logs_without_an_order_were_not_timed_by_turns(tmp_path):
    rows = [[timing(f"p{i:03d}", "draft", s, 21) for i in range(9)] for s in (1.0, 0.9)]
    a, b = (timed(tmp_path / name, r, [2] * 9) for name, r in zip("ab", rows, strict=True))
    found = ratio(speed(a, b, pair(a, b)), "B", "A")
    assert (found.design, found.p, found.verdict) == (Design.ONE_EACH, None, None)


def test_repeated_sessions_by_hand(tmp_path):
    """Where sessions differ and prompts do not, the test is Welch's t over the logs of the sessions' times."""
    times = {"a": [1.00, 1.03, 0.98, 1.05, 1.01], "b": [0.90, 0.93, 0.88, 0.91, 0.89]}
    first = {}
    for name, sessions in times.items():
        made = [
            timed(tmp_path / f"{name}{k}", [timing(f"p{i:03d}", "draft", s, 21) for i in range(9)], [2] * 9)
            for k, s in enumerate(sessions)
        ]
        first[name] = made[0], [e.run for e in made[1:]]
    (a, more_a), (b, more_b) = first["a"], first["b"]
    found = ratio(speed(a, b, pair(a, b), (more_a, more_b)), "B", "A")
    test = stats.ttest_ind(np.log(times["a"]), np.log(times["b"]), equal_var=False)
    assert found.estimate == pytest.approx(stats.gmean(times["a"]) / stats.gmean(times["b"]))
    assert found.p == pytest.approx(test.pvalue)
    assert (found.lo, found.hi) == pytest.approx(tuple(np.exp(test.confidence_interval())), rel=1e-3)
    assert (found.design, found.verdict) == (Design.REPEATED, Verdict.B_BETTER)
    few = ratio(speed(a, b, pair(a, b), (more_a[:1], more_b)), "B", "A")
    assert few.verdict is Verdict.INCONCLUSIVE and "few-sessions" in [c.code for c in few.cautions]
    assert "few-seeds" not in [c.code for c in few.cautions]


def test_a_rule_on_speed_is_undecided_for_one_session_each(tmp_path):
    for name, s in (("a", 1.0), ("b", 2.0)):
        timed(tmp_path / name, [timing(f"p{i:03d}", "draft", s * (1 + i / 99), 21) for i in range(9)], [2] * 9)
    found = judge(parse_rule("speedup<0.9"), compare_runs(tmp_path / "a", tmp_path / "b"))
    assert found.code is Exit.INCONCLUSIVE


def test_no_timings_are_no_section(tmp_path):
    a = timed(tmp_path / "a", [], [2, 2])
    assert speed(a, a, pair(a, a)) is None


def test_where_time_goes(tmp_path):
    # 2 prompts, tau 2; plain 0.1 s a token; a step: 0.05 drafting, 0.12 verifying, 0.01 other
    steps = [5, 10]
    parts = [{"draft_s": 0.05 * n, "verify_s": 0.12 * n, "other_s": 0.01 * n} for n in steps]
    rows = [timing(f"p{i:03d}", "plain", 0.1 * 2 * n, 2 * n + 1) for i, n in enumerate(steps)]
    rows += [timing(f"p{i:03d}", "draft", 0.18 * n, 2 * n + 1, **parts[i]) for i, n in enumerate(steps)]
    rows += [timing(f"p{i:03d}", "draft", 0.18 * n, 2 * n + 1, repeat=1, **parts[i]) for i, n in enumerate(steps)]
    a = timed(tmp_path / "a", rows, steps)
    cost = speed(a, a, pair(a, a)).costs["A"]
    assert (cost.tau, cost.plain_s) == pytest.approx((2.0, 0.1))
    assert (cost.draft_s, cost.verify_s, cost.other_s) == pytest.approx((0.05, 0.12, 0.01))
    assert cost.step_in_tokens == pytest.approx(1.8)
    assert cost.allowed == pytest.approx(2 / 1.8)
    assert cost.free_drafting == pytest.approx(2 / 1.3)
    # all of decoding is in the parts, so what they allow is what was measured
    assert ratio(speed(a, a, pair(a, a)), "A", "plain").estimate == pytest.approx(cost.allowed)


# --- the output ------------------------------------------------------------------------------------------------


def test_outputs_against_plain_decoding(tmp_path):
    def arm(name, differing, hashes):
        rows = [prompt(f"p{i}", [1], matches_baseline=True, output_hash=h) for i, h in enumerate(hashes)]
        for row, (first, margin) in zip(rows, differing, strict=False):
            row.update(matches_baseline=False, first_mismatch=first, mismatch_margin=margin)
        folder = write_run(tmp_path / name, rows, protocol="generate", gates=False, history=False)
        return load(Run.open(folder), "generate")

    a, b = arm("a", [], "xyz"), arm("b", [(4, 5e-4), (9, 0.5)], "xyw")
    found = outputs(a, b, pair(a, b))
    assert (found.a.checked, found.a.matches, found.b.matches) == (3, 3, 1)
    assert found.b.mismatches["explained"].tolist() == [True, False]
    assert (found.same, found.compared) == (2, 3)
    # z and w are of one prompt, and both arms are recorded as equal to the baseline's
    warning, disagreement = cautions_of(found, ("one", "two"))
    assert (warning.code, "two" in warning.text, "1 of 3" in warning.text) == ("not-lossless", True, True)
    assert (disagreement.code, found.claimed) == ("claims-disagree", 1)


def test_a_baseline_that_differs_from_itself_is_told(tmp_path):
    def unstable(manifest):
        (evaluation,) = manifest.evaluations.values()
        evaluation.datasets["sums"]["baseline_differs"] = 2

    rows = prompts_of([[1], [2], [3]], matches_baseline=True)
    run = write_run(tmp_path / "a", rows, protocol="generate", gates=False, history=False, change=unstable)
    assert "2 prompts of A, 2 prompts of B" in unstable_baseline(compare_runs(run, run))
    calm = write_run(tmp_path / "b", rows, protocol="generate", gates=False, history=False)
    assert unstable_baseline(compare_runs(calm, calm)) is None


def test_outputs_that_were_not_checked_say_nothing(tmp_path):
    a = timed(tmp_path / "a", [], [1, 1])
    found = outputs(a, a, pair(a, a))
    assert (found.a.checked, found.compared, cautions_of(found, ("a", "b"))) == (0, 0, ())


def test_answers_are_told_with_their_limit_and_how_many_were_cut(tmp_path):
    def arm(name, stopped, limit=64):
        reasons = ["stop" if i < stopped else "length" for i in range(5)]
        rows = [prompt(f"p{i}", [1, 2], finish_reason=r, dataset="xxxyy"[i]) for i, r in enumerate(reasons)]

        def change(manifest):
            (evaluation,) = manifest.evaluations.values()
            evaluation.settings["max_new_tokens"] = limit

        return write_run(tmp_path / name, rows, protocol="generate", gates=False, history=False, change=change)

    a, b, whole = arm("a", 2), arm("b", 1), arm("whole", 5)

    def numbers(text):
        return [int(n) for n in re.findall(r"\d+", text)]

    # answers, their limit, and how many were cut there; then answers by data set
    assert numbers(answers_by_dataset(compare_runs(a, a))) == [5, 64, 3, 3, 2]
    assert numbers(answers_told(compare_runs(a, b))) == [5, 64, 3, 4]
    assert numbers(answers_told(compare_runs(a, b), 4)) == [4, 64]  # how many of these were cut is not known
    assert numbers(answers_told(compare_runs(whole, whole))) == [5, 64]
    for limit in (65, None):  # no common limit
        assert numbers(answers_told(compare_runs(a, arm(f"limit {limit}", 2, limit)))) == [5, 3]
    blocks = write_run(tmp_path / "blocks", prompts_of([1, 2]), gates=False, history=False)
    assert answers_by_dataset(compare_runs(blocks, blocks)) is None


# --- serving trials --------------------------------------------------------------------------------------------


def served(tmp_path, a, b, concurrency=1, **more):
    """Two runs whose arm served at these tokens per second, a block each."""
    made = []
    for name, speeds in (("a", a), ("b", b)):
        trials = [
            {"trial": i, "block": i, "order": 0, "arm": name, "status": "ok", "concurrency": concurrency} | more
            | {"tokens_per_s": s}
            for i, s in enumerate(speeds)
        ]  # fmt: skip
        trials.append({"trial": 99, "block": 0, "arm": "plain", "status": "ok", "tokens_per_s": 1.0, "concurrency": 1})
        made.append(write_run(tmp_path / name, prompts_of([1, 2, 3]), gates=False, history=False, trials=trials))
    return compare_runs(*made)


def test_six_blocks_have_a_word_and_five_have_none(tmp_path):
    a, b = [100, 101, 99, 100, 102, 98], [120, 123, 118, 121, 119, 120]
    found = served(tmp_path, a, b).throughput.ratios[0]
    test = stats.ttest_1samp(np.log(np.divide(b, a)), 0)
    assert found.estimate == pytest.approx(stats.gmean(np.divide(b, a)))
    assert (found.lo, found.hi) == pytest.approx(tuple(np.exp(test.confidence_interval())))
    assert (found.p, found.verdict) == (pytest.approx(test.pvalue), Verdict.B_BETTER)
    few = served(tmp_path, a[:5], b[:5])
    assert few.throughput.ratios[0].verdict is None
    ratios, trials = throughput_tables(few)
    assert not any(verdict in ratios + trials for verdict in Verdict)
    assert trials.count("\n| A ") + trials.count("\n| B ") == 10


def test_failed_trials_are_shown_and_count_nowhere(tmp_path):
    comparison = served(tmp_path, [100.0] * 6, [110.0] * 6)
    run = write_run(
        tmp_path / "b",
        prompts_of([1, 2, 3]),
        gates=False,
        history=False,
        trials=[
            {"trial": i, "block": i, "arm": "b", "status": "ok" if i else "failed", "concurrency": 1, "reason": "died"}
            | {"tokens_per_s": 110.0}
            for i in range(6)
        ],
    )
    again = compare_runs(tmp_path / "a", run)
    assert comparison.throughput.ratios[0].blocks == tuple(range(6))
    assert again.throughput.ratios[0].blocks == tuple(range(1, 6))
    assert "| failed | died |" in throughput_tables(again)[1]


def test_speed_and_trials_have_figures(tmp_path):
    rows = [timing("p000", mode, s, 9) for mode, s in (("plain", 4.0), ("draft", 2.0))]
    trials = [
        {"trial": i, "block": i, "arm": "x", "status": "ok", "concurrency": c, "tokens_per_s": 50.0 + i}
        for c in (1, 8)
        for i in range(3)
    ]
    prompts = prompts_of([[1, 2]])
    run = write_run(tmp_path / "x", prompts, protocol="generate", gates=False, timings=rows, trials=trials)
    figures = {plot.name: plot.data for plot in compare_runs(run, run).figures()}
    assert {"speed", "throughput"} <= set(figures)
    assert figures["speed"]["times"].tolist() == [2.0] * 4
    assert len(figures["throughput"]) == 12


def test_one_block_and_no_trials(tmp_path):
    found = served(tmp_path, [100.0], [110.0]).throughput.ratios[0]
    assert (found.estimate, found.lo, found.verdict) == (pytest.approx(1.1), None, None)
    a = write_run(tmp_path / "x", prompts_of([1, 2]), gates=False, history=False)
    assert compare_runs(a, a).throughput is None
