"""Two runs in, one frozen result out: ``compare_runs(a, b)``. Rendering is elsewhere (report, markdown, plots)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pandas as pd

from analysis.cautions import Caution, caution
from analysis.comparison.facts import ArmSummary, DatasetFacts, dataset_facts, labels, reference_of
from analysis.comparison.question import headline_of, listed, margin_of, of_evaluation, open_run, pick, require_coverage
from analysis.display import Shown
from analysis.errors import DataError
from analysis.keys import natural
from analysis.measures import exploration, lossless, texts
from analysis.measures.anchors import Anchors, anchors
from analysis.measures.baseline import AgainstBaseline, against_baseline
from analysis.measures.benchmark_table import BenchmarkTable, benchmark_table
from analysis.measures.changes import Change, changes
from analysis.measures.controls import Control, compare_controls
from analysis.measures.explained import Explained, explained
from analysis.measures.exploration import Declaration, declare
from analysis.measures.fairness import (
    ArmDifference,
    FairnessRow,
    cautions_of,
    compare_arms,
    design_differences,
    require_same_target,
)
from analysis.measures.floor import below_floor
from analysis.measures.gain import GainBySpread, gain_by_spread
from analysis.measures.gates import Gates, summarise
from analysis.measures.headroom import Headroom, headroom
from analysis.measures.history import health, load_history
from analysis.measures.lossless import Outputs, outputs
from analysis.measures.missing import Bounds, Missing, bounds, missing, most_tokens
from analysis.measures.missing import cautions_of as missing_cautions
from analysis.measures.monitor import monitor
from analysis.measures.positions import positions
from analysis.measures.published import below_published, published_for
from analysis.measures.seen import by_seen
from analysis.measures.shift import shift
from analysis.measures.speed import Speed, speed
from analysis.measures.throughput import Throughput, throughput
from analysis.runlog.identities import load_sound
from analysis.runlog.load import Evaluated, protocols
from analysis.runlog.pairing import Pairs, pair
from analysis.runlog.reading import Run
from analysis.stats.datasets import Heterogeneity, Interaction, balanced_mean, disagreement, heterogeneity, interactions
from analysis.stats.estimate import Estimate, of_pairs, of_questions
from analysis.stats.families import adjust
from analysis.stats.sequential import Sequential
from analysis.stats.shift import Shift
from analysis.wording import HEADLINES, Estimand


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Shown):
    """The comparison of two runs, B against A, over the prompts that both have.

    ``overall`` is the headline; ``others`` are further estimands, the headline with equal weight per data set, and the
    headline of the other protocol if both runs have it; ``by_dataset`` is the headline's estimand per data set, a
    family adjusted by Holm; ``by_seen`` the same per kind of prompt, by whether training had its template.
    ``position_difference``: survival by draft position, B - A. ``published``: rows of others' drafters for the same
    target; ``benchmarks``: those of the six published benchmarks that the runs have. With a headline of first blocks,
    ``speed``, ``outputs``, ``baseline`` and ``benchmarks`` are of the answers that both runs have, if they do: pairs of
    their own. ``missing``, ``full_set``: how the prompts without a pair differ, and the range of the headline's
    difference with them (:mod:`analysis.measures.missing`). ``anchors``: acceptance at every position of the
    answers, under ``replay``. ``changes``: how many prompts move, in which direction; ``shift``: by how
    much the deciles do.
    ``sequential``: the test that may be repeated, if it was asked for. ``controls``, ``gain``: evidence
    on the dynamics of B's gate. ``cautions`` concern the comparison as a whole; each estimate carries its own.
    """

    a: ArmSummary
    b: ArmSummary
    protocol: str
    declaration: Declaration
    overall: Estimate
    others: tuple[Estimate, ...]
    by_dataset: Mapping[str, Estimate]
    by_seen: Mapping[str, Estimate]
    heterogeneity: Heterogeneity | None
    interactions: tuple[Interaction, ...]
    datasets: tuple[DatasetFacts, ...]
    position_difference: pd.DataFrame
    speed: Speed | None
    outputs: Outputs
    throughput: Throughput | None
    published: pd.DataFrame
    benchmarks: BenchmarkTable | None
    controls: tuple[Control, ...]
    gain: GainBySpread | None
    pairs: Pairs
    fairness: tuple[FairnessRow, ...]
    differences: tuple[ArmDifference, ...]
    cautions: tuple[Caution, ...]
    baseline: AgainstBaseline | None = None
    missing: tuple[Missing, ...] = ()
    full_set: Bounds | None = None
    anchors: Anchors | None = None
    changes: tuple[Change, ...] = ()
    shift: Shift | None = None
    sequential: Sequential | None = None
    headroom: tuple[Headroom, ...] = ()
    explained: tuple[Explained, ...] = ()

    @property
    def estimand(self) -> Estimand:
        """The headline's metric."""
        return self.declaration.metric

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """The headline, the other estimands, then the data sets."""
        return (self.overall, *self.others, *self.by_dataset.values())

    def to_frame(self) -> pd.DataFrame:
        """One row per estimate; an estimand as its key, an equivalence as its margin and p, cautions as codes."""
        names = [field.name for field in fields(Estimate) if field.name != "equivalence"]
        rows = []
        for e in self.estimates:
            row = {name: getattr(e, name) for name in names}
            row |= {"estimand": e.estimand.key, "verdict": str(e.verdict)}
            row["cautions"] = ", ".join(c.code for c in e.cautions)
            row["margin"] = e.equivalence.margin if e.equivalence else None
            row["p_equivalence"] = e.equivalence.p_adjusted if e.equivalence else None
            rows.append(row)
        return pd.DataFrame(rows, columns=[*names, "margin", "p_equivalence"])


def compare_runs(
    run_a: Run | Path | str,
    run_b: Run | Path | str,
    *,
    protocol: str | None = None,
    evaluation: str | None = None,
    metric: str | None = None,
    margin: float | None = None,
    hypothesis: str | None = None,
    datasets: Sequence[str] | str | None = None,
    controls: Sequence[Run | Path | str] | Run | Path | str = (),
    earlier: Sequence[Run | Path | str] | Run | Path | str = (),
    baseline: Run | Path | str | None = None,
    sessions_a: Sequence[Run | Path | str] | Run | Path | str = (),
    sessions_b: Sequence[Run | Path | str] | Run | Path | str = (),
    min_coverage: float = 0.95,
    strict: bool = False,
    allow_incomplete: bool = False,
    sequential: bool = False,
) -> Comparison:
    """Compare two runs: is B better than A, by how much, on which data sets.

    A run is a Run, a path, an fsspec address or a name under ``runs/``. ``metric`` is the headline's key: of protocol
    ``replay`` or ``generate`` (``tau_pooled``, the default, or ``tau_mean``) or ``prefix`` (``accepted_length``); by
    default that of the first protocol, in this order, that both runs, and the controls, have. ``margin``: a difference
    within it counts as none (in the metric's unit). ``evaluation``: the name of an evaluation, or its beginning, for
    runs that hold several of one protocol; its protocol is then the headline's.
    ``datasets``: compare only these. ``controls``: runs that separate the dynamics of B's gate from its mean
    (:mod:`analysis.measures.controls`). ``earlier``: further runs whose exploratory prompts cannot confirm. Each of
    the three may be a single value.
    ``baseline``: a run of plain decoding, for the speed-ups of both arms over it. ``sessions_a``, ``sessions_b``: runs
    that timed an arm again, for a verdict on speed over sessions (:mod:`analysis.measures.sessions`).
    ``sequential``: also a test that stays valid if the comparison is repeated as prompts come in.

    Raises UsageError for an unknown protocol, evaluation or metric, a metric of another protocol, a margin that is not
    positive, or a ``min_coverage`` that is not between 0 and 1. Raises DataError for runs that cannot be read or
    compared: unfinished (unless ``allow_incomplete``), targets known and different, no common prompts, an unknown data
    set, pairs under ``min_coverage`` of the larger run; and under ``strict`` also for any lost prompt, an unknown
    target, and unusable gates.
    """
    margin = margin_of(margin)
    require_coverage(min_coverage)
    datasets = None if datasets is None else listed(datasets)
    named = (run_a, run_b, earlier, controls, () if baseline is None else baseline, sessions_a, sessions_b)
    opened = [[open_run(run, allow_incomplete) for run in listed(group)] for group in named]
    if evaluation is not None:
        opened, protocol = of_evaluation(opened, evaluation, protocol)
    (a,), (b,), others, control_runs, baselines, again_a, again_b = opened
    plain = next(iter(baselines), None)
    for run in (a, *control_runs):
        require_same_target(run, b, strict=strict)
    asked = protocol or metric
    protocol, estimand = headline_of(a, b, protocol, metric, control_runs)
    chosen_over = () if asked else sorted((protocols(a) & protocols(b)) - {protocol})
    everything = load_sound(a, protocol), load_sound(b, protocol)
    first, second = (pick(evaluated, datasets) for evaluated in everything)
    pairs = pair(first, second, min_coverage=min_coverage, strict=strict)
    overall = of_pairs(pairs.frame, estimand, margin=margin)
    absent, full_set = missing(pairs), bounds(pairs, estimand, most_tokens(a, b, pairs))
    names = sorted({*pairs.frame["dataset"].unique(), *pairs.lost["dataset"].unique()}, key=natural)
    adjusted = adjust([of_pairs(pairs.frame, estimand, name, margin) for name in names])
    by_dataset = dict(zip(names, adjusted, strict=True))
    balanced = balanced_mean(pairs.frame, estimand, margin)
    further = [of_pairs(pairs.frame, other, margin=margin) for other in HEADLINES[protocol] if other != estimand]
    joined = of_questions(pairs.frame, margin) if protocol != "prefix" else None
    in_all = len({name for evaluated in everything for name in evaluated.prompts["dataset"].unique()})
    declaration = declare(
        pairs,
        (a, b, *others),
        hypothesis=hypothesis,
        metric=estimand,
        metric_declared=metric is not None,
        margin=margin,
        picked=datasets if datasets and len(set(datasets)) < in_all else None,
        chosen_over=chosen_over,
    )
    third = [pick(load_sound(run, protocol), datasets) for run in control_runs]
    arm_a, arm_b, position_difference = positions(first, second, pairs)
    everywhere = anchors(first, second, pairs, overall)
    label_a, label_b = labels(a, b)
    rows = compare_arms(a, b, protocol)
    published = published_for(a.manifest.target, _temperature(a, protocol), by_dataset)
    histories = load_history(a), load_history(b)
    other, not_shown = _other_protocols(a, b, protocol, datasets)
    gates_a, gates_b, unusable = _gates(first, second, strict)
    gain = gain_by_spread(pairs, gates_a, gates_b)
    for more_a, more_b, _ in other.values():
        if not (gates_a or gates_b or unusable):  # decoding logs none
            gates_a, gates_b, unusable = _gates(more_a, more_b, strict)
    # speed is of decoding, tau of whole answers, whatever protocol the headline is of
    by_protocol = {protocol: (first, second, pairs), **other}
    answers = next(by_protocol[name] for name in ("generate", "replay", "prefix") if name in by_protocol)
    text = outputs(*answers)
    against = against_baseline(plain, a, b, answers[0].protocol) if plain is not None else None
    return Comparison(
        a=ArmSummary("A", a.name, label_a, a.manifest, arm_a, gates_a, histories[0], reference_of(a)),
        b=ArmSummary("B", b.name, label_b, b.manifest, arm_b, gates_b, histories[1], reference_of(b)),
        protocol=protocol,
        declaration=declaration,
        overall=overall,
        others=(
            *further,
            *(e for e in (joined, balanced, everywhere and everywhere.overall) if e),
            *_headlines(other, declaration),
        ),
        by_dataset=by_dataset,
        by_seen=by_seen(pairs.frame, estimand, margin),
        heterogeneity=heterogeneity(pairs.frame, by_dataset),
        interactions=interactions(pairs.frame, estimand),
        datasets=tuple(dataset_facts(name, pairs, a.manifest, b.manifest, protocol) for name in names),
        position_difference=position_difference,
        speed=speed(*answers, (again_a, again_b)),
        outputs=text,
        throughput=throughput(a, b),
        published=published,
        benchmarks=benchmark_table(*answers, _temperature(a, answers[0].protocol), plain),
        controls=compare_controls(first, second, third, estimand, min_coverage, strict),
        gain=gain,
        pairs=pairs,
        fairness=rows,
        differences=design_differences(a.manifest, b.manifest),
        cautions=(
            *_same_run(a, b),
            *_unfinished(a, b),
            *exploration.cautions_of(declaration, in_all),
            *_lost(pairs),
            *missing_cautions(absent, full_set, overall.estimate),
            *disagreement(overall, balanced, by_dataset),
            *lossless.cautions_of(text, (label_a, label_b)),
            *texts.cautions_of(answers[2], (text.a.mean_tokens, text.b.mean_tokens), (label_a, label_b)),
            *(against.cautions if against is not None else ()),
            *cautions_of(rows),
            *(c for run, history in zip((a, b), histories, strict=True) for c in health(run, history)),
            *below_published(published, by_dataset),
            *below_floor([(label_a, first), (label_b, second)], [*control_runs, *([plain] if plain else [])], estimand),
            *unusable,
            *not_shown,
            caution("one-seed"),
        ),
        baseline=against,
        missing=absent,
        full_set=full_set,
        anchors=everywhere,
        changes=changes(pairs.frame),
        shift=shift(pairs.frame),
        sequential=monitor(a, b, pairs) if sequential else None,
        explained=explained(first, pairs),
        headroom=tuple(h for side, of in (("A", first), ("B", second)) if (h := headroom(side, of, pairs))),
    )


_Paired = tuple[Evaluated, Evaluated, Pairs]


def _other_protocols(
    a: Run, b: Run, protocol: str, datasets: Sequence[str] | None
) -> tuple[Mapping[str, _Paired], tuple[Caution, ...]]:
    """Both arms and their own pairs under each other protocol that both runs have; and why one is not shown."""
    found: dict[str, _Paired] = {}
    not_shown = []
    for other in HEADLINES:
        if other != protocol and other in protocols(a) & protocols(b):
            try:
                first, second = (pick(load_sound(run, other), datasets) for run in (a, b))
                found[other] = first, second, pair(first, second, min_coverage=0)
            except DataError as error:
                not_shown.append(caution("other-protocol", protocol=other, reason=error))
    return found, tuple(not_shown)


def _headlines(others: Mapping[str, _Paired], declared: Declaration) -> tuple[Estimate, ...]:
    """The other protocols' headlines over their own pairs, one of each metric that is not the headline's own. The
    margin, in the unit of another metric, does not apply to them."""
    found: dict[str, Estimate] = {}
    of_protocol = next(protocol for protocol, metrics in HEADLINES.items() if declared.metric in metrics)
    for protocol, (_, _, pairs) in others.items():
        metric = HEADLINES[protocol][0]
        if metric.key in found or metric in HEADLINES[of_protocol]:
            continue
        found[metric.key] = of_pairs(pairs.frame, metric)
        if declared.margin is not None:
            told = caution("no-margin", declared=declared.metric.name, metric=metric.name)
            found[metric.key] = replace(found[metric.key], cautions=(*found[metric.key].cautions, told))
    return tuple(found.values())


def _gates(a: Evaluated, b: Evaluated, strict: bool) -> tuple[Gates | None, Gates | None, tuple[Caution, ...]]:
    """Both arms' gates; if either is unusable, neither, with a caution."""
    summaries = summarise(a), summarise(b)
    unusable = tuple(f for f in summaries if isinstance(f, Caution))
    if unusable and strict:
        raise DataError(f"{unusable[0].text} --strict rejects such runs")
    first, second = (None if unusable or isinstance(f, Caution) else f for f in summaries)
    return first, second, unusable


def _temperature(run: Run, protocol: str) -> float:
    settings = [e.settings for e in run.manifest.evaluations.values() if e.protocol == protocol]
    return float(settings[0].get("temperature") or 0.0) if settings else 0.0


def _same_run(a: Run, b: Run) -> tuple[Caution, ...]:
    """A caution if both are the same run: equal bytes in every part."""
    parts = [sorted((p.file, p.sha256) for listed in run.manifest.tables.values() for p in listed) for run in (a, b)]
    return (caution("same-run"),) if parts[0] and parts[0] == parts[1] else ()


def _unfinished(*runs: Run) -> tuple[Caution, ...]:
    return tuple(
        caution("unfinished", run=run.name, status=run.manifest.status)
        for run in runs
        if run.manifest.status != "complete"
    )


def _lost(pairs: Pairs) -> tuple[Caution, ...]:
    if pairs.lost.empty:
        return ()
    counts = pairs.lost["reason"].value_counts().sort_index()
    reasons = ", ".join(f"{count} {reason}" for reason, count in counts.items())
    total = len(pairs.frame) + len(pairs.lost)
    return (caution("pairs-lost", n=len(pairs.lost), total=total, reasons=reasons),)
