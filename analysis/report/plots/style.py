"""Style and serialisation of figures: one style, Agg without pyplot, reproducible bytes."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import matplotlib.style
import pandas as pd
from fontTools.subset import Options
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from analysis.comparison.facts import ArmSummary
from analysis.wording import Verdict, one_line

#: One colour per arm in every figure (Okabe and Ito's palette, which colour-blind readers can distinguish).
ARM_COLOURS = {"A": "#0072B2", "B": "#D55E00"}
VERDICT_COLOURS = {Verdict.B_BETTER: ARM_COLOURS["B"], Verdict.A_BETTER: ARM_COLOURS["A"]}
INK, MUTED, GRID = "#222222", "#777777", "#DDDDDD"
#: Of arms or series after the first, where there are more than two (the same palette).
MORE_COLOURS = (ARM_COLOURS["B"], "#009E73", "#CC79A7", "#56B4E9", "#E69F00", INK)
WIDTH = 7.2  # inches: at 150 dpi 1080 pixels, a README column at double density

_STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.edgecolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.parse_math": False,  # names may hold $
    "axes.unicode_minus": False,
    "svg.hashsalt": "draftlab",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "figure.constrained_layout.use": True,
}


@dataclass(frozen=True, eq=False)
class Plot:
    """A figure with its ``name`` (file stem), ``caption`` and tidy ``data``."""

    name: str
    caption: str
    figure: Figure = field(repr=False)
    data: pd.DataFrame = field(repr=False)

    def _repr_png_(self) -> bytes:
        return png(self.figure, dpi=90)  # a notebook keeps its pictures


@contextmanager
def house_style() -> Iterator[None]:
    """Draw and save inside: the user's matplotlibrc is ignored, and missing glyphs cause no warning."""
    with matplotlib.style.context(_STYLE, after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def png(figure: Figure, dpi: int = 150) -> bytes:
    """PNG bytes, without the writer's version."""
    buffer = io.BytesIO()
    with house_style(), _settled(figure, dpi):
        FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None})
    return buffer.getvalue()


def svg(figure: Figure) -> bytes:
    """SVG bytes, without date, writer's version or random ids."""
    buffer = io.BytesIO()
    with house_style(), _settled(figure, 100):
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def pdf(figure: Figure) -> bytes:
    """PDF bytes, without date and writer's version."""
    buffer = io.BytesIO()
    with house_style(), _settled(figure, 100), _glyphs_only():
        FigureCanvasPdf(figure).print_pdf(buffer, metadata={"CreationDate": None, "Creator": None, "Producer": None})
    return buffer.getvalue()


@contextmanager
def _glyphs_only() -> Iterator[None]:
    """Embed fonts without their layout tables, which a PDF does not read: to cut them down takes most of the time."""
    before = Options._drop_tables_default
    Options._drop_tables_default = [*before, "GDEF", "GPOS", "GSUB"]
    try:
        yield
    finally:
        Options._drop_tables_default = before


@contextmanager
def _settled(figure: Figure, dpi: int) -> Iterator[None]:
    """Draw inside at ``dpi``. The figure is laid out only once, because a repeated layout would shift slightly with
    every save."""
    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        FigureCanvasAgg(figure)
        engine.execute(figure)
        figure.set_layout_engine("none")
    before = figure.dpi
    figure.dpi = dpi
    try:
        yield
    finally:
        figure.dpi = before


def csv(data: pd.DataFrame) -> str:
    """CSV with ``\\n`` line ends and six significant digits."""
    return data.to_csv(index=False, lineterminator="\n", float_format="%.6g")


def legend(arm: ArmSummary, at_most: int = 40) -> str:
    """``A: DFlash``: the prefix prevents a leading underscore, which would hide the entry."""
    return f"{arm.side}: {cut(arm.label, at_most)}"


def name_arms(axes: Axes, label_a: str, label_b: str) -> None:
    """Say above the axes which arm is A and which is B, for a figure whose legend does not: it may travel alone."""
    axes.annotate(
        f"A: {cut(label_a, 40)}    B: {cut(label_b, 40)}",
        (0, 1),
        xytext=(0, 6),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=9,
        color=MUTED,
    )


def plain_log(axis: Axis) -> None:
    """Numbers as numbers on a logarithmic axis: 0.5, 1, 2, 5, 10, 1,000."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(plain))
    axis.set_minor_formatter(NullFormatter())


def plain(value: float, _: object = None) -> str:
    """A tick's number: 0.25, 5, 2,000,000."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def cut(text: str, at_most: int) -> str:
    """``text`` on one line, cut to ``at_most`` characters."""
    text = one_line(text)
    return text if len(text) <= at_most else text[: at_most - 1] + "…"
