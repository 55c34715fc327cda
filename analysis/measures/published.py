"""Published drafters of the same target, as a scale for the arms of a comparison.

``data/published.csv`` contains tau and speed-up as reported by the authors, with the source of each row. Hardware,
software and prompts differ. Targets and data sets are matched by name, spelling aside.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

import pandas as pd

from analysis.cautions import Caution, caution
from analysis.measures.benchmark_names import spelling
from analysis.runlog.manifest import Target
from analysis.stats.estimate import Estimate
from analysis.wording import TAU_POOLED

#: "Clearly below" means below this share of the published value.
CLEARLY = 0.8
#: The authors' mean over all their data sets. It is shown but not compared, because the runs may lack some of them.
AVERAGE = "average"


def read_published() -> pd.DataFrame:
    """The table: target, method, temperature, dataset, tau, speedup, hardware, settings, source. ``settings`` of a row
    :data:`AVERAGE` says what it is an average of."""
    with resources.files("analysis.measures").joinpath("data/published.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


def published_for(target: Target | None, temperature: float, datasets: Mapping[str, Estimate]) -> pd.DataFrame:
    """Published rows of this target at this temperature for these data sets: the table's columns, ``dataset`` in
    the run's spelling, and the authors' averages last. Empty if no row matches the target and a data set."""
    table = read_published()
    name = spelling(target.id.rsplit("/", 1)[-1]) if target else ""
    rows = table[(table["target"].map(spelling) == name) & (table["temperature"] == temperature)]
    ours = {spelling(name): name for name in datasets}
    average = rows["dataset"] == AVERAGE
    matched = rows[~average].assign(dataset=rows["dataset"].map(lambda name: ours.get(spelling(name))))
    matched = matched.dropna(subset=["dataset"]).sort_values(["dataset", "method"])
    return pd.concat([matched, rows[average]], ignore_index=True) if len(matched) else matched


def below_published(rows: pd.DataFrame, datasets: Mapping[str, Estimate]) -> tuple[Caution, ...]:
    """A caution per published method if the tau of both arms, averaged over its data sets, is clearly below."""
    cautions = []
    for method, of_method in rows[rows["dataset"] != AVERAGE].groupby("method"):
        common = [name for name in of_method["dataset"] if datasets[name].estimand is TAU_POOLED]
        means = [(datasets[name].mean_a, datasets[name].mean_b) for name in common]
        known = [(a, b) for a, b in means if a is not None and b is not None]
        if not known or len(known) < len(of_method):
            continue
        a, b = (sum(column) / len(known) for column in zip(*known, strict=True))
        theirs = float(of_method["tau"].mean())
        if max(a, b) < CLEARLY * theirs:
            source = str(of_method["source"].iloc[0])
            cautions.append(
                caution(
                    "below-published",
                    method=method,
                    a=a,
                    b=b,
                    published=theirs,
                    datasets=", ".join(common),
                    source=source,
                )
            )
    return tuple(cautions)
