"""Every caution of a comparison with the name of what it concerns, and what no interval covers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis.cautions import Caution
from analysis.comparison.pairwise import Comparison
from analysis.wording import one_line


def cautions(c: Comparison) -> list[str]:
    """Every caution once, after the names of what it concerns; those about the whole comparison name nothing."""
    return [f"{'; '.join(names)}: {x.text}" if names else x.text for x, names in gathered_cautions(c).items()]


def gathered_cautions(c: Comparison) -> dict[Caution, list[str]]:
    """Every caution once, with the names of what it concerns; no name for the whole comparison."""
    names: dict[Caution, list[str]] = {x: [] for x in c.cautions if x.code != "one-seed"}
    for name, of_name in _concerned(c):
        for x in of_name:
            concerned = names.setdefault(x, [])
            concerned += [name] if name and name not in concerned else []
    return names


def _concerned(c: Comparison) -> Iterator[tuple[str, Sequence[Caution]]]:
    """The cautions of every estimate, with its name."""
    for e in (c.overall, *c.others):
        yield one_line(e.estimand.name).capitalize(), e.cautions
    for name, e in (*c.by_dataset.items(), *c.by_seen.items()):
        yield one_line(name), e.cautions
    for control in c.controls:
        yield f"B against {one_line(control.label)}", control.lost.cautions
        yield f"{one_line(control.label)} against A", control.kept.cautions
    for ratio in c.speed.ratios if c.speed is not None else ():
        yield "Speed" if ratio.subset is None else f"Speed on {one_line(ratio.subset)}", ratio.cautions
    for i in c.interactions:
        yield f"{one_line(i.dataset)} against {one_line(i.against)}", i.cautions
    if c.heterogeneity is not None:
        yield "", c.heterogeneity.cautions


def not_covered(c: Comparison) -> list[str]:
    """What the intervals do not cover."""
    sentences = [x.text for x in c.cautions if x.code == "one-seed"]
    sentences.append("They do not cover another target, other decoding settings, or prompts of another kind.")
    if c.speed is not None or c.throughput is not None or (c.baseline is not None and c.baseline.speedups):
        sentences.append(
            "Intervals of times do not cover another machine, or another timing session on the same machine."
        )
    return sentences
