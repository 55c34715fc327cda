"""What a reader wants to know, answered in sentences: is B better, by how much, where, why, how sure, what next."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from analysis import wording
from analysis.comparison.facts import ArmSummary
from analysis.comparison.pairwise import Comparison
from analysis.measures.controls import Control
from analysis.measures.exploration import roles_in_words
from analysis.measures.sessions import Design
from analysis.report.sections.speed import answers_told
from analysis.stats.estimate import Estimate
from analysis.stats.method import FEWEST, Method
from analysis.stats.sensitivity import POWER
from analysis.wording import Verdict, counted, interval, number, one_line, signed

#: With fewer prompts than this the minimum detectable effect is told whatever the verdict.
SMALL = 100


def headline(c: Comparison) -> str:
    """The conclusion in one sentence."""
    return wording.headline(
        c.overall.verdict, c.estimand, [(c.a.label, c.overall.mean_a), (c.b.label, c.overall.mean_b)], _facts(c)
    )


#: Cautions that can turn the conclusion, so that they stand beside it.
_FIRST = ("simpson", "simpson-balanced", "verdict-by-mix", "missing-differs", "claims-disagree", "not-lossless")


def chosen(c: Comparison) -> str:
    """Which protocol this is about, where the runs have another and nobody said which."""
    others = c.declaration.chosen_over
    if not others:
        return ""
    return f"Protocol {c.protocol}, chosen over {' and '.join(others)} (--protocol {others[0]} compares that)."


def first_cautions(c: Comparison) -> list[str]:
    """What can turn the conclusion."""
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


def answers(c: Comparison) -> list[tuple[str, str]]:
    """The questions that this comparison can be asked, with their answers."""
    found = [
        ("Is B better?", f"{_capital(c.overall.verdict)}: {_facts(c)}."),
        ("By how much?", _how_much(c)),
        ("On which data sets?", _where(c)),
        ("Is it the gate's dynamics, or only its mean?", _why(c)),
        ("How sure is this?", _how_sure(c)),
        ("What would change our mind?", _what_next(c)),
    ]
    return [(question, answer) for question, answer in found if answer]


def _how_much(c: Comparison) -> str:
    e = c.overall
    if e.mean_a is None or e.estimate is None:
        return ""
    told = f"{number(e.mean_b)} against {number(e.mean_a)} {c.estimand.unit}, {100 * e.estimate / e.mean_a:+.1f}%."
    if e.verdict is Verdict.IDENTICAL:
        told = f"{number(e.mean_a)} {c.estimand.unit} in both."
    if c.speed is not None and (found := c.speed.pooled("B", "A").get(None)):
        told += f" In time per token B is {wording.times(found.estimate, found.lo, found.hi)} as fast as A, on "
        told += answers_told(c, found.n_pairs)
        told += ", of one timing session each: no verdict on speed." if found.design is Design.ONE_EACH else "."
    return told


def _where(c: Comparison) -> str:
    if len(c.by_dataset) < 2:
        return ""
    if c.overall.n_zero == c.overall.n_pairs:
        return "The arms do not differ on any of them."
    words: dict[str, list[str]] = {}
    for name, e in c.by_dataset.items():
        words.setdefault(e.verdict, []).append(f"{one_line(name)} {signed(e.estimate, 2)}")
    told = _capital("; ".join(f"{verdict} on {', '.join(names)}" for verdict, names in words.items())) + "."
    different = [
        f"{one_line(i.dataset)} ({signed(i.estimate, 2)} against {i.against})" for i in c.interactions if i.shown
    ]
    if different:
        return told + f" Told from the rest by a test of the contrast: {', '.join(different)}."
    return told + " No data set is told from the others by a test of the contrast, so do not read them as different."


def _why(c: Comparison) -> str:
    if not any(arm.gates is not None and arm.gates.moving for arm in (c.a, c.b)) and not c.controls:
        return ""
    if not c.controls:
        return (
            "This comparison cannot tell: it wants the gate frozen at its mean, the gate shuffled over tokens, and an "
            "arm trained with a static gate, each on the same prompts (--control)."
        )
    told = [
        f"Against {one_line(control.label)}, B: {control.lost.verdict}, {signed(control.lost.estimate)} "
        f"({interval(control.lost.lo, control.lost.hi)})"
        for control in c.controls
    ]
    return f"{'; '.join(told).replace('; Against', '; against')}. {_dynamics(c.controls)}".rstrip()


def _dynamics(controls: Sequence[Control]) -> str:
    """What the controls say together. Frozen and shuffled change one trained drafter, and overstate; static is fair
    but another training. A control of another kind, or of other weights than B's, says nothing of its dynamics."""
    frozen, shuffled = (_outcome(c for c in controls if c.kind == kind and c.of_b) for kind in ("frozen", "shuffled"))
    static = _outcome(c for c in controls if c.kind == "static")
    if static == "worse" and {frozen, shuffled} != {""} and not {frozen, shuffled} & {"worse", "mixed"}:
        return (
            "These do not agree: the arm trained with a static gate is worse, yet B's own gate can be held still or "
            "shuffled at no cost that can be told. Its movement is then hardly what sets B above that arm: the two "
            "are two trainings, and other seeds would have to say whether the difference is more than that."
        )
    told = [_of_own_gate(frozen, shuffled), _STATIC[static]]
    if "worse" in (frozen, shuffled) and not static:
        told.append("Only an arm trained with a static gate can tell what the dynamics give.")
    return " ".join(filter(None, told))


#: By what became of the arm, or arms, trained with a static gate.
_STATIC = {
    "": "",
    "worse": "A gate that moves beats one that was trained not to: the dynamics matter here, as far as one training of "
    "each can tell.",
    "better": "An arm trained with a static gate is better than B: the dynamics are no gain here.",
    "untold": "B is not told from an arm trained with a static gate: no sign here that the dynamics matter.",
    "mixed": "The arms trained with a static gate do not agree: other seeds would have to say more.",
}


def _outcome(controls: Iterable[Control]) -> str:
    """What B is without what these controls lack: ``worse``, ``better``, ``untold``; ``mixed`` where they disagree."""
    words = {Verdict.B_BETTER: "worse", Verdict.A_BETTER: "better"}
    found = {words.get(control.lost.verdict, "untold") for control in controls}
    return "mixed" if len(found) > 1 else next(iter(found), "")


def _of_own_gate(frozen: str, shuffled: str) -> str:
    """What B's own gate, frozen and shuffled, says."""
    if "mixed" in (frozen, shuffled):
        return "Controls of one kind do not agree."
    if frozen == "worse":
        return (
            "B's trained gate needs its movement, but freezing overstates that, since the projection was trained with "
            "a moving gate."
        )
    if shuffled == "worse":
        still = {
            "": "",
            "untold": " Held still it costs B nothing that can be told.",
            "better": " Held still it helps.",
        }
        return f"The gates of other tokens harm B, which overstates what its own give.{still[frozen]}"
    helped = [word for word, outcome in (("frozen", frozen), ("shuffled", shuffled)) if outcome == "better"]
    if helped:
        return f"B is better with its gate {' or '.join(helped)}: the movement of its gate is no gain here."
    tried = [word for word, outcome in (("frozen", frozen), ("shuffled", shuffled)) if outcome]
    if not tried:
        return ""
    return f"B with its gate {' or '.join(tried)} is not told from B: no sign here that it gains by moving."


def _how_sure(c: Comparison) -> str:
    e, d = c.overall, c.declaration
    method = "No test is possible" if e.method is Method.NONE else wording.METHODS[e.method].capitalize()
    told = "There was nothing to test" if e.verdict is Verdict.IDENTICAL else method
    told += f"; {c.pairs.described}"
    told += f", {counted(e.n_clusters, 'cluster')}. " if e.n_clusters < e.n_pairs else ". "
    told += (
        f"Role of the prompts: {roles_in_words(d.roles)}{'; picked after looking (post hoc)' if d.post_hoc else ''}. "
    )
    return told + "One training run per arm: nothing here speaks about another seed."


def _what_next(c: Comparison) -> str:
    e = c.overall
    told = []
    if e.verdict is Verdict.IDENTICAL:
        checkpoints = {arm.manifest.drafter and arm.manifest.drafter.checkpoint_sha256 for arm in (c.a, c.b)}
        same = len(checkpoints) == 1 and None not in checkpoints
        told.append(
            "Both runs are of one checkpoint, so no difference was to be expected."
            if same
            else "Prompts on which the arms differ at all: on these they cannot be told apart."
        )
    elif e.verdict is Verdict.INCONCLUSIVE or e.n_pairs < SMALL:
        told += filter(None, [_could_have_found(e)])
    if e.verdict is Verdict.INCONCLUSIVE:
        told.append(
            f"How many fresh prompts one test takes, for a difference of {_worth(c)} {c.estimand.unit} (put in the one "
            f"worth having, not the one seen here): python -m analysis.power {_quoted(c.a)} {_quoted(c.b)} "
            f"--protocol {c.protocol} --metric {c.estimand.key} --effect {_worth(c)}"
        )
    if e.verdict in (Verdict.INCONCLUSIVE, Verdict.IDENTICAL) and c.declaration.margin is None:
        told.append("To conclude that there is none, state a margin beforehand (--margin).")
    told.append("Several training seeds per arm (--vs) would tell whether this survives another training.")
    if not c.declaration.confirmatory:
        told.append("Prompts set aside beforehand as confirmatory would rule out a lucky look.")
    return " ".join(told)


def _worth(c: Comparison) -> str:
    """A difference to plan for: the margin, else half of what could have been found here."""
    found = c.declaration.margin or (c.overall.mde / 2 if c.overall.mde else 0.1)
    return f"{max(found, 0.01):.2g}"


def _quoted(arm: ArmSummary) -> str:
    return shlex.quote(arm.reference)


def _could_have_found(e: Estimate) -> str:
    if e.mde is not None:
        return (
            f"A true difference of {number(e.mde)} would have been found with probability {POWER:g}; smaller ones may "
            "well have been missed."
        )
    if e.se is None or (e.method.counts_signs and e.n_clusters < FEWEST):
        return "No difference, however large, could have been found with these data."
    if e.se:
        return "What difference could have been found cannot be told: the arms differ on too few prompts."
    return ""  # without spread there is none to speak of


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
