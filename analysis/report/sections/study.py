"""The sentences and tables of the report on several arms."""

from __future__ import annotations

from analysis.comparison.matrix import Matrix
from analysis.comparison.pairwise import Comparison
from analysis.report.markdown import table
from analysis.report.sections.overview import effective, own_means
from analysis.stats.estimate import Estimate
from analysis.stats.ranking import Ranking
from analysis.wording import Verdict, interval, number, p_value, percent, signed


def matrix_headline(m: Matrix) -> str:
    """The arms by verdict against the first."""
    first = m.comparisons[0].a.label
    words: dict[str, list[str]] = {}
    for c, e in zip(m.comparisons, m.overall, strict=True):
        words.setdefault(_against_first(e), []).append(f"{c.b.label} ({signed(e.estimate)})")
    groups = [f"{word}: {', '.join(names)}" for word, names in words.items()]
    return f"Against {first}, {m.comparisons[0].estimand.name}: {'; '.join(groups)}."


def _against_first(e: Estimate) -> str:
    return {"B better": "better", "A better": "worse"}.get(e.verdict, str(e.verdict))


def matrix_table(m: Matrix) -> str:
    """One arm per row, over all prompts."""
    headers = ["arm", "mean", "difference from the first", "95% interval", "p", "p, Holm", "pairs", "clusters"]
    first = m.comparisons[0]
    rows = [(f"{first.a.label} (first)", own_means(first.overall)[0], *[None] * 8)]
    rows += [
        (c.b.label, own_means(e)[1], signed(e.estimate), interval(e.lo, e.hi), p_value(e.p), p_value(e.p_adjusted),
         f"{e.n_pairs:,}", f"{e.n_clusters:,}", effective(e), _against_first(e))
        for c, e in zip(m.comparisons, m.overall, strict=True)
    ]  # fmt: skip
    return table([*headers, "effective", "verdict"], rows, numeric=9)


def matrix_datasets(m: Matrix) -> str:
    """Data sets by arms."""
    rows = []
    for name in m.datasets:
        cells: list[str | None] = []
        for each in m.by_dataset:
            e = each.get(name)
            cells.append(None if e is None else f"{signed(e.estimate, 2)} ({_units(e)}), {_against_first(e)}")
        rows.append((name, *cells))
    return table(["data set", *(c.b.label for c in m.comparisons)], rows)


def _units(e: Estimate) -> str:
    return f"{interval(e.lo, e.hi, 2)}; {effective(e)}"


def ranking_table(r: Ranking) -> str:
    """One arm per row, the largest mean first: letters, and how often it takes each place."""
    places = [f"place {place}" for place in range(1, len(r.arms) + 1)] if r.draws else []
    rows = [
        (name, number(mean), letters, *(percent(share) for share in shares))
        for name, mean, letters, shares in zip(r.arms, r.means, r.letters, r.ranks or [()] * len(r.arms), strict=True)
    ]
    return table(["arm", "mean", "letters", *places], rows, numeric=2 + len(places))


def ranking_pairs(r: Ranking) -> str:
    """One pair of arms per row."""
    rows = []
    for pair in r.pairs:
        e, names = pair.estimate, (r.arms[pair.first], r.arms[pair.second])
        better = {Verdict.B_BETTER: names[0], Verdict.A_BETTER: names[1]}.get(e.verdict)
        verdict = f"{better} better" if better else str(e.verdict)
        cells = signed(e.estimate), interval(e.lo, e.hi), p_value(e.p), p_value(e.p_adjusted), effective(e), verdict
        rows.append((f"{names[0]} - {names[1]}", *cells))
    return table(["pair", "difference", "95% interval", "p", "p, Holm", "effective", "verdict"], rows, numeric=6)


def matrix_cautions(m: Matrix) -> list[tuple[str, str]]:
    """Cautions of the comparisons, each once: (names of the arms, text)."""
    arms_by_text: dict[str, list[str]] = {}
    for c in m.comparisons:
        for text in dict.fromkeys(x.text for x in c.cautions if x.code != "one-seed"):
            arms_by_text.setdefault(text, []).append(c.b.label)
    return [(", ".join(arms), text) for text, arms in arms_by_text.items()]


def pair_folder(c: Comparison) -> str:
    """The folder of one comparison's full report inside the folder of a matrix."""
    return f"{c.a.name}-vs-{c.b.name}"
