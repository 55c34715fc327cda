"""The reader's questions, answered in sentences: is B better, by how much, where, why, how sure, what next."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal

from analysis import wording
from analysis.comparison.facts import ArmSummary
from analysis.comparison.pairwise import Comparison
from analysis.measures.controls import readings
from analysis.measures.exploration import roles_in_words
from analysis.measures.sessions import Design
from analysis.report.sections.speed import answers_told
from analysis.stats.estimate import Estimate
from analysis.stats.method import FEWEST, Method
from analysis.stats.sensitivity import POWER
from analysis.wording import Verdict, counted, interval, number, one_line, signed

#: With fewer prompts than this the minimum detectable effect is stated whatever the verdict.
SMALL = 100


def headline(c: Comparison) -> str:
    """The conclusion in one sentence."""
    return wording.headline(
        c.overall.verdict, c.estimand, [(c.a.label, c.overall.mean_a), (c.b.label, c.overall.mean_b)], _facts(c)
    )


#: Cautions that can change the conclusion; they are shown beside it.
_FIRST = (
    "below-floor",
    "simpson",
    "simpson-balanced",
    "verdict-by-mix",
    "missing-differs",
    "claims-disagree",
    "not-lossless",
)


def chosen(c: Comparison) -> str:
    """The protocol of the report, if the runs have another and the user requested none."""
    others = c.declaration.chosen_over
    if not others:
        return ""
    return f"Protocol {c.protocol} by default; the runs also have {' and '.join(others)} (--protocol {others[0]})."


def first_cautions(c: Comparison) -> list[str]:
    """The cautions that can change the conclusion."""
    return [x.text for x in c.cautions if x.code in _FIRST]


def _facts(c: Comparison) -> str:
    return facts(c.overall, c.pairs.described)


def facts(e: Estimate, units: str | None = None) -> str:
    """``a difference of +0.15 (95% interval +0.07 to +0.22; p = 0.0003; 700 prompts in 40 clusters)``."""
    pairs = units or counted(e.n_pairs, "prompt")
    if e.n_clusters < e.n_pairs:
        pairs += f" in {counted(e.n_clusters, 'cluster')}"
    if e.verdict is Verdict.IDENTICAL:  # nothing was left to test
        return f"equal on each of {pairs}"
    inside = ""
    if e.verdict is Verdict.EQUIVALENT and e.equivalence is not None:
        q = e.equivalence
        inside = f"; 90% interval {interval(q.lo, q.hi)} inside a margin of {q.margin:g}"
        inside += f", two one-sided tests {wording.equals_p(q.p_adjusted)}"
    p = wording.equals_p(e.p)
    return f"a difference of {signed(e.estimate)} (95% interval {interval(e.lo, e.hi)}; {p}; {pairs}{inside})"


@dataclass(frozen=True)
class Answer:
    """A question of the reader with its answer. ``topic``: a stable code of the question."""

    topic: Literal["better", "amount", "datasets", "dynamics", "certainty", "next"]
    question: str
    text: str


def answers(c: Comparison) -> list[Answer]:
    """The questions that this comparison can answer, in the order of a report."""
    every = [
        Answer("better", "Is B better?", f"{_capital(c.overall.verdict)}: {_facts(c)}."),
        Answer("amount", "By how much?", _how_much(c)),
        Answer("datasets", "On which data sets?", _where(c)),
        Answer("dynamics", "Is it the gate's dynamics, or only its mean?", _why(c)),
        Answer("certainty", "How sure is this?", _how_sure(c)),
        Answer("next", "What would change our mind?", " ".join(_step(code, c) for code in next_steps(c))),
    ]
    return [answer for answer in every if answer.text]


def _how_much(c: Comparison) -> str:
    e = c.overall
    if e.mean_a is None or e.estimate is None:
        return ""
    text = f"{number(e.mean_b)} against {number(e.mean_a)} {c.estimand.unit}, {100 * e.estimate / e.mean_a:+.1f}%."
    if e.verdict is Verdict.IDENTICAL:
        text = f"{number(e.mean_a)} {c.estimand.unit} in both."
    if c.speed is not None and (speed := c.speed.pooled("B", "A").get(None)):
        text += f" In time per token B is {wording.times(speed.estimate, speed.lo, speed.hi)} as fast as A, on "
        text += answers_told(c, speed.n_pairs)
        text += " (one timing session per arm, so no verdict on speed)." if speed.design is Design.ONE_EACH else "."
    return text


def _where(c: Comparison) -> str:
    if len(c.by_dataset) < 2:
        return ""
    if c.overall.n_zero == c.overall.n_pairs:
        return "The arms do not differ on any of them."
    words: dict[str, list[str]] = {}
    for name, e in c.by_dataset.items():
        words.setdefault(e.verdict, []).append(f"{one_line(name)} {signed(e.estimate, 2)}")
    several = len(c.by_dataset)
    parts = [f"{verdict} on {', '.join(names) if len(names) < 4 else f'{len(names)} of {several} data sets'}"
             for verdict, names in sorted(words.items(), key=lambda item: item[0] == Verdict.INCONCLUSIVE)]  # fmt: skip
    text = _capital("; ".join(parts)) + "."
    different = [
        f"{one_line(i.dataset)} ({signed(i.estimate, 2)} against {i.against})" for i in c.interactions if i.shown
    ]
    if different:
        return text + f" Significantly different from the other data sets: {', '.join(different)}."
    return text + " No data set differs significantly from the others; do not read the estimates as different."


def _why(c: Comparison) -> str:
    if not any(arm.gates is not None and arm.gates.moving for arm in (c.a, c.b)) and not c.controls:
        return ""
    if not c.controls:
        return (
            "Unknown without controls: the gate frozen at its mean, the gate shuffled over tokens, and an arm trained "
            "with a static gate, each on the same prompts (--control)."
        )
    against = "; ".join(
        f"{one_line(control.label)}: {control.lost.verdict}, {signed(control.lost.estimate)} "
        f"({interval(control.lost.lo, control.lost.hi)})"
        for control in c.controls
    )
    return " ".join([f"B against {against}.", *(_OF_CONTROLS[code] for code in readings(c.controls))])


_NO_HELP = "the dynamics of its gate do not help here."
_NO_EVIDENCE = "is not statistically distinguishable from B: there is no evidence that the dynamics help."
_OTHER_TOKENS = "B gets worse with the gates of other tokens, which overstates what its own contribute."
#: The codes of ``readings`` as sentences.
_OF_CONTROLS = {
    "conflict": "The controls disagree: the arm trained with a static gate is worse, yet freezing or shuffling B's own "
    "gate has no detectable cost. The dynamics of the gate are then an unlikely reason for the difference, which may "
    "be one between two trainings. Further seeds would show which.",
    "own-mixed": "Controls of the same kind disagree.",
    "frozen-worse": "B gets worse when its gate is frozen. This overstates the effect of the dynamics, because the "
    "projection was trained with a moving gate.",
    "shuffled-worse": _OTHER_TOKENS,
    "shuffled-worse-frozen-unclear": f"{_OTHER_TOKENS} Freezing the gate has no detectable cost.",
    "shuffled-worse-frozen-better": f"{_OTHER_TOKENS} Freezing the gate helps.",
    "frozen-better": f"B is better with its gate frozen: {_NO_HELP}",
    "shuffled-better": f"B is better with its gate shuffled: {_NO_HELP}",
    "frozen-or-shuffled-better": f"B is better with its gate frozen or shuffled: {_NO_HELP}",
    "frozen-unclear": f"B with its gate frozen {_NO_EVIDENCE}",
    "shuffled-unclear": f"B with its gate shuffled {_NO_EVIDENCE}",
    "frozen-or-shuffled-unclear": f"B with its gate frozen or shuffled {_NO_EVIDENCE}",
    "static-worse": "The moving gate beats a gate trained to be static: the dynamics matter here, as far as one "
    "training of each can show.",
    "static-better": "An arm trained with a static gate is better than B: the dynamics do not help here.",
    "static-unclear": "B is not statistically distinguishable from an arm trained with a static gate: there is no "
    "evidence that the dynamics matter.",
    "static-mixed": "The arms trained with a static gate disagree; further seeds are needed.",
    "static-missing": "Only an arm trained with a static gate can show what the dynamics contribute.",
}


def _how_sure(c: Comparison) -> str:
    e, d = c.overall, c.declaration
    method = "No test is possible" if e.method is Method.NONE else wording.METHODS[e.method].capitalize()
    text = "Nothing to test" if e.verdict is Verdict.IDENTICAL else method
    text += f"; {c.pairs.described}"
    text += f", {counted(e.n_clusters, 'cluster')}. " if e.n_clusters < e.n_pairs else ". "
    text += (
        f"Prompt role (exploratory or confirmatory): {roles_in_words(d.roles)}"
        f"{'; data sets picked after looking (post hoc)' if d.post_hoc else ''}. "
    )
    return text + "Each arm was trained once, so other training seeds are not covered."


def next_steps(c: Comparison) -> tuple[str, ...]:
    """What would change the conclusion, as codes: keys of ``_NEXT``, and before them what the test could detect."""
    e, codes = c.overall, []
    if e.verdict is Verdict.IDENTICAL:
        checkpoints = {arm.manifest.drafter and arm.manifest.drafter.checkpoint_sha256 for arm in (c.a, c.b)}
        codes.append("same-checkpoint" if len(checkpoints) == 1 and None not in checkpoints else "prompts-that-differ")
    elif (e.verdict is Verdict.INCONCLUSIVE or e.n_pairs < SMALL) and (detectable := _detectable(e)):
        codes.append(detectable)
    if e.verdict is Verdict.INCONCLUSIVE:
        codes.append("power")
    if e.verdict in (Verdict.INCONCLUSIVE, Verdict.IDENTICAL) and c.declaration.margin is None:
        codes.append("margin")
    codes.append("seeds")
    if not c.declaration.confirmatory:
        codes.append("confirm")
    return tuple(codes)


def _detectable(e: Estimate) -> str | None:
    """The code of what the test could have detected; None without any spread, where there is nothing to say."""
    if e.mde is not None:
        return "detectable"
    if e.se is None or (e.method.counts_signs and e.n_clusters < FEWEST):
        return "nothing-detectable"
    return "detectable-unknown" if e.se else None


def _step(code: str, c: Comparison) -> str:
    power = f"{_quoted(c.a)} {_quoted(c.b)} --protocol {c.protocol} --metric {c.estimand.key} --effect {_worth(c)}"
    power += _of_logs(c)
    unit = f" {c.estimand.unit}" if c.estimand.unit else ""
    facts = {"mde": number(c.overall.mde), "share": f"{POWER:g}", "effect": f"{_worth(c)}{unit}", "power": power}
    return _NEXT[code].format(**facts)


def _worth(c: Comparison) -> str:
    """A difference to plan for: the margin, else half of the minimum detectable effect."""
    effect = c.declaration.margin or (c.overall.mde / 2 if c.overall.mde else 0.1)
    return f"{max(effect, 0.01):.2g}"


def _quoted(arm: ArmSummary) -> str:
    return shlex.quote(arm.reference)


def _of_logs(c: Comparison) -> str:
    """The options with which the log files were read, that are compared in place of runs."""
    files = [
        file
        for arm in (c.a, c.b)
        for file in arm.manifest.sources or ()
        if arm.reference == file.path or arm.reference.startswith(f"{file.path}#")
    ]
    return "".join(dict.fromkeys(f" {file.options}" for file in files if file.options))


_NEXT = {
    "same-checkpoint": "Both runs evaluate the same checkpoint, so no difference is expected.",
    "prompts-that-differ": "Prompts on which the arms differ; on these they agree everywhere.",
    "detectable": "A true difference of {mde} would have been detected with probability {share}; smaller ones may have "
    "been missed.",
    "nothing-detectable": "No difference, however large, could have been detected with these data.",
    "detectable-unknown": "The minimum detectable effect is unknown: the arms differ on too few prompts.",
    "power": "To plan a new test: python -m analysis.power {power} gives the number of prompts for a difference of "
    "{effect}. Replace it by the smallest difference of interest, not by the difference observed here.",
    "margin": "To conclude that there is no relevant difference, state a margin beforehand (--margin).",
    "seeds": "Several training seeds per arm (--vs) would show whether the result holds for other trainings.",
    "confirm": "A confirmatory prompt set, chosen beforehand, would rule out selection after looking.",
}


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
