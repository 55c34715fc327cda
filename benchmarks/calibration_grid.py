"""Where verdicts hold: ``python benchmarks/calibration_grid.py [--studies 400] [--keep FILE] [--cells 0 1 ...]``.

A map over ties x skew x imbalance of clusters x clusters of a data set x number of data sets (216 cells). In each study
the arms are the same; the estimate is the one that a report leads with (the mean of all prompts for one data set, the
mean with equal weight per data set for several). A cell is *kept* if at most 6% of studies have a false verdict without
a caution, beyond Monte-Carlo error. A cell above that is simulated again with five times as many new studies, which
alone count: the largest of 216 noisy rates says little. With ``--keep``, cells that are done are lines of FILE.

Writes ``reports/validation-grid.md``, ``.csv`` and the map ``.png`` when all cells run in full; ends with a JSON line.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from scipy import special

from analysis.errors import Parser, run_command
from analysis.report.markdown import table
from analysis.report.plots import style
from analysis.runlog.writing import write_atomic
from analysis.stats.cluster import partition
from analysis.stats.datasets import balanced_mean
from analysis.stats.estimate import Estimate, of_pairs
from analysis.wording import ACCEPTED_LENGTH, Verdict

STUDIES, AGAIN = 400, 5
MOST = 0.06
REPORTS = Path(__file__).parents[1] / "reports"
TIES = (0.0, 0.5, 0.85)
SKEWS = ("symmetric", "skewed")
SIZES = ("equal", "one of 30%", "geometric")
CLUSTERS = (6, 12, 24, 60)
DATASETS = (1, 3, 6)
#: Cautions about how few or how skewed the units are.
ABOUT_UNITS = {"few-units", "skewed", "zero-variance", "dominated", "few-differ", "small-datasets"}
PER_CLUSTER = 4  # prompts, on average


@dataclass(frozen=True)
class Cell:
    """One design: ``clusters`` in each of ``datasets``."""

    ties: float
    skew: str
    sizes: str
    clusters: int
    datasets: int


@dataclass(frozen=True)
class Found:
    """Shares of the studies of a cell; ``lower``: 95% lower bound of ``unwarned``, the false verdicts without a
    caution."""

    ties: float
    skew: str
    sizes: str
    clusters: int
    datasets: int
    studies: int
    verdicts: float
    unwarned: float
    lower: float
    cautioned: float
    refused: float

    @property
    def kept(self) -> bool:
        return self.lower <= MOST


CELLS = tuple(Cell(*facts) for facts in product(TIES, SKEWS, SIZES, CLUSTERS, DATASETS))


def sizes_of(cell: Cell) -> NDArray[np.int64]:
    """(clusters,) prompts of each cluster of a data set, about PER_CLUSTER on average."""
    n, total = cell.clusters, PER_CLUSTER * cell.clusters
    if cell.sizes == "equal":
        return np.full(n, PER_CLUSTER)
    if cell.sizes == "one of 30%":
        rest = max(1, round(0.7 * total / (n - 1)))
        return np.array([round(3 / 7 * rest * (n - 1)), *[rest] * (n - 1)])
    shares = 0.85 ** np.arange(n)
    return np.maximum(1, np.rint(total * shares / shares.sum())).astype(np.int64)


def differences(rng: np.random.Generator, cell: Cell, index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Integer differences of mean 0 of prompts in clusters ``index``: half of the variance is the cluster's. Ties are
    whole clusters for the half of them, and prompts for the rest; skewed: many small losses and a few large gains."""
    n = int(index.max()) + 1

    def draw(size: int) -> NDArray[np.float64]:
        return rng.normal(0, 1, size) if cell.skew == "symmetric" else rng.exponential(1, size) - 1

    values = 3 * (math.sqrt(0.5) * draw(n)[index] + math.sqrt(0.5) * draw(index.size))
    alike = 1 - math.sqrt(1 - cell.ties)
    moved = (rng.random(n) >= alike)[index] & (rng.random(index.size) >= alike)
    # rounding by chance keeps the mean at 0, which rounding to the nearest would not for skewed values
    return np.where(moved, np.floor(values + rng.random(index.size)), 0).astype(np.int64)


def simulate(cell: Cell, studies: int, seed: int) -> Found:
    """The cell's shares over ``studies``."""
    rng = np.random.default_rng([seed, CELLS.index(cell)])
    sizes = sizes_of(cell)
    one = np.repeat(np.arange(cell.clusters), sizes)
    ids = np.concatenate([one + i * cell.clusters for i in range(cell.datasets)])
    frame = pd.DataFrame({"dataset": np.repeat([f"d{i}" for i in range(cell.datasets)], one.size), "cluster": ids})
    frame = frame.assign(steps_a=1, steps_b=1, tokens_a=500)
    index = partition(frame["cluster"]).index
    seen = []
    for _ in range(studies):
        e = _headline(frame.assign(tokens_b=500 + differences(rng, cell, index)), cell)
        wrong = e.verdict in (Verdict.A_BETTER, Verdict.B_BETTER)
        warned = any(c.code in ABOUT_UNITS for c in e.cautions)
        seen.append((wrong, wrong and not warned, warned, e.withheld or e.lo is None))
    verdicts, unwarned, cautioned, refused = np.mean(seen, axis=0).tolist()
    k = round(unwarned * studies)
    lower = float(special.betaincinv(k, studies - k + 1, 0.05)) if k else 0.0
    return Found(**asdict(cell), studies=studies, verdicts=verdicts, unwarned=unwarned, lower=lower,
                 cautioned=cautioned, refused=refused)  # fmt: skip


def _headline(frame: pd.DataFrame, cell: Cell) -> Estimate:
    found = of_pairs(frame, ACCEPTED_LENGTH) if cell.datasets == 1 else balanced_mean(frame, ACCEPTED_LENGTH)
    assert found is not None
    return found


def settled(cell: Cell, studies: int) -> Found:
    """The cell's shares; a cell that looks wrong is asked again, and only the new studies count."""
    found = simulate(cell, studies, 0)
    return found if found.unwarned <= MOST else simulate(cell, AGAIN * studies, 1)


def kept_or_settled(cell: Cell, studies: int, keep: Path | None) -> Found:
    """As :func:`settled`, read from ``keep`` where it is there, and else added to it."""
    key = asdict(cell)
    for line in keep.read_text().splitlines() if keep is not None and keep.exists() else ():
        done = json.loads(line)
        if key.items() <= done.items() and done["studies"] >= studies:
            return Found(**done)
    found = settled(cell, studies)
    if keep is not None:
        with keep.open("a") as file:
            file.write(json.dumps(asdict(found)) + "\n")
    return found


def picture(found: Sequence[Found]) -> Figure:
    """The map: a panel per number of data sets, a row per ties and skew, a column per sizes and number of clusters."""
    kinds = ("kept", "mostly with a caution", "mostly no verdict by rule", "above 6% without a caution")
    colours = ("#0072B2", "#E69F00", "#BBBBBB", "#D55E00")
    by_cell = {(f.datasets, f.ties, f.skew, f.sizes, f.clusters): f for f in found}
    rows, columns = list(product(TIES, SKEWS)), list(product(SIZES, CLUSTERS))
    with style.house_style():
        figure = Figure(figsize=(style.WIDTH, 8.6))
        panels = figure.subplots(len(DATASETS), 1, sharex=True)
        for axes, datasets in zip(panels, DATASETS, strict=True):
            cells = [[by_cell[datasets, *row, *column] for column in columns] for row in rows]
            axes.imshow([[_kind(f) for f in line] for line in cells], cmap=ListedColormap(colours),
                        norm=BoundaryNorm(range(5), 4), aspect="auto")  # fmt: skip
            for y, line in enumerate(cells):
                for x, f in enumerate(line):
                    axes.text(x, y, f"{100 * f.unwarned:.0f}", ha="center", va="center", fontsize=8, color="white"
                              if _kind(f) in (0, 3) else style.INK)  # fmt: skip
            axes.set_title(f"{datasets} data set{'s' * (datasets > 1)}", loc="left")
            axes.set_yticks(range(len(rows)), [f"{100 * ties:.0f}% ties, {skew}" for ties, skew in rows])
            axes.grid(False)
        panels[-1].set_xticks(range(len(columns)), [f"{count}" for _, count in columns])
        for k, name in enumerate(SIZES):
            panels[-1].annotate(name, ((k + 0.5) / len(SIZES), 0), xytext=(0, -30), xycoords="axes fraction",
                                textcoords="offset points", ha="center")  # fmt: skip
        panels[-1].set_xlabel("clusters of a data set, by their sizes", labelpad=22)
        patches = [Patch(color=colour, label=kind) for colour, kind in zip(colours, kinds, strict=True)]
        figure.legend(handles=patches, loc="outside upper left", ncols=2)
    return figure


def _kind(f: Found) -> int:
    if not f.kept:
        return 3
    return 2 if f.refused > 0.5 else 1 if f.cautioned > 0.5 else 0


def report(found: Sequence[Found]) -> str:
    """``reports/validation-grid.md``: the counts, and the cells with most false verdicts."""
    wrong = [f for f in found if not f.kept]
    worst = sorted(found, key=lambda f: -f.unwarned)[:15]
    headers = ("data sets", "clusters of each", "sizes", "ties", "differences", "studies", "false verdicts",
               "without a caution", "95% lower bound", "cautioned", "no verdict by rule", "kept")  # fmt: skip
    rows = [
        (f.datasets, f.clusters, f.sizes, f"{100 * f.ties:.0f}%", f.skew, f"{f.studies:,}",
         *(f"{100 * x:.1f}%" for x in (f.verdicts, f.unwarned, f.lower, f.cautioned, f.refused)),
         "yes" if f.kept else "NO")
        for f in worst
    ]  # fmt: skip
    return (
        "# Where verdicts hold\n\n"
        f"{len(found)} designs, {found[0].studies:,} simulated studies or more in each; the arms are the same. "
        "A number in the map is the percentage of studies with a false verdict that no caution about few or skewed "
        f"units accompanies; 5% are promised, and a cell is kept up to {100 * MOST:.0f}%, beyond Monte-Carlo error. "
        f"{len(found) - len(wrong)} cells are kept, {len(wrong)} are not. Half of the variance of a difference is "
        f"its cluster's, and a cluster has {PER_CLUSTER} prompts on average. All cells: "
        "[validation-grid.csv](validation-grid.csv). Written by `python benchmarks/calibration_grid.py`.\n\n"
        "![Map of false verdicts](validation-grid.png)\n\n"
        "## The fifteen cells with most false verdicts without a caution\n\n" + table(headers, rows, numeric=7) + "\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python benchmarks/calibration_grid.py", description="A map of where verdicts hold.")
    parser.add_argument("--studies", type=int, default=STUDIES)
    parser.add_argument("--cells", type=int, nargs="*", metavar="N", help=f"0 to {len(CELLS) - 1}; all by default")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="JSON lines of cells that are done, to go on after a stop"
    )
    args = parser.parse_args(argv)
    started = time.process_time()
    chosen = CELLS if args.cells is None else [CELLS[i] for i in args.cells]
    console = Console(stderr=True)
    found = [kept_or_settled(cell, args.studies, args.keep) for cell in track(chosen, "cells", console=console)]
    if args.cells is None and args.studies >= STUDIES:
        write_atomic(REPORTS / "validation-grid.md", report(found).encode())
        write_atomic(REPORTS / "validation-grid.csv", style.csv(pd.DataFrame(map(asdict, found))).encode())
        write_atomic(REPORTS / "validation-grid.png", style.png(picture(found)))
    wrong = [asdict(f) for f in found if not f.kept]
    seconds = round(time.process_time() - started, 1)
    print(json.dumps({"benchmark": "calibration_grid", "cells": len(found), "not_kept": wrong, "cpu_s": seconds}))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
