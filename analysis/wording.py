"""Every word and number format of a conclusion, in one place: verdicts, cautions, estimands, methods, p-values."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What a paired estimate says. Better means longer accepted runs, in either protocol."""

    B_BETTER = "B better"
    A_BETTER = "A better"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"
    IDENTICAL = "identical"


@dataclass(frozen=True)
class Estimand:
    """A metric of one arm; what is estimated is its difference, B - A, over the same prompts."""

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
#: Beside TAU_MEAN where prompts have several turns.
TAU_PROMPTS = Estimand(
    "tau_mean_prompts",
    "tau, mean over prompts",
    "tokens emitted per verification step of each prompt, all its turns together, averaged over prompts; "
    "the bonus token counts, the prefill token does not",
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
#: What may be the headline, per protocol; the first is the default. Whole answers come before first blocks.
HEADLINES = {"replay": (TAU_POOLED, TAU_MEAN), "generate": (TAU_POOLED, TAU_MEAN), "prefix": (ACCEPTED_LENGTH,)}
METRICS = tuple(dict.fromkeys(estimand.key for estimands in HEADLINES.values() for estimand in estimands))


#: How the key of an estimand ends if data sets weigh the same in it.
BALANCED = "_balanced"


def balanced(estimand: Estimand) -> Estimand:
    """The estimand with every data set weighing the same, whatever its number of prompts."""
    return Estimand(
        f"{estimand.key}{BALANCED}",
        f"{estimand.name}, data sets equal",
        f"{estimand.name} of each data set, averaged over data sets",
        estimand.unit,
    )


#: How interval and p of an estimate were made.
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


@dataclass(frozen=True)
class Caution:
    """A warning as data: a stable code for machines, a sentence for people."""

    code: str
    text: str


_CAUTIONS = {
    "no-pairs": "No pair is left here, so nothing is estimated.",
    "single-pair": "One pair only: there is no interval, and no test can reject.",
    "few-pairs": "{n} pairs only: no exact two-sided p can be below {least}, so nothing can be concluded at 5%.",
    "few-units": "{differ} of {units} differ: with fewer than 30 that do, by their effective number, or fewer than 100 "
    "that differ in one direction alone, intervals are too narrow and verdicts too frequent where differences are "
    "skewed or rare, whatever the method (reports/validation.md).",
    "skewed": "The differences are skewed (skewness of the mean {skewness:.2f}, above {most:g}): intervals are too "
    "narrow on one side and verdicts too frequent (reports/validation.md).",
    "dominated": "{n} clusters, but only about {effective:.1f} effective: a few clusters, or a few long answers, carry "
    "most of the mean.",
    "few-differ": "{n} of {units} differ, and a test wants {least} that do: what difference could have been found "
    "(MDE), or how many prompts one wants, cannot be told from so few.",
    "one-cluster": "All prompts belong to one cluster: there is no interval, and no test can reject.",
    "few-clusters": "{n} clusters only: no exact two-sided p can be below {least}, so no interval at 95% has ends.",
    "zero-variance": "All {n} pairs differ by the same amount: the interval is a point for want of spread, not by "
    "certainty.",
    "zero-cluster-error": "Prompts differ but all {n} clusters have the same mean difference: the cluster standard "
    "error is 0, which gives no interval.",
    "p-without-interval": "p = {p} but the interval holds 0: the test asks for symmetry about 0, the interval for the "
    "mean, and they disagree.",
    "seeds-without-prompts": "Over seeds alone p = {seeds}, over seeds and prompts p = {p}: on these prompts another "
    "training would probably show the difference again, on other prompts it may not.",
    "few-clusters-crossed": "{n} clusters of prompts only: an interval over seeds and prompts requires {least}.",
    "alone-not-in-family": "Told from 0 alone (p = {alone}), not within its family of {size} (p = {p} by Holm).",
    "interval-without-p": "The interval excludes 0 but p = {p}{adjusted}: they disagree.",
    "inside-margin": "The difference is told from 0 (p = {p}) but lies inside the margin of {margin:g} stated "
    "beforehand, so it counts as none.",
    "unseen-values": "Not shown to be equivalent: {units} cannot exclude a kind of prompt that is none of them and "
    "would move the mean to the margin of {margin:g} (p = {p}; the arms' values are up to {reach:.3g} apart); "
    "about {wanted} could.",
    "no-range": "Not shown to be equivalent: every value of both arms is the same, which does not tell how far values "
    "can differ.",
    "no-margin": "The margin is one of {declared}; {metric} has none of its own, so that its verdict cannot be "
    "'equivalent'.",
    "small-datasets": "No interval with data sets weighing the same: under {least} clusters in {names}.",
    "simpson": "Simpson: the pooled difference is {pooled:+.3f}, but every data set has the opposite sign; the arms "
    "differ in how their steps spread over the data sets.",
    "simpson-balanced": "Simpson: the pooled difference is {pooled:+.3f}, with data sets weighing the same it is "
    "{balanced:+.3f}; the mix of prompts decides the sign.",
    "verdict-by-mix": "Pooled, the verdict is {pooled}, with data sets weighing the same it is {balanced}: the mix of "
    "prompts decides it.",
    "heterogeneity-left-out": "Not in the comparison of data sets, for want of a standard error or of {least} prompts "
    "(or clusters) that differ: {names}.",
    "few-datasets": "{n} data sets say little about how much data sets differ in general; do not read much into the "
    "share between them.",
    "shared-clusters": "Some clusters span data sets, so data sets are not independent: the test that all are equal "
    "is approximate.",
    "pairs-lost": "{n} of {total} prompts have no pair and are excluded: {reasons}.",
    "missing-differs": "Not missing at random: on the {n} prompts without a pair the mean of {arm} is {lost}, on "
    "those with one {kept} ({difference}, {p}). The comparison is about the kept prompts only.",
    "missing-bounds": "Over these and {n} more prompts that one arm has, the difference could be anywhere from "
    "{bounds} ({seen} over the pairs), if unknown values lie between {least} and {most}.",
    "not-lossless": "{run}: {n} of {total} outputs differ from plain decoding where the target's two best logits were "
    "not tied: this arm is not lossless here.",
    "claims-disagree": "On {n} of {total} prompts the outputs of the arms differ, yet both claim to match plain "
    "decoding: at most one of them can. Check the decoding settings, and the baseline of each run.",
    "values-by-order": "The tables have no prompt ids: rows are paired by their order, which nothing confirms.",
    "values-alone": "A table of values records neither target, drafter, training nor how prompts were chosen, so "
    "whether the arms were treated alike is not known.",
    "other-protocol": "Protocol {protocol} is in both runs but not shown: {reason}.",
    "same-run": "A and B are one run: all tables have the same bytes, so that nothing can differ.",
    "baseline-drafts": "The baseline {run} is not plain decoding: its verification steps give {tau:.2f} tokens each. "
    "Speed-ups over it are not speed-ups over plain decoding.",
    "unfinished": "{run} is {status}, not complete: its numbers may change.",
    "gates-nan": "{run}: gate_stats holds NaN or infinite values; the section on gates is left out.",
    "differs": "The arms differ in {what}: {a} (A) against {b} (B).",
    "unknown": "Not known to be equal in both arms: {what}.",
    "history-nan": "{run}: the training loss is NaN or infinite at {n} of {total} steps, first at step {first}.",
    "history-short": "{run}: the history has {n} steps, the manifest says {total}: training is not all here.",
    "history-diverged": "{run}: the training loss ended at {last:.2f}, after {best:.2f} at its best: it diverged.",
    "history-rising": "{run}: validation accepted length was still rising at the end ({before:.2f} at three quarters "
    "of the training, {last:.2f} at the end): more training would change this arm.",
    "post-hoc": "Post hoc: the data set(s) {names} were picked out of {total} by whoever ran this, and not all of "
    "their prompts are recorded as a confirmatory set. Read it as a lead, not as a finding.",
    "exploratory": "The prompts are recorded as exploratory: a finding here wants confirming on prompts not yet used.",
    "mixed-roles": "Exploratory and confirmatory prompts are mixed here: {roles}.",
    "overlap": "{prompts} confirmatory prompts were also in an exploratory evaluation, and {clusters} clusters of "
    "confirmatory prompts were: what was explored cannot confirm.",
    "below-published": "Both arms are clearly below the published {method} drafter of this target: tau {a:.2f} and "
    "{b:.2f} against {published:.2f} ({datasets}, {source}). A difference between two weak drafters may not carry "
    "over.",
    "loops": "{n} of {total} outputs of {arm} mostly repeat themselves, and loops are easy to draft: its pooled tau is "
    "{tau}, without them {without}.",
    "lengths-differ": "Outputs are {a} tokens long in the mean under A and {b} under B: pooled numbers then weigh "
    "different text.",
    "baseline-differs": "The output of {arm} differs from the baseline's on {n} of {total} prompts{where}: greedy and "
    "lossless decoding would give the same, up to near-ties.",
    "few-seeds": "{n} training seeds are too few for a verdict about training, which requires {least}.",
    "one-training": "Arm {side} is one run, {run}, which is not recorded as untrained: the interval covers other "
    "trainings of the other arm, not of this one.",
    "unknown-in-arm": "Not recorded in every run of arm {side}, so not known to be equal: {what}.",
    "unpaired-seeds": "The arms have different seeds, so their runs are not paired but treated as independent.",
    "one-session": "Each arm was timed in one session. An interval over prompts does not cover what differs between "
    "sessions (reruns of one model differ by several percent), so there is no verdict on speed. Timing by turns in one "
    "session (python -m drafters.evaluate RUN_A RUN_B --protocol generate --baseline) gives one, and so do repeated "
    "sessions of both arms (--sessions-a, --sessions-b).",
    "few-sessions": "{n} timing sessions per arm are too few for a verdict on speed; it takes {least}.",
    "one-seed": "The intervals cover the choice of prompts, for these two checkpoints. They do not cover another "
    "training run: each arm was trained once, and another seed could move the difference.",
}


def caution(code: str, *, named: str | None = None, **facts: object) -> Caution:
    """The caution of this code, with its facts filled in; ``named`` makes it ``<named>-<code>``."""
    return Caution(f"{named}-{code}" if named else code, _CAUTIONS[code].format(**facts))


def number(value: float | None, digits: int = 3) -> str:
    """Fixed decimals; an em dash for what is not defined."""
    return "—" if value is None else f"{value + 0.0:.{digits}f}"


def signed(value: float | None, digits: int = 3) -> str:
    """Fixed decimals with a sign, none on what rounds to 0."""
    if value is None:
        return "—"
    text = f"{value:+.{digits}f}"
    return text if float(text) else text[1:]


def interval(lo: float | None, hi: float | None, digits: int = 3) -> str:
    """``lo to hi``, signed."""
    return "—" if lo is None or hi is None else f"{signed(lo, digits)} to {signed(hi, digits)}"


def with_interval(value: float | None, lo: float | None, hi: float | None, digits: int = 3) -> str:
    """``3.785 (3.13 to 4.44)``: a mean and its interval, to two digits; bare where there is none."""
    bounds = "" if lo is None or hi is None else f" ({number(lo, 2)} to {number(hi, 2)})"
    return number(value, digits) + bounds


def times(estimate: float, lo: float | None, hi: float | None) -> str:
    """``1.85 times (1.71 to 2.00)``."""
    return f"{estimate:.2f} times" + ("" if lo is None or hi is None else f" ({lo:.2f} to {hi:.2f})")


def p_value(p: float | None) -> str:
    """Three digits, never 0: below 1e-12 it says so."""
    if p is None:
        return "—"
    return "<1e-12" if p < 1e-12 else f"{p:.3g}"


def equals_p(p: float | None) -> str:
    """``p = 0.0312`` or ``p < 1e-12``, for a sentence."""
    text = p_value(p)
    return f"p < {text[1:]}" if text.startswith("<") else f"p = {text}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share as a percentage; a dash for none, and for a share of nothing (NaN)."""
    return "—" if share is None or math.isnan(share) else f"{100 * share:.{digits}f}%"


def counted(n: int, noun: str) -> str:
    """``1 prompt``, ``1,200 prompts``."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


_BREAKS = re.compile("[\\s\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069]+")


def one_line(text: object) -> str:
    """``text`` on one line, without control characters and overrides of the writing direction: names come from
    files and may hold anything."""
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
    """The conclusion as a sentence. ``arms``: label and mean of A, then of B; ``facts``: difference, interval, p, n."""
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
