"""The sentences and tables of the reports on several arms, and on several seeds per arm."""

from __future__ import annotations

from analysis import wording
from analysis.comparison.matrix import Matrix
from analysis.comparison.pairwise import Comparison
from analysis.comparison.seed_study import SeedComparison
from analysis.report.answers import facts
from analysis.report.markdown import table
from analysis.report.sections.overview import own_means
from analysis.stats.estimate import Estimate
from analysis.stats.seeds import FEWEST_SEEDS
from analysis.wording import counted, interval, number, p_value, signed


def matrix_headline(m: Matrix) -> str:
    """Which arms are better than the first, which worse, of which nothing is known."""
    first = m.comparisons[0].a.label
    words: dict[str, list[str]] = {}
    for c, e in zip(m.comparisons, m.overall, strict=True):
        words.setdefault(_against_first(e), []).append(f"{c.b.label} ({signed(e.estimate)})")
    told = [f"{word}: {', '.join(names)}" for word, names in words.items()]
    return f"Against {first}, {m.comparisons[0].estimand.name}: {'; '.join(told)}."


def _against_first(e: Estimate) -> str:
    return {"B better": "better", "A better": "worse"}.get(e.verdict, str(e.verdict))


def matrix_table(m: Matrix) -> str:
    """One arm a row, over all prompts."""
    headers = ["arm", "mean", "difference from the first", "95% interval", "p", "p, Holm", "pairs", "clusters"]
    first = m.comparisons[0]
    rows = [(f"{first.a.label} (first)", own_means(first.overall)[0], *[None] * 6, None)]
    rows += [
        (c.b.label, own_means(e)[1], signed(e.estimate), interval(e.lo, e.hi), p_value(e.p), p_value(e.p_adjusted),
         f"{e.n_pairs:,}", f"{e.n_clusters:,}", _against_first(e))
        for c, e in zip(m.comparisons, m.overall, strict=True)
    ]  # fmt: skip
    return table([*headers, "verdict"], rows, numeric=8)


def matrix_datasets(m: Matrix) -> str:
    """Data sets by arms."""
    rows = []
    for name in m.datasets:
        cells: list[str | None] = []
        for each in m.by_dataset:
            e = each.get(name)
            cells.append(
                None if e is None else f"{signed(e.estimate, 2)} ({interval(e.lo, e.hi, 2)}), {_against_first(e)}"
            )
        rows.append((name, *cells))
    return table(["data set", *(c.b.label for c in m.comparisons)], rows)


def matrix_cautions(m: Matrix) -> list[tuple[str, str]]:
    """Warnings of the comparisons, each once: (the arms that it is about, text)."""
    found: dict[str, list[str]] = {}
    for c in m.comparisons:
        for text in dict.fromkeys(x.text for x in c.cautions if x.code != "one-seed"):
            found.setdefault(text, []).append(c.b.label)
    return [(", ".join(arms), text) for text, arms in found.items()]


def pair_folder(c: Comparison) -> str:
    """Where the full report of one comparison of a matrix lies, inside the matrix's folder."""
    return f"{c.a.name}-vs-{c.b.name}"


def seeds_headline(s: SeedComparison) -> str:
    """The conclusion over seeds and prompts, in one sentence."""
    e = s.overall.estimate
    arms = [(s.label_a, e.mean_a), (s.label_b, e.mean_b)]
    runs = f"{len(s.runs_a)} and {len(s.runs_b)} trainings"
    return wording.headline(e.verdict, e.estimand, arms, f"{facts(e)}, {runs}")


def seeds_meaning(s: SeedComparison) -> str:
    """What the interval covers, and what is still not."""
    few = min(len(s.runs_a), len(s.runs_b)) < FEWEST_SEEDS
    told = f"With under {FEWEST_SEEDS} seeds per arm there is no verdict about training. " if few else ""
    return (
        f"{told}The interval covers the choice of prompts and of training seeds, crossed: every training answered "
        "every prompt. It does not cover another corpus, recipe or target, or prompts of another kind."
    )


def seeds_table(s: SeedComparison) -> str:
    """Every seed."""
    c = s.overall
    if c.paired:
        rows = [
            (seed, a, b, number(e.mean_a), number(e.mean_b), signed(e.estimate), interval(e.lo, e.hi))
            for seed, a, b, e in zip(s.seeds_a, s.runs_a, s.runs_b, s.per_seed, strict=True)
        ]
        headers = ["seed", "run of A", "run of B", "A", "B", "difference", "95% interval over prompts"]
        return table(headers, rows, numeric=4)
    of_a = [("A", *row) for row in zip(s.runs_a, s.seeds_a, map(number, c.means_a), strict=True)]
    of_b = [("B", *row) for row in zip(s.runs_b, s.seeds_b, map(number, c.means_b), strict=True)]
    return table(["arm", "run", "seed", "mean"], [*of_a, *of_b], numeric=1)


def parts_sentence(s: SeedComparison) -> str | None:
    """What the variance consists of."""
    parts = s.overall.parts
    if parts is None or parts.total <= 0:
        return None
    sds = [number(part**0.5) for part in (parts.seeds, parts.prompts, parts.residual, parts.total)]
    return (
        f"Standard error {sds[3]} tokens: from seeds {sds[0]}, from clusters of prompts {sds[1]}, less what is in both "
        f"({sds[2]}); {number(parts.df, 1)} degrees of freedom. More "
        + ("seeds" if parts.seeds > parts.prompts else "prompts")
        + " would narrow the interval most."
    )


def seeds_datasets(s: SeedComparison) -> str:
    """Per data set, over seeds and prompts."""
    headers = ["data set", "A", "B", "difference", "95% interval", "p", "p, Holm", "prompts", "clusters", "verdict"]
    found = [(name, c.estimate) for name, c in s.by_dataset.items()]
    rows = [
        (name, number(e.mean_a), number(e.mean_b), signed(e.estimate), interval(e.lo, e.hi), p_value(e.p),
         p_value(e.p_adjusted), f"{e.n_pairs:,}", f"{e.n_clusters:,}", e.verdict)
        for name, e in found
    ]  # fmt: skip
    return table(headers, rows, numeric=9)


def seeds_cautions(s: SeedComparison) -> list[str]:
    """Every warning once."""
    found = [
        *s.cautions,
        *s.overall.estimate.cautions,
        *(x for c in s.by_dataset.values() for x in c.estimate.cautions),
    ]
    told = list(dict.fromkeys(x.text for x in found))
    if s.prompts_lost:
        told.append(f"{counted(s.prompts_lost, 'prompt')} without a value in every run count nowhere.")
    return told
