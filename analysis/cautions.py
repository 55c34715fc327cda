"""Every caution of a result: a stable code, and the sentence that a reader sees."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Caution:
    """A warning as data: a stable code for machines, a sentence for people."""

    code: str
    text: str


_CAUTIONS = {
    "no-pairs": "No pairs remain, so nothing is estimated.",
    "single-pair": "Only one pair: no interval, and no test can reject.",
    "few-pairs": "Only {n} pairs: an exact two-sided p cannot be below {least}, so no conclusion is possible at 5%.",
    "few-units": "{differ} of {units} differ. With fewer than 30 effective units that differ, or fewer than 100 that "
    "differ in the same direction, intervals are too narrow and verdicts too frequent if differences are skewed or "
    "rare, whatever the method (reports/validation.md).",
    "skewed": "The differences are skewed (skewness of the mean {skewness:.2f}, above {most:g}): intervals are too "
    "narrow on one side and verdicts too frequent (reports/validation.md).",
    "dominated": "{n} clusters, but only about {effective:.1f} effective ones: a few clusters or a few long answers "
    "dominate the mean.",
    "few-differ": "Only {n} of {units} differ; a test requires {least}. The minimum detectable effect and the number "
    "of prompts needed are unknown.",
    "one-cluster": "All prompts belong to one cluster: no interval, and no test can reject.",
    "few-clusters": "Only {n} clusters: an exact two-sided p cannot be below {least}, so there is no 95% interval.",
    "zero-variance": "All {n} pairs differ by the same amount: the interval has zero width because the data do not "
    "vary, not because the effect is certain.",
    "zero-cluster-error": "Prompts differ, but all {n} clusters have the same mean difference: the cluster-robust "
    "standard error is 0, so there is no interval.",
    "p-without-interval": "p = {p}, but the interval contains 0. The test assumes symmetry about 0, the interval is "
    "for the mean; they disagree, so there is no verdict.",
    "seeds-without-prompts": "Over seeds alone p = {seeds}, over seeds and prompts p = {p}: on these prompts another "
    "training would probably show the difference again, on other prompts it may not.",
    "few-clusters-crossed": "{n} clusters of prompts only: an interval over seeds and prompts requires {least}.",
    "alone-not-in-family": "Significant by itself (p = {alone}), not after Holm correction over {size} tests (p = "
    "{p}).",
    "interval-without-p": "The interval excludes 0, but p = {p}{adjusted}; they disagree, so there is no verdict.",
    "inside-margin": "The difference is statistically significant (p = {p}) but lies inside the stated margin of "
    "{margin:g}, so it counts as equivalent.",
    "unseen-values": "Equivalence is not shown: {units} cannot rule out a kind of prompt that was not sampled and "
    "would move the mean to the margin of {margin:g} (p = {p}; values of the arms are up to {reach:.3g} apart). About "
    "{wanted} could.",
    "no-range": "Equivalence is not shown: all values of both arms are equal, so the range of possible values is "
    "unknown.",
    "no-margin": "The margin was stated for {declared}. {metric} has no margin, so its verdict cannot be 'equivalent'.",
    "small-datasets": "No interval with equal weight per data set: fewer than {least} clusters in {names}.",
    "simpson": "Simpson's paradox: the pooled difference is {pooled:+.3f}, but every data set has the opposite sign. "
    "The arms distribute their steps differently over the data sets.",
    "simpson-balanced": "Simpson's paradox: the pooled difference is {pooled:+.3f}, with equal weight per data set it "
    "is {balanced:+.3f}. The mix of prompts decides the sign.",
    "verdict-by-mix": "The verdict is {pooled} pooled and {balanced} with equal weight per data set: the mix of "
    "prompts decides it.",
    "heterogeneity-left-out": "Excluded from the comparison of data sets (no standard error, or fewer than {least} "
    "prompts or clusters that differ): {names}.",
    "datasets-few-or-skewed": "The test that all data sets are equal includes data sets with few or skewed units "
    "({names}): it may reject too often.",
    "few-datasets": "{n} data sets are too few to estimate how much data sets differ in general.",
    "shared-clusters": "Some clusters span data sets, so data sets are not independent and the test of equality is "
    "approximate.",
    "pairs-lost": "{n} of {total} prompts have no pair and are excluded: {reasons}.",
    "missing-differs": "Values are not missing at random: the mean of {arm} is {lost} on the {n} prompts without a "
    "pair and {kept} on those with one ({difference}, {p}). The comparison covers only the prompts with a pair.",
    "missing-bounds": "With {n} more prompts that only one arm has, the difference could be anywhere from {bounds} "
    "({seen} over the pairs), if unknown values lie between {least} and {most}.",
    "not-lossless": "{run}: {n} of {total} outputs differ from plain decoding at tokens where the target's two largest "
    "logits were not tied. The arm is not lossless here.",
    "claims-disagree": "The outputs of the arms differ on {n} of {total} prompts, yet both are recorded as equal to "
    "plain decoding. At most one can be. Check the decoding settings and the baseline of each run.",
    "values-by-order": "The tables have no prompt ids. Rows are paired by their order, which cannot be verified.",
    "values-alone": "A table of values does not record target, drafter, training or the selection of prompts, so it is "
    "not known whether the arms were treated alike.",
    "other-protocol": "Both runs have protocol {protocol}, but it is not shown: {reason}.",
    "same-run": "A and B are the same run: all tables have the same bytes, so nothing can differ.",
    "baseline-drafts": "The baseline {run} is not plain decoding: it has {tau:.2f} tokens per verification step. "
    "Speed-ups over it are not speed-ups over plain decoding.",
    "unfinished": "{run} is {status}, not complete: its numbers may change.",
    "gates-nan": "{run}: gate_stats contains NaN or infinite values, so the section on gates is omitted.",
    "differs": "The arms differ in {what}: {a} (A), {b} (B).",
    "unknown": "Not known to be equal in both arms: {what}.",
    "history-nan": "{run}: the training loss is NaN or infinite at {n} of {total} steps, first at step {first}.",
    "history-short": "{run}: the history has {n} steps, the manifest {total}: part of the training is missing.",
    "history-diverged": "{run}: the training diverged; its loss ended at {last:.2f} after a minimum of {best:.2f}.",
    "history-spikes": "{run}: the training loss spiked at {n} step(s), first at step {first}.",
    "history-rising": "{run}: validation accepted length was still rising at the end ({before:.2f} after three "
    "quarters of the training, {last:.2f} at the end). More training would change this arm.",
    "post-hoc": "Post hoc: the data set(s) {names} were selected from {total} by the caller, and not all of their "
    "prompts are recorded as confirmatory. Treat the result as a hypothesis.",
    "exploratory": "The prompts are recorded as exploratory. Confirm the result on prompts that were not used before.",
    "mixed-roles": "Exploratory and confirmatory prompts are mixed: {roles}.",
    "overlap": "{prompts} confirmatory prompts and {clusters} clusters of confirmatory prompts were also used in an "
    "exploratory evaluation, so they cannot confirm its result.",
    "below-floor": "{arm} is below {floor}, which needs no training: {metric} {value} against {of_floor} on the same "
    "answers (difference {interval}, {n} pairs).",
    "below-published": "Both arms are clearly below the published {method} drafter of this target: tau {a:.2f} and "
    "{b:.2f}, published {published:.2f} ({datasets}, {source}). A difference between two weak drafters may not carry "
    "over to strong ones.",
    "loops": "{n} of {total} outputs of {arm} are mostly repetition, which is easy to draft. Its pooled tau is {tau}, "
    "without them {without}.",
    "lengths-differ": "Mean output length is {a} tokens under A and {b} under B, so pooled numbers weight different "
    "text.",
    "baseline-differs": "The output of {arm} differs from the baseline's on {n} of {total} prompts{where}. Greedy "
    "lossless decoding would give the same output, except at near-ties.",
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
    "one-seed-per-level": "Every level was trained once: the intervals cover the choice of prompts, for these "
    "checkpoints, and not other trainings.",
    "one-seed-per-cell": "Every cell was trained once: the intervals cover the choice of prompts, for these "
    "checkpoints, and not other trainings.",
    "one-seed": "The intervals cover the choice of prompts, for these two checkpoints. They do not cover another "
    "training run: each arm was trained once, and another seed could move the difference.",
}


def caution(code: str, *, named: str | None = None, **facts: object) -> Caution:
    """The caution of this code, with its facts filled in; ``named`` makes it ``<named>-<code>``."""
    return Caution(f"{named}-{code}" if named else code, _CAUTIONS[code].format(**facts))
