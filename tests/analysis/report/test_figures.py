"""Every figure that the package can draw, and every text in it: readable alone, without markup, inside the picture.

Figures are found in the source: each ``Plot(NAME, ...)`` under ``analysis/`` must be drawn here.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib.text
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator
from matplotlib.transforms import Bbox

import analysis
from analysis import compare_runs
from analysis.comparison.factorial import compare_factorial
from analysis.comparison.matrix import compare_many
from analysis.comparison.scaling import compare_scaling
from analysis.comparison.seed_study import compare_seeds
from analysis.measures.serving import serving
from analysis.report.plots.plan import draw_plan
from analysis.report.plots.serving import draw_all as draw_serving
from analysis.report.plots.style import Plot, cut, png
from analysis.stats.planning import Spread, plan
from tests.analysis.comparison.test_factorial import factorial
from tests.analysis.comparison.test_scaling import a_run
from tests.analysis.measures.test_serving import two_arms, write
from tests.analysis.measures.test_speed import timing
from tests.analysis.runs import prompts_of, simulated, write_run

PACKAGE = Path(analysis.__file__).parent
RUNS = PACKAGE.parent / "runs"
#: Axes that count or compare, and so have no unit.
WITHOUT_UNIT = {
    "P(first k accepted)",
    "concurrent requests",
    "contribution share",
    "cost",  # in whatever unit the user gives costs
    "draft layers",
    "draft slot",
    "optimizer step",
    "output tokens per second",
    "prompts",
    "ratio B / A per block",
    "throughput / plain",
    "token of the answer",
    "training seed",
    "training seeds per arm",
}
DPI = 150
UNIT = re.compile(
    r"\(.+\)|pairs?, [\d,]+ without a difference|^draft position k, with the steps at risk|^difference, B - A$"
)
MARKUP = re.compile(r"\$|\\|[{}]|_|\*\*|`|<\w+>|\bnan\b|\bNone\b|\bTrue\b")
#: Names of a user, which may hold anything.
NASTY = ("dflash_$\\beta$_{v2}", "a drafter with a name far too long for any legend of any figure at all, really")


def shipped(*names: str) -> list[str]:
    return [str(RUNS / name) for name in names]


def labelled(label: str, **config: Any) -> Callable[[Any], None]:
    def change(manifest: Any) -> None:
        manifest.label = label
        manifest.drafter.config.update(config)

    return change


def of_replay(_: Path) -> tuple[list[Plot], list[str]]:
    found = compare_runs(*shipped("study-dflash", "study-dflash2"))
    return found.figures(), [found.a.label, found.b.label]


def of_gates(_: Path) -> tuple[list[Plot], list[str]]:
    found = compare_runs(*shipped("study-dflash", "study-dynadflash"))
    return found.figures(), [found.a.label, found.b.label]


def of_users_names(root: Path) -> tuple[list[Plot], list[str]]:
    """Two arms, data sets, timings and trials with names of markup, and too long ones."""
    datasets = {"$x_1$ {set}": (40, 20), "the data set of the longest name that anyone ever gave to one": (40, 20)}
    runs = []
    for number, (name, prompts) in enumerate(zip(NASTY, simulated(datasets, steps=5), strict=True)):
        rows = [
            timing(p["prompt_id"], mode, seconds * (1 + 0.01 * i), 9)
            for i, p in enumerate(prompts)
            for mode, seconds in (("plain", 4.0), ("draft", 2.0 - number / 2))
        ]
        trials = [
            {"trial": i, "block": i, "arm": "x", "status": "ok", "concurrency": c, "tokens_per_s": 50.0 + i}
            for c in (1, 8)
            for i in range(3)
        ]
        more = {"protocol": "generate", "fusion": ("concat", "gated")[number], "timings": rows, "trials": trials}
        runs.append(write_run(root / "ab"[number], prompts, change=labelled(name), **more))
    return compare_runs(*runs).figures(), list(NASTY)


def of_many_pairs(root: Path) -> tuple[list[Plot], list[str]]:
    rng = np.random.default_rng(0)
    runs = [
        write_run(root / name, prompts_of(rng.poisson(2, 10_001).clip(0, 7).tolist()), gates=False, history=False)
        for name in ("one", "two")
    ]
    found = compare_runs(*runs)
    return found.figures()[:2], [found.a.label, found.b.label]


def of_values(root: Path) -> tuple[list[Plot], list[str]]:
    tables = []
    for name in ("eagle", "sps"):
        rows = [f"p{i},{100 + 7 * i % 13 + len(name)}" for i in range(30)]
        (root / f"{name}.csv").write_text("\n".join(["prompt_id,latency_ms", *rows]), encoding="utf-8")
        tables.append(root / f"{name}.csv")
    return compare_runs(*tables, value="latency_ms", unit="ms").figures(), ["eagle", "sps"]


def of_arms(_: Path) -> tuple[list[Plot], list[str]]:
    found = compare_many(shipped("study-next-token", "study-lookup", "study-dflash2"))
    return found.figures(), [c.b.label for c in found.comparisons] + [found.comparisons[0].a.label]


def of_seeds(_: Path) -> tuple[list[Plot], list[str]]:
    names = ("study-dflash", "study-dflare")
    arms = [shipped(name, f"{name}-seed1", f"{name}-seed2") for name in names]
    found = compare_seeds(*arms, protocol="prefix")
    return found.figures(), [found.label_a, found.label_b]


def of_unpaired_seeds(_: Path) -> tuple[list[Plot], list[str]]:
    one, other = shipped("study-dflash", "study-dflash-seed1"), shipped("study-dflare-seed2", "study-dflare-seed3")
    found = compare_seeds(one, other, protocol="prefix")
    return found.figures(), [found.label_a, found.label_b]


def of_factorial(root: Path) -> tuple[list[Plot], list[str]]:
    found = compare_factorial(factorial(root, {("fusion",): 0.5}))
    return found.figures(), [factor.high for factor in found.factors]


def of_scaling(root: Path) -> tuple[list[Plot], list[str]]:
    rng = np.random.default_rng(0)
    runs = [
        a_run(root / f"{fusion}-{depth}", rng.poisson(2, 60).clip(0, 7), fusion=fusion, num_layers=depth)
        for fusion in ("concat", "layerwise")
        for depth in (1, 2, 4)
    ]
    return compare_scaling(runs, "depth").figures(), ["concat", "layerwise"]


def of_plan(_: Path) -> tuple[list[Plot], list[str]]:
    spread = Spread(of_seeds=0.01, of_clusters=1.0, of_both=0.05, clusters=100, prompts=300, df_seeds=1, df_prompts=99)
    planned = plan(spread, 0.15, cost_training=100.0, cost_prompt=0.1)
    return [draw_plan(planned, (3, 300), "tokens")], []


def of_serving(root: Path) -> tuple[list[Plot], list[str]]:
    trials = [trial for level in (1, 8, 64) for trial in two_arms([(50, 90 + i) for i in range(3)], level)]
    return draw_serving(serving(write(root / "run", trials))), ["plain", "draft"]


SOURCES = (
    *(of_replay, of_gates, of_users_names, of_many_pairs, of_values, of_arms, of_seeds, of_unpaired_seeds),
    *(of_factorial, of_scaling, of_plan, of_serving),
)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[Plot], list[str]]]:
    """Figures by their source, with the names of the arms."""
    return {source.__name__: source(tmp_path_factory.mktemp(source.__name__)) for source in SOURCES}


def every(drawn: dict[str, tuple[list[Plot], list[str]]]) -> Iterator[tuple[str, Plot, list[str]]]:
    for source, (plots, arms) in drawn.items():
        yield from ((f"{source}, {plot.name}", plot, arms) for plot in plots)


def texts_of(figure: Figure, monkeypatch: pytest.MonkeyPatch) -> list[tuple[matplotlib.text.Text, Bbox]]:
    """Every text that is drawn when the figure is saved, each once, and where, in pixels at DPI."""
    seen: dict[int, tuple[matplotlib.text.Text, Bbox]] = {}
    draw = matplotlib.text.Text.draw

    def recorded(self: matplotlib.text.Text, renderer: Any) -> None:
        if self.get_visible() and self.get_text():
            extent = matplotlib.text.Text.get_window_extent(self, renderer)
            seen[id(self)] = (self, extent)
        draw(self, renderer)

    with monkeypatch.context() as patch:
        patch.setattr(matplotlib.text.Text, "draw", recorded)
        png(figure, DPI)
    return list(seen.values())


def names_in_the_source() -> set[str]:
    """First arguments of every call of ``Plot`` in the package."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        calls = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
        for call in calls:
            if call.func.id != "Plot":  # type: ignore[attr-defined]
                continue
            name = call.args[0]
            if isinstance(name, ast.Constant):
                found.add(str(name.value))
            else:
                module = importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
                found.add(getattr(module, name.id))  # type: ignore[attr-defined]
    return found


def test_every_figure_of_the_package_is_drawn_here(drawn: Any) -> None:
    assert {plot.name for _, plot, _ in every(drawn)} == names_in_the_source()


def without(plain: str, plot: Plot, names: list[str]) -> str:
    """A text without the names that users gave, whole or cut."""
    datasets = {str(x) for name in ("dataset", "subset") if name in plot.data for x in plot.data[name].dropna()}
    cuts = {
        cut(name, n).rstrip("…") for name in (*names, *datasets, "latency_ms") for n in (14, 24, 28, 30, 32, 40, 99)
    }
    for name in sorted(cuts, key=len, reverse=True):
        plain = plain.replace(name, "")
    return plain


def test_no_text_is_empty_markup_or_a_column_name(drawn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = []
    for where, plot, names in every(drawn):
        for text, _ in texts_of(plot.figure, monkeypatch):
            if not text.get_text().strip() or MARKUP.search(without(text.get_text(), plot, names)):
                wrong.append(f"{where}: {text.get_text()!r}")
    assert not wrong, "\n".join(wrong[:40])


def test_axes_say_what_they_show_and_in_what_unit(drawn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = []
    for where, plot, _ in every(drawn):
        texts_of(plot.figure, monkeypatch)
        for axes in plot.figure.axes:
            for axis in (axes.xaxis, axes.yaxis):
                label = axis.get_label().get_text()
                if not numeric(axes, axis):
                    continue
                if not label and not shares_label(plot.figure, axes, axis):
                    wrong.append(f"{where}: an axis without a label")
                if label and label not in WITHOUT_UNIT and not UNIT.search(label):
                    wrong.append(f"{where}: no unit in '{label}'")
    assert not wrong, "\n".join(wrong[:40])


def numeric(axes: Axes, axis: Any) -> bool:
    """Whether the axis shows numbers."""
    shown = [label.get_text() for label in axis.get_ticklabels() if label.get_visible() and label.get_text()]
    hidden = isinstance(axis.get_major_locator(), NullLocator) or isinstance(axis.get_major_formatter(), NullFormatter)
    return not hidden and bool(shown) and all(re.fullmatch(r"[-+−\d.,e%]+", text) for text in shown)


def shares_label(figure: Figure, axes: Axes, axis: Any) -> bool:
    """Whether another panel, with the same axis, has the label."""
    name = axis.axis_name
    group = getattr(axes, f"get_shared_{name}_axes")().get_siblings(axes)
    return any(getattr(other, f"{name}axis").get_label().get_text() for other in group)


def test_every_text_lies_inside_its_figure(drawn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = []
    for where, plot, _ in every(drawn):
        width, height = plot.figure.get_size_inches() * DPI
        whole = Bbox.from_extents(0, 0, width, height).padded(1)
        for text, box in texts_of(plot.figure, monkeypatch):
            if not (whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0 and box.y1 <= whole.y1):
                wrong.append(f"{where}: {text.get_text()!r} {np.round(box.extents)} in {np.round(whole.extents)}")
    assert not wrong, "\n".join(wrong[:40])


def test_no_text_overlaps_another(drawn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = []
    for where, plot, _ in every(drawn):
        level = [(t, box.padded(-1)) for t, box in texts_of(plot.figure, monkeypatch) if t.get_rotation() % 90 == 0]
        for (one, first), (other, second) in itertools.combinations(level, 2):
            if first.overlaps(second):
                wrong.append(f"{where}: {one.get_text()!r} and {other.get_text()!r}")
    assert not wrong, "\n".join(wrong[:40])


def test_every_figure_names_its_arms(drawn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = []
    for where, plot, arms in every(drawn):
        written = "\n".join(text.get_text() for text, _ in texts_of(plot.figure, monkeypatch))
        shown = arms[1:] if plot.name == "gate-against-norm" else arms  # the arm whose gate moves
        wrong += [f"{where}: {arm}" for arm in shown if cut(arm, 20).rstrip("…") not in written]
    assert not wrong, "\n".join(wrong[:40])


def test_captions_are_sentences(drawn: Any) -> None:
    for where, plot, names in every(drawn):
        assert plot.caption.endswith(".") and not MARKUP.search(without(plot.caption, plot, names)), where
