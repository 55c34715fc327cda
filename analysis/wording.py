"""The words and number formats of every conclusion: verdicts, estimands, methods, p-values."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The conclusion of a paired estimate. Better means more accepted tokens, in either protocol."""

    B_BETTER = "B better"
    A_BETTER = "A better"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"
    IDENTICAL = "identical"


@dataclass(frozen=True)
class Estimand:
    """A metric of one arm. The estimate is its difference, B - A, over the same prompts."""

    key: str
    name: str
    definition: str
    unit: str = "tokens"


ACCEPTED_LENGTH = Estimand(
    "accepted_length",
    "mean accepted length",
    "tokens accepted in one verification step after the prompt: 1 (the target's own first token) plus the leading "
    "draft tokens that equal the target's greedy tokens, averaged over prompts",
)
TAU_POOLED = Estimand(
    "tau_pooled",
    "tau, pooled",
    "tokens emitted in verification steps, summed over prompts, divided by the number of steps, summed over prompts; "
    "the bonus token counts, the prefill token does not",
)
TAU_MEAN = Estimand(
    "tau_mean",
    "tau, mean over responses",
    "tokens emitted per verification step of each response (the answer to one turn of a prompt), averaged over "
    "responses; the bonus token counts, the prefill token does not",
)
#: Shown beside TAU_MEAN if prompts have several turns.
TAU_PROMPTS = Estimand(
    "tau_mean_prompts",
    "tau, mean over prompts",
    "tokens emitted per verification step of each prompt, all its turns together, averaged over prompts; "
    "the bonus token counts, the prefill token does not",
)

#: Beside tau under ``replay``, which drafts at every position.
ACCEPTED_EVERYWHERE = Estimand(
    "accepted_length_everywhere",
    "mean accepted length, all positions",
    "tokens that a verification step would add, averaged over every position of the answers but the last, whether or "
    "not decoding takes a step there; the bonus token counts",
)
SPEEDUP_POOLED = Estimand(
    "speedup_pooled",
    "speed-up, pooled",
    "ratio of seconds per token after the first, each total decoding time over total tokens, so that long outputs "
    "weigh more",
    "times",
)
SPEEDUP_MEAN = Estimand(
    "speedup_mean",
    "speed-up, geometric mean over prompts",
    "ratio of seconds per token after the first of each prompt, averaged over prompts on the log scale",
    "times",
)
THROUGHPUT = Estimand(
    "throughput", "throughput ratio", "output tokens per second of a serving trial, B over A within a block", "times"
)
#: The metrics that can be the headline, by protocol; the first is the default. Whole answers come before first blocks.
HEADLINES = {"replay": (TAU_POOLED, TAU_MEAN), "generate": (TAU_POOLED, TAU_MEAN), "prefix": (ACCEPTED_LENGTH,)}
METRICS = tuple(dict.fromkeys(estimand.key for estimands in HEADLINES.values() for estimand in estimands))


#: How the key of an estimand ends if data sets weigh the same in it.
BALANCED = "_balanced"


def balanced(estimand: Estimand) -> Estimand:
    """The same estimand with equal weight per data set, whatever its number of prompts."""
    return Estimand(
        f"{estimand.key}{BALANCED}",
        f"{estimand.name}, data sets equal",
        f"{estimand.name} of each data set, averaged over data sets",
        estimand.unit,
    )


#: How the interval and p of an estimate were computed.
METHODS = {
    "exact": "exact percentile bootstrap of the mean; exact sign-flip test",
    "cluster flip": "exact sign-flip test of whole clusters; interval by its inversion",
    "cluster t": "cluster-robust t",
    "crossed": "t over paired seeds; interval over seeds and prompt clusters, crossed",
    "crossed, unpaired": "Welch's t over seeds; interval over seeds and prompt clusters, crossed",
    "crossed, one run": "t over the trainings of one arm against one run of the other; interval over seeds and prompt "
    "clusters, crossed",
    "none": "none",
}


def number(value: float | None, digits: int = 3) -> str:
    """Fixed decimals; an em dash for None."""
    return "—" if value is None else f"{value + 0.0:.{digits}f}"


def signed(value: float | None, digits: int = 3) -> str:
    """Fixed decimals with a sign; no sign if the value rounds to 0."""
    if value is None:
        return "—"
    text = f"{value:+.{digits}f}"
    return text if float(text) else text[1:]


def interval(lo: float | None, hi: float | None, digits: int = 3) -> str:
    """``lo to hi``, signed."""
    return "—" if lo is None or hi is None else f"{signed(lo, digits)} to {signed(hi, digits)}"


def with_interval(value: float | None, lo: float | None, hi: float | None, digits: int = 3) -> str:
    """``3.785 (3.13 to 4.44)``: a mean with its interval to two digits; the mean alone without one."""
    bounds = "" if lo is None or hi is None else f" ({number(lo, 2)} to {number(hi, 2)})"
    return number(value, digits) + bounds


def times(estimate: float, lo: float | None, hi: float | None) -> str:
    """``1.85 times (1.71 to 2.00)``."""
    return f"{estimate:.2f} times" + ("" if lo is None or hi is None else f" ({lo:.2f} to {hi:.2f})")


def p_value(p: float | None) -> str:
    """Three significant digits, never 0; values below 1e-12 are shown as ``<1e-12``."""
    if p is None:
        return "—"
    return "<1e-12" if p < 1e-12 else f"{p:.3g}"


def equals_p(p: float | None) -> str:
    """``p = 0.0312`` or ``p < 1e-12``, for a sentence."""
    text = p_value(p)
    return f"p < {text[1:]}" if text.startswith("<") else f"p = {text}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share as a percentage; a dash for None and NaN."""
    return "—" if share is None or math.isnan(share) else f"{100 * share:.{digits}f}%"


def counted(n: int, noun: str) -> str:
    """``1 prompt``, ``1,200 prompts``."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


_BREAKS = re.compile("[\\s\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069]+")


def one_line(text: object) -> str:
    """``text`` on one line, without control characters and bidirectional overrides: names come from files and may
    contain anything."""
    return _BREAKS.sub(" ", str(text)).strip() or "(none)"


def cut_apart(names: Sequence[str], at_most: int) -> list[str]:
    """Names cut to ``at_most`` letters, at their end; those that would become equal in their middle, or numbered."""
    cut = [name if len(name) <= at_most else name[: at_most - 1] + "…" for name in names]
    for number, (name, short) in enumerate(zip(names, cut, strict=True)):
        if len(name) > at_most and cut.count(short) > 1:
            half = (at_most - 1) // 2
            middle = f"{name[: at_most - 1 - half]}…{name[-half:]}"
            cut[number] = middle if middle not in cut else f"{name[: at_most - 5]}… {number + 1}"
    return cut


def headline(verdict: Verdict, metric: Estimand, arms: Sequence[tuple[str, float | None]], facts: str) -> str:
    """The conclusion in one sentence. ``arms``: label and mean of A, then B; ``facts``: difference, interval, p, n."""
    (name_a, mean_a), (name_b, mean_b) = arms
    unit = f" {metric.unit}" if metric.unit else ""
    a, b = (name if name.endswith(f"({side})") else f"{name} ({side})" for name, side in ((name_a, "A"), (name_b, "B")))
    if verdict is Verdict.IDENTICAL:
        return f"{a} and {b} are identical here: {metric.name} {number(mean_a)}{unit} in both, {facts}."
    if verdict is Verdict.EQUIVALENT:
        values = f"{number(mean_b)}{unit} with {b}, {number(mean_a)} with {a}"
        return f"{a} and {b} are equivalent within the stated margin: {metric.name} {values}, {facts}."
    if verdict is Verdict.INCONCLUSIVE:
        values = f"{number(mean_b)}{unit} with {b}, {number(mean_a)} with {a}"
        return f"No conclusion: {metric.name} {values}, {facts}."
    (better, mean), (other, mean_of_other) = ((b, mean_b), (a, mean_a))
    if verdict is Verdict.A_BETTER:
        (better, mean), (other, mean_of_other) = ((a, mean_a), (b, mean_b))
    values = f"{number(mean)} against {number(mean_of_other)}{unit}"
    return f"{better} is better than {other}: {metric.name} {values}, {facts}."
