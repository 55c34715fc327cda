"""The sentences and tables of a report on several trainings per arm."""

from __future__ import annotations

from collections.abc import Mapping

from analysis import wording
from analysis.comparison.seed_study import SeedComparison
from analysis.report.answers import facts
from analysis.report.markdown import table
from analysis.report.sections.overview import effective
from analysis.stats.method import LEVEL
from analysis.stats.seeds import FEWEST_SEEDS, Crossed
from analysis.wording import counted, interval, number, p_value, signed


def headline(s: SeedComparison) -> str:
    """The conclusion over seeds and prompts, in one sentence."""
    e = s.overall.estimate
    arms = [(s.label_a, e.mean_a), (s.label_b, e.mean_b)]
    runs = f"{len(s.runs_a)} and {len(s.runs_b)} trainings"
    if s.overall.design == "one run":
        arm, count = ("B", len(s.runs_b)) if len(s.runs_a) == 1 else ("A", len(s.runs_a))
        runs = f"{count} trainings of {arm} against one run"
    return wording.headline(e.verdict, e.estimand, arms, f"{facts(e)}, {runs}")


def meaning(s: SeedComparison) -> str:
    """What the interval covers and what it does not cover."""
    few = len(s.seeds) < FEWEST_SEEDS or 1 < min(len(s.runs_a), len(s.runs_b)) < FEWEST_SEEDS
    few_seeds = f"A verdict about training requires {FEWEST_SEEDS} seeds per arm. " if few else ""
    arms = "" if s.overall.design != "one run" else " (of the arm that was trained several times)"
    return (
        f"{few_seeds}The interval covers the choice of prompts and of training seeds{arms}, crossed: every training "
        "answered every prompt. It does not cover another corpus, recipe or target, or prompts of another kind."
    )


def every_seed(s: SeedComparison) -> str:
    """One training per row: with its partner and its difference, or with its mean if the arms are independent."""
    c = s.overall
    if c.design == "independent":
        rows = [("A", *row) for row in zip(s.runs_a, s.seeds_a, map(number, c.means_a), strict=True)]
        rows += [("B", *row) for row in zip(s.runs_b, s.seeds_b, map(number, c.means_b), strict=True)]
        return table(["arm", "run", "seed", "mean"], rows, numeric=1)
    runs_a, runs_b = (runs * len(s.seeds) if len(runs) == 1 else runs for runs in (s.runs_a, s.runs_b))
    cells = [
        (seed, a, b, number(e.mean_a), number(e.mean_b), signed(e.estimate), interval(e.lo, e.hi), effective(e))
        for seed, a, b, e in zip(s.seeds, runs_a, runs_b, s.per_seed, strict=True)
    ]
    headers = ["seed", "run of A", "run of B", "A", "B", "difference", "95% interval over prompts", "effective"]
    return table(headers, cells, numeric=5)


def seeds_by_datasets(s: SeedComparison) -> str | None:
    """Differences, one seed per row and one data set per column; None for independent arms and a single data set."""
    if not s.overall.deltas or len(s.by_dataset) < 2:
        return None
    columns = [c.deltas for c in s.by_dataset.values()]
    rows = [(seed, *(signed(column[i], 2) for column in columns)) for i, seed in enumerate(s.seeds)]
    rows.append(("all", *(signed(c.estimate.estimate, 2) for c in s.by_dataset.values())))
    return table(["seed", *s.by_dataset], rows, numeric=len(columns))


def without_each(s: SeedComparison) -> str | None:
    """The overall estimate without each seed."""
    if not s.without:
        return None
    rows = [
        (f"{left.arm}, seed {left.seed}" if left.arm else left.seed, signed(left.estimate.estimate),
         interval(left.estimate.lo, left.estimate.hi), p_value(left.estimate.p), effective(left.estimate))
        for left in s.without
    ]  # fmt: skip
    return table(["without seed", "difference", "95% interval", "p", "effective"], rows, numeric=4)


def parts(s: SeedComparison) -> str | None:
    """The components of the variance."""
    p = s.overall.parts
    if p is None or p.total <= 0:
        return None
    clusters = f"{s.overall.estimate.n_clusters:,} clusters, {p.effective:.1f} effective"
    rows = [
        ("training seeds", number(p.seeds**0.5), number(p.df_seeds, 1)),
        (f"prompts ({clusters})", number(p.prompts**0.5), number(p.df_prompts, 1)),
        ("seeds by prompts (in both rows above)", number(p.residual**0.5), number(p.df_seeds * p.df_prompts, 1)),
        ("seeds and prompts together", number(p.total**0.5), number(p.df, 1)),
    ]  # fmt: skip
    return table(["part", "standard error", "degrees of freedom"], rows, numeric=2)


def interval_made_of(s: SeedComparison) -> str:
    """Which of the two tests determines the interval, and what would narrow it."""
    p = s.overall.parts
    if p is None or p.total <= 0:
        return ""
    of_seeds, both = (f"±{number(half)}" for half in p.half_widths(LEVEL))
    wider = "seeds alone" if p.half_widths(LEVEL)[0] > p.half_widths(LEVEL)[1] else "seeds and prompts"
    more = "seeds" if p.seeds > p.prompts else "prompts"
    return (
        f"The t interval over seeds alone is {of_seeds}, over seeds and prompts {both}. The wider one is reported, "
        f"here over {wider}. More {more} would narrow it most."
    )


def seeds_that_would_do(s: SeedComparison) -> str:
    """Number of seeds that detect a difference as large as the observed one."""
    if s.needed is None:
        return ""
    n = s.needed
    what = f"a true difference as large as the one observed ({number(n.effect)}) with probability {n.power:g}"
    if n.seeds is None:
        return (
            f"On these prompts no number of seeds detects {what}; more prompts are needed (python -m analysis.power)."
        )
    return f"On these prompts {counted(n.seeds, 'seed')} per arm detect {what}, if the spread stays the same."


def by_dataset(s: SeedComparison) -> str:
    """Per data set, over seeds and prompts, then the mean with equal weight per data set."""
    members = dict(s.by_dataset)
    if s.balanced is not None:
        members["all, equal weight"] = s.balanced
    return _family("data set", members)


def by_seen(s: SeedComparison) -> str | None:
    """By whether training saw the kind of prompt; None if that is the same for all prompts."""
    return _family("prompts", s.by_seen) if len(s.by_seen) > 1 else None


def _family(kind: str, members: Mapping[str, Crossed]) -> str:
    headers = [
        kind,
        "A",
        "B",
        "difference",
        "95% interval",
        "p",
        "p, Holm",
        "prompts",
        "clusters",
        "effective",
        "verdict",
    ]
    rows = [
        (name, number(e.mean_a), number(e.mean_b), signed(e.estimate), interval(e.lo, e.hi), p_value(e.p),
         p_value(e.p_adjusted), f"{e.n_pairs:,}", f"{e.n_clusters:,}",
         effective(e), e.verdict)
        for name, c in members.items()
        for e in [c.estimate]
    ]  # fmt: skip
    return table(headers, rows, numeric=10)


def cautions(s: SeedComparison) -> list[str]:
    """Every caution once, after the data set or kind of prompts it concerns."""
    lines = [x.text for x in (*s.cautions, *s.overall.estimate.cautions)]
    named = [("Equal weight per data set", s.balanced)] if s.balanced else []
    for name, c in [*named, *s.by_dataset.items(), *(s.by_seen.items() if len(s.by_seen) > 1 else ())]:
        texts = [x.text for x in c.estimate.cautions if x not in s.overall.estimate.cautions]
        lines += [text if name in text else f"{name}: {text}" for text in texts]
    if s.prompts_lost:
        lines.append(f"{counted(s.prompts_lost, 'prompt')} excluded (no value in every run).")
    return list(dict.fromkeys(lines))
