"""The first screen of a report: three numbers, and what the comparison does not show."""

from __future__ import annotations

from analysis.comparison.pairwise import Comparison
from analysis.report.markdown import table
from analysis.wording import Verdict, counted, interval, one_line, percent, signed


def numbers(c: Comparison) -> str:
    """Difference, relative change and speed-up, each with its 95% confidence interval where there is one."""
    e = c.overall
    rows = [(f"difference in {e.estimand.name} ({e.estimand.unit})", signed(e.estimate), interval(e.lo, e.hi))]
    if e.estimate is not None and e.mean_a:
        bounds = "—" if e.lo is None or e.hi is None else f"{_share(e.lo, e.mean_a)} to {_share(e.hi, e.mean_a)}"
        rows.append(("the same, relative to A", _share(e.estimate, e.mean_a), bounds))
    if c.speed is not None and (speed := c.speed.pooled("B", "A").get(None)):
        bounds = "—" if speed.lo is None or speed.hi is None else f"{speed.lo:.2f} to {speed.hi:.2f}"
        rows.append((f"speed of B over A ({counted(speed.n_pairs, 'answer')})", f"{speed.estimate:.2f} times", bounds))
    return table(["B against A", "estimate", "95% CI"], rows, numeric=2)


def _share(value: float, of: float) -> str:
    share = percent(value / of)
    return share if value < 0 or share == "—" else f"+{share}"


def not_shown(c: Comparison) -> list[str]:
    """Conclusions that the headline does not support."""
    e = c.overall
    said = []
    balanced = next((x for x in c.others if x.estimand.key == f"{e.estimand.key}_balanced"), None)
    if balanced is not None and balanced.estimate is not None and e.estimate is not None:
        if balanced.estimate * e.estimate < 0:
            said.append(
                f"The sign depends on the mix of data sets: the pooled difference is {signed(e.estimate)}, with equal "
                f"weight per data set it is {signed(balanced.estimate)}."
            )
        elif balanced.verdict is not e.verdict and balanced.p is not None:
            said.append(
                f"The verdict depends on the mix of data sets: {e.verdict} pooled, {balanced.verdict} with equal "
                "weight per data set."
            )
    if e.verdict is Verdict.INCONCLUSIVE:
        said.append("Inconclusive does not mean equal. Equivalence requires a margin stated beforehand (--margin).")
    definite = (Verdict.A_BETTER, Verdict.B_BETTER)
    open_ones = [one_line(x.subset) for x in c.by_dataset.values() if x.verdict not in definite]
    if len(c.by_dataset) > 1 and e.verdict in definite and open_ones:
        every = len(open_ones) == len(c.by_dataset)
        said.append(
            "No data set has a verdict by itself." if every else f"Data sets without a verdict: {', '.join(open_ones)}."
        )
    if c.protocol == "prefix":
        said.append(
            "The headline is about the first block of each answer. First blocks are often stock phrases; speed depends "
            "on whole answers."
        )
    if any(x.code == "one-seed" for x in c.cautions):
        said.append("Each arm was trained once. The interval does not cover another training seed.")
    said.append("The interval does not cover another target, other decoding settings, or prompts of another kind.")
    return said
