"""Rules for continuous integration: ``--fail-if "delta<-0.05"``, judged by the interval, not by the point estimate.

A rule is a condition that must not hold. It fails if the condition holds on the whole 95% interval, passes if it holds
nowhere on the interval, and is inconclusive otherwise. Without an interval it is inconclusive too. If prompts have no
pair, the interval is widened by all that they could change (:mod:`analysis.measures.missing`). A rule on one data set
is judged by that data set's own interval, which is not adjusted for the number of data sets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.comparison.pairwise import Comparison
from analysis.comparison.seed_study import SeedComparison
from analysis.comparison.values import ValueComparison
from analysis.errors import Exit, UsageError
from analysis.measures.missing import with_missing
from analysis.measures.sessions import Design
from analysis.stats.estimate import Estimate
from analysis.wording import number, one_line

_RULE = re.compile(
    r"\s*(?P<what>[a-z_]+)\s*(?:\[(?P<dataset>.*)\])?\s*(?P<sign><|>)\s*(?P<bound>[-+]?[0-9.]+)\s*", re.DOTALL
)
_WHAT = "delta (the headline's difference, B - A), a metric's key, or speedup (B over A, times)"


@dataclass(frozen=True)
class Rule:
    """``what`` of ``dataset`` (None: all) must not be below (``<``) or above (``>``) ``bound``."""

    text: str
    what: str
    dataset: str | None
    below: bool
    bound: float


@dataclass(frozen=True)
class Judgement:
    """A rule with its interval and outcome; ``widened``: by prompts without a pair; ``family``: the number of data
    sets."""

    rule: Rule
    lo: float | None
    hi: float | None
    code: Exit
    widened: bool = False
    family: int = 1

    @property
    def sentence(self) -> str:
        word = {Exit.OK: "passed", Exit.RULE_FAILED: "failed", Exit.INCONCLUSIVE: "inconclusive"}[self.code]
        told = f"95% interval {number(self.lo)} to {number(self.hi)}"
        told += ", allowing any value for prompts without a pair" if self.widened else ""
        told += (
            f", not adjusted for {self.family} data sets" if self.rule.dataset is not None and self.family > 1 else ""
        )
        return f"rule {one_line(self.rule.text)}: {word} ({told})"


def parse_rule(text: str) -> Rule:
    """Parse ``WHAT[DATASET]<NUMBER`` or ``>``; ``[DATASET]`` is optional. Raises UsageError for any other text."""
    match = _RULE.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        bound = float(match["bound"])
    except ValueError as error:
        raise UsageError(
            f"--fail-if '{one_line(text)}' is not a valid rule; expected WHAT<NUMBER or WHAT>NUMBER, such as "
            f"'delta<-0.05' or 'delta[humaneval]<-0.1'; WHAT is {_WHAT}"
        ) from error
    return Rule(text, match["what"], match["dataset"], match["sign"] == "<", bound)


def judge(rule: Rule, comparison: Comparison | SeedComparison | ValueComparison) -> Judgement:
    """Judge a rule on a comparison. Raises UsageError for a metric or data set that the comparison does not have."""
    lo, hi = _interval(rule, comparison)
    widened = not isinstance(comparison, SeedComparison) and rule.what != "speedup" and len(comparison.pairs.lost) > 0
    if lo is None or hi is None:
        return Judgement(rule, lo, hi, Exit.INCONCLUSIVE)
    holds, fails = (hi < rule.bound, lo >= rule.bound) if rule.below else (lo > rule.bound, hi <= rule.bound)
    return Judgement(
        rule,
        lo,
        hi,
        Exit.RULE_FAILED if holds else Exit.OK if fails else Exit.INCONCLUSIVE,
        widened,
        len(comparison.by_dataset),
    )


def exit_code(judgements: Sequence[Judgement]) -> Exit:
    """1 if any rule failed, else 2 if any is inconclusive, else 0."""
    codes = {judgement.code for judgement in judgements}
    return next((code for code in (Exit.RULE_FAILED, Exit.INCONCLUSIVE) if code in codes), Exit.OK)


def _interval(
    rule: Rule, comparison: Comparison | SeedComparison | ValueComparison
) -> tuple[float | None, float | None]:
    of = {SeedComparison: _of_seeds, ValueComparison: _of_values}.get(type(comparison), _of_pair)
    known = of(comparison)  # type: ignore[operator]
    for what, dataset, lo, hi in known:
        if (what, dataset) == (rule.what, rule.dataset):
            return lo, hi
    there = ", ".join(sorted({what + (f"[{dataset}]" if dataset else "") for what, dataset, _, _ in known}))
    raise UsageError(f"--fail-if '{one_line(rule.text)}': unknown metric or data set; available: {one_line(there)}")


#: (what, data set, lo, hi)
_Known = list[tuple[str, str | None, float | None, float | None]]


def _bounds(e: Estimate) -> tuple[float | None, float | None]:
    """The interval; none where there are too few units for a verdict."""
    return (None, None) if e.withheld else (e.lo, e.hi)


def _of_seeds(study: SeedComparison) -> _Known:
    headline = study.overall.estimate.estimand
    known: _Known = [(e.estimand.key, e.subset, *_bounds(e)) for e in study.estimates]
    return known + [("delta", e.subset, *_bounds(e)) for e in study.estimates if e.estimand == headline]


def _of_values(c: ValueComparison) -> _Known:
    least, most = (c.full_set.least, c.full_set.most) if c.full_set is not None else (1.0, 1.0)
    return [("delta", e.subset, *with_missing(c.pairs, e, most, least)) for e in (c.overall, *c.by_dataset.values())]


def _with_missing(c: Comparison, e: Estimate, most: float) -> tuple[float | None, float | None]:
    return (None, None) if e.withheld else with_missing(c.pairs, e, most)


def _of_pair(comparison: Comparison) -> _Known:
    c = comparison
    most = c.full_set.most if c.full_set is not None else 1.0
    known: _Known = [(e.estimand.key, e.subset, *_with_missing(c, e, most)) for e in c.estimates]
    headlines = (c.overall, *c.by_dataset.values())
    known += [("delta", e.subset, *_with_missing(c, e, most)) for e in headlines]
    if comparison.speed is not None:
        known += [
            ("speedup", subset, *((None, None) if r.design is Design.ONE_EACH else (r.lo, r.hi)))
            for subset, r in comparison.speed.pooled("B", "A").items()
        ]
    return known
