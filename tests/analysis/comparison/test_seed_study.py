"""Several trainings of two arms: from runs to a result, a report and an exit code."""

from __future__ import annotations

import json

import numpy as np
import pytest

from analysis.comparison.rules import judge, parse_rule
from analysis.comparison.seed_study import compare_seeds
from analysis.errors import DataError, Exit, UsageError, run_command
from analysis.runlog.reading import Run
from analysis.runlog.writing import RunWriter
from analysis.wording import Verdict
from tests.analysis.runs import prompts_of, write_run

BARE = {"gates": False, "history": False}


def seeded(seed):
    return lambda manifest: manifest.training.seeds.update(init=seed, data=seed, anchors=seed)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    """Five seeds of two arms over 60 prompts in 30 clusters and two data sets; B is a token better on most."""
    root, rng = tmp_path_factory.mktemp("seeds"), np.random.default_rng(7)
    base = rng.integers(0, 4, 60)
    runs = {}
    for seed in range(5):
        noise = rng.integers(0, 2, 60)
        better = noise + (rng.random(60) < 0.9)
        for arm, extra, fusion in (("a", noise, "concat"), ("b", better, "gated")):
            rows = prompts_of((base + extra).tolist(), clusters=np.arange(60) % 30)
            for i, row in enumerate(rows):
                row["dataset"] = "sums" if i < 40 else "words"
            runs[arm, seed] = write_run(root / f"{arm}{seed}", rows, fusion=fusion, change=seeded(seed), **BARE)
    return runs


@pytest.fixture(scope="module")
def five(trainings):
    return compare_seeds(*arms(trainings))


def arms(trainings, order_b=range(5), seeds=range(5)):
    return [trainings["a", s] for s in seeds], [trainings["b", s] for s in order_b]


def test_runs_are_paired_by_seed_whatever_their_order(trainings, five):
    straight, mixed = five, compare_seeds(*arms(trainings, [3, 0, 4, 1, 2]))
    assert straight == mixed
    assert straight.seeds_a == straight.seeds_b == ("0", "1", "2", "3", "4")
    assert straight.overall.estimate.verdict is Verdict.B_BETTER
    assert straight.overall.deltas == pytest.approx([e.estimate for e in straight.per_seed])
    assert np.mean(straight.overall.deltas) == pytest.approx(straight.overall.estimate.estimate)
    assert {c.estimate.family_size for c in straight.by_dataset.values()} == {2}
    assert straight.overall.design == "paired"
    assert len(straight.to_frame()) == len(straight.estimates) + 5 == 2 + 2 + 5


def test_other_seeds_are_not_paired(trainings):
    found = compare_seeds([trainings["a", s] for s in (0, 1, 2)], [trainings["b", s] for s in (2, 3, 4)])
    assert (found.overall.design, found.per_seed) == ("independent", ())
    assert found.cautions[0].code == "unpaired-seeds"
    assert "seeds-differs" not in {c.code for c in found.cautions}
    assert found.overall.estimate.verdict is Verdict.INCONCLUSIVE


def test_copies_of_a_seed_are_refused(trainings, tmp_path):
    copy = write_run(tmp_path / "copy", prompts_of([1, 2]), change=seeded(0), **BARE)
    with pytest.raises(DataError, match=r"copy.* seeds \(0\)"):
        compare_seeds([trainings["a", 0], copy], [trainings["b", 0], trainings["b", 1]])

    def no_seeds(manifest):
        manifest.training = manifest.drafter = None

    unknown = write_run(tmp_path / "unknown", prompts_of([1, 2]), change=no_seeds, **BARE)
    with pytest.raises(DataError, match=r"unknown.* address"):
        compare_seeds([unknown, unknown], [trainings["b", 0], trainings["b", 1]])

    def same_weights(manifest):
        seeded(7)(manifest)
        manifest.drafter.checkpoint_sha256 = "99" * 32

    def other_seed(manifest):
        same_weights(manifest)
        seeded(8)(manifest)

    first = write_run(tmp_path / "first", prompts_of([1, 2]), change=same_weights, **BARE)
    second = write_run(tmp_path / "second", prompts_of([1, 2]), change=other_seed, **BARE)
    with pytest.raises(DataError, match=r"first.*second.* weights"):
        compare_seeds([first, second], [trainings["b", 0]])
    with pytest.raises(UsageError, match="--vs"):
        compare_seeds([trainings["a", 0]], [trainings["b", 0]])
    with pytest.raises(UsageError, match="--vs"):
        compare_seeds("a0", "b0")


OTHER = {
    "corpus": lambda t: setattr(t, "corpus_sha256", "77" * 32),
    "steps": lambda t: setattr(t, "steps", 61),
    "precision": lambda t: setattr(t, "precision", "bfloat16"),
    "settings": lambda t: t.settings.update(loss={"gamma": 7.0}),
}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (OTHER["corpus"], "training corpora"),
        (OTHER["steps"], r"optimizer steps differ \(60 against 61\)"),
        (OTHER["precision"], "training precisions"),
        (OTHER["settings"], r"training settings differ \(loss.gamma 4.0 against 7.0\)"),
        (None, r"drafter's configurations differ \(fusion concat against gated\)"),
    ],
)
def test_other_recipes_are_no_trainings_of_one_arm(tmp_path, change, named):
    def with_loss(manifest):
        manifest.training.settings["loss"] = {"gamma": 4.0}

    def other(manifest):
        with_loss(manifest)
        seeded(1)(manifest)
        if change:
            change(manifest.training)

    rows = prompts_of([1, 2, 3])
    first = write_run(tmp_path / "first", rows, change=with_loss, **BARE)
    second = write_run(tmp_path / "second", rows, fusion="concat" if change else "gated", change=other, **BARE)
    with pytest.raises(DataError, match=f"first .*second .*{named}"):
        compare_seeds([first, second], [first])


def test_what_one_training_does_not_record_is_not_compared(trainings, tmp_path):
    def unrecorded(manifest):
        seeded(1)(manifest)
        manifest.training.corpus_sha256 = None
        manifest.training.settings["only here"] = 1

    rows = prompts_of([1] * 60, clusters=np.arange(60) % 30)
    for i, row in enumerate(rows):
        row["dataset"] = "sums" if i < 40 else "words"
    second = write_run(tmp_path / "second", rows, change=unrecorded, **BARE)
    found = compare_seeds([trainings["a", 0], second], [trainings["b", 0], trainings["b", 1]])
    (unknown,) = [c for c in found.cautions if c.code == "unknown-in-arm"]
    assert "arm A" in unknown.text and "training corpora" in unknown.text


def test_a_run_without_training_against_five_trainings(trainings, tmp_path):
    def untrained(manifest):
        manifest.training.seeds.clear()

    def of_60(name, change):
        rows = prompts_of([1, 2, 3] * 20, clusters=np.arange(60) % 30)
        for i, row in enumerate(rows):
            row["dataset"] = "sums" if i < 40 else "words"
        return write_run(tmp_path / name, rows, change=change, **BARE)

    many = [trainings["b", s] for s in range(5)]
    found = compare_seeds(of_60("baseline", untrained), many)
    assert (found.overall.design, found.seeds) == ("one run", ("0", "1", "2", "3", "4"))
    assert "one-training" not in {c.code for c in found.cautions}
    assert found.overall.estimate.verdict is Verdict.B_BETTER
    assert [e.estimate for e in found.per_seed] == pytest.approx(found.overall.deltas)
    assert len(found.without) == 5
    turned = compare_seeds(many, of_60("baseline", untrained))
    assert turned.overall.estimate.verdict is Verdict.A_BETTER
    assert turned.overall.estimate.p == pytest.approx(found.overall.estimate.p)
    trained = compare_seeds(of_60("trained", seeded(9)), many)
    (one,) = [c for c in trained.cautions if c.code == "one-training"]
    assert "Arm A" in one.text and "trained" in one.text


def test_leave_one_out_and_the_seeds_that_would_do(trainings, five):
    found = five
    deltas = np.array(found.overall.deltas)
    assert [left.seed for left in found.without] == ["0", "1", "2", "3", "4"]
    assert [left.estimate.estimate for left in found.without] == pytest.approx((deltas.sum() - deltas) / 4)
    assert {left.estimate.verdict for left in found.without} == {Verdict.INCONCLUSIVE}  # four are too few
    assert (found.needed.effect, found.needed.seeds) == (pytest.approx(found.overall.estimate.estimate), 5)
    unpaired = compare_seeds([trainings["a", s] for s in (0, 1, 2)], [trainings["b", s] for s in (2, 3, 4)])
    assert [(left.arm, left.seed) for left in unpaired.without] == [
        (x, y) for x, ys in (("A", "012"), ("B", "234")) for y in ys
    ]


def test_balanced_mean_and_data_sets(five):
    found = five
    means = [c.estimate.estimate for c in found.by_dataset.values()]
    assert found.balanced.estimate.estimate == pytest.approx(np.mean(means))
    assert found.balanced.estimate.estimand.key == "accepted_length_balanced"
    assert pytest.approx(found.overall.deltas) == np.array([c.deltas for c in found.by_dataset.values()]).T @ [
        40 / 60,
        20 / 60,
    ]


def of_protocols(folder, protocols, seed, rng):
    """A run of 12 prompts evaluated under each of these protocols in turn."""
    rows = prompts_of(rng.integers(0, 5, 12).tolist())
    return write_run(folder, rows, protocol=protocols, change=seeded(seed), **BARE)


def test_the_protocol_is_one_that_every_run_has(tmp_path):
    rng = np.random.default_rng(0)
    runs = [of_protocols(tmp_path / f"r{i}", p, i, rng) for i, p in enumerate(["prefix", "prefix", "generate"])]
    with pytest.raises(DataError, match=r"r0: prefix; .*r1: prefix; .*r2: generate"):
        compare_seeds(runs[:2], runs[2])
    with pytest.raises(DataError, match=r"r2: .*'prefix'"):
        compare_seeds(runs[:2], runs[2], protocol="prefix")


def test_protocols_that_some_runs_have_are_passed_over(tmp_path):
    """The first training of each arm has whole answers too, the second first blocks alone."""
    rng, runs = np.random.default_rng(1), []
    for i, protocol in enumerate(["generate", "prefix", "generate", "prefix"]):
        folder = of_protocols(tmp_path / f"r{i}", protocol, i % 2, rng)
        if protocol == "generate":
            given = Run.open(of_protocols(tmp_path / f"prefix{i}", "prefix", i % 2, rng))
            writer = RunWriter.resume(folder)
            for name in ("acceptance", "prompts"):
                writer.append(name, given.read(name), part="prefix")
            writer.manifest.evaluations |= given.manifest.evaluations
            writer.commit()
        runs.append(folder)
    assert compare_seeds(runs[:2], runs[2:]).protocol == "prefix"


def test_the_mix_of_prompts_that_decides_the_sign_is_named(tmp_path):
    """B loses a little on the one large data set and gains a lot on two small ones."""
    rng, runs = np.random.default_rng(2), {"a": [], "b": []}
    sizes = {"sums": 120, "words": 20, "code": 20}
    for seed in range(3):
        for arm, effects in (("a", {}), ("b", {"sums": -1, "words": 2, "code": 2})):
            rows = prompts_of((3 + rng.integers(0, 2, 160)).tolist())
            names = [name for name, size in sizes.items() for _ in range(size)]
            for row, name in zip(rows, names, strict=True):
                row["dataset"], row["accepted"] = name, [row["accepted"][0] + effects.get(name, 0)]
            runs[arm].append(write_run(tmp_path / f"{arm}{seed}", rows, change=seeded(seed), **BARE))
    found = compare_seeds(runs["a"], runs["b"])
    assert found.overall.estimate.estimate < 0 < found.balanced.estimate.estimate
    assert "simpson-balanced" in {c.code for c in found.cautions}


def test_ties_are_those_of_the_counts(tmp_path):
    """Whole answers: linearised ratios differ where the counts do not, in every seed."""
    rng = np.random.default_rng(4)
    base = [rng.integers(0, 4, 5).tolist() for _ in range(30)]
    runs = {}
    for arm, fusion in (("a", "concat"), ("b", "gated")):
        for seed in range(5):
            # every training answers its own way; B gains at the first seven, at the eighth with seed 0 alone
            steps = [[x + (seed + i) % 2 for x in row] for i, row in enumerate(base)]
            for row in steps[: 8 if seed == 0 else 7]:
                row[0] += arm == "b"
            runs[arm, seed] = write_run(
                tmp_path / f"{arm}{seed}", prompts_of(steps), protocol="generate", fusion=fusion, change=seeded(seed),
                **BARE,
            )  # fmt: skip
    e = compare_seeds(*arms(runs)).overall.estimate
    assert (e.n_differ, e.n_zero, e.n_pairs) == (8, 22, 30)
    assert "few-units" in {c.code for c in e.cautions}
    # not paired: a prompt is without a difference only if no two runs differ
    other = compare_seeds([runs["a", s] for s in range(5)], [runs["b", s] for s in range(4)]).overall.estimate
    assert other.n_zero == 0


def test_few_common_prompts_are_refused(trainings, tmp_path):
    rows = prompts_of([1] * 50, clusters=np.arange(50) % 30)
    for i, row in enumerate(rows):
        row["dataset"] = "sums" if i < 40 else "words"
    short = write_run(tmp_path / "short", rows, fusion="gated", change=seeded(1), **BARE)
    arms = [trainings["a", 0], trainings["a", 1]], [trainings["b", 0], short]
    with pytest.raises(DataError, match=r"50 pairs .* 83\.3%"):
        compare_seeds(*arms)
    assert compare_seeds(*arms, min_coverage=0.8).prompts == 50


def test_prompts_that_one_run_lacks_are_excluded(trainings, tmp_path):
    rows = prompts_of([1] * 59, clusters=np.arange(59) % 30)
    for i, row in enumerate(rows):
        row["dataset"] = "sums" if i < 40 else "words"
    short = write_run(tmp_path / "short", rows, fusion="gated", change=seeded(1), **BARE)
    found = compare_seeds([trainings["a", 0], trainings["a", 1]], [trainings["b", 0], short])
    assert (found.prompts, found.prompts_lost) == (59, 1)
    assert [e.n_pairs for e in found.per_seed] == [59, 59]


def test_through_the_command(trainings, tmp_path, monkeypatch, capsys):
    from analysis.commands.compare import main

    monkeypatch.chdir(tmp_path)
    a, b = arms(trainings)
    argv = [*map(str, a), "--vs", *map(str, b)]
    assert run_command(main, argv) == Exit.OK
    out = capsys.readouterr().out
    assert out.index("DynaDFlash (B)") < out.index(" DFlash (A)")
    folder = tmp_path / "reports" / "a0-x5-vs-b0-x5"
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert "| 3 | a3 | b3 |" in report
    drawn = {f"{name}.{kind}" for name in ("seeds", "seeds-by-dataset") for kind in ("png", "svg", "pdf", "csv")}
    assert {p.name for p in (folder / "figures").iterdir()} == drawn
    assert "| 3 | +" in report.split("| seed | sums | words |")[1].split("\n\n")[0]
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert (result["kind"], result["overall"]["design"], len(result["without"])) == ("seeds", "paired", 5)
    assert "few-seeds" not in {c["code"] for c in result["overall"]["estimate"]["cautions"]}
    first = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    run_command(main, argv)
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == first
    capsys.readouterr()
    assert run_command(main, [*map(str, a[:2]), "--vs", *map(str, b[:2])]) == Exit.OK
    two = json.loads((tmp_path / "reports/a0-x2-vs-b0-x2/result.json").read_text(encoding="utf-8"))
    (few,) = [c for c in two["overall"]["estimate"]["cautions"] if c["code"] == "few-seeds"]
    assert few["text"] in capsys.readouterr().out
    assert run_command(main, [*argv, "--dataset", "sums"]) == Exit.USAGE
    assert run_command(main, [*argv, "--baseline", str(a[0])]) == Exit.USAGE


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("delta<0", Exit.OK),
        ("delta[words]>0.1", Exit.RULE_FAILED),
        ("accepted_length_balanced<0", Exit.OK),
        ("delta<0.9", Exit.INCONCLUSIVE),
    ],
)
def test_rules_are_judged_over_seeds_and_prompts(five, rule, code):
    assert judge(parse_rule(rule), five).code == code


def test_rules_that_cannot_be_judged(five, trainings):
    with pytest.raises(UsageError, match=r"'speedup<1'.*delta\[words\]"):
        judge(parse_rule("speedup<1"), five)
    three = compare_seeds(*(runs[:3] for runs in arms(trainings)))
    assert three.overall.estimate.lo > -100
    assert judge(parse_rule("delta<-100"), three).code == Exit.INCONCLUSIVE  # no verdict about training


def test_a_rule_and_a_margin_through_the_command(trainings, tmp_path, monkeypatch, capsys):
    from analysis.compare import main

    monkeypatch.chdir(tmp_path)
    a, b = arms(trainings)
    argv = [*map(str, a), "--vs", *map(str, b), "--margin", "3", "--fail-if", "delta>0.1"]
    assert run_command(main, argv) == Exit.RULE_FAILED
    out = capsys.readouterr().out
    result = json.loads((tmp_path / "reports/a0-x5-vs-b0-x5/result.json").read_text(encoding="utf-8"))
    assert result["overall"]["estimate"]["verdict"] == Verdict.EQUIVALENT
    assert out.splitlines()[-2].startswith("rule delta>0.1: failed ")
    assert run_command(main, [*argv[:-4], "--margin", "-1"]) == Exit.USAGE
