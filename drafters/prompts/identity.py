"""A prompt, and what makes two prompts the same: ids, clusters, overlap, and the hash of a set.

Two identities, both hashes of content alone, so that they agree between data sets, files and machines:

* ``prompt_id``: the exact text (system message and user turns). Runs are paired by it.
* ``cluster_id``: the question behind the text, after :func:`normalise`. An augmented row (MetaMathQA) has the
  cluster of the question that it was made from; a prompt drawn from a template has the cluster of its template.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analysis.errors import DataError

ID_LENGTH = 16  # hex digits, 64 bits: a collision among a million prompts has probability 3e-8


@dataclass(frozen=True)
class Prompt:
    """One conversation to be answered; see the module for the two ids.

    ``answers`` are those that came with the data, one per turn, or empty; ``thought`` and ``cut`` are of the last one.
    """

    prompt_id: str
    dataset: str  # label in tables, e.g. "gsm_symbolic/seen"
    turns: tuple[str, ...]  # user turns, at least one
    cluster_id: str  # never empty
    system: str | None = None
    answers: tuple[str, ...] = ()
    category: str | None = None  # subject, type, MT-Bench category
    template: str | None = None  # id of the template that generated it
    thought: str | None = None  # that came in a field of its own
    cut: bool = False  # by the engine's length limit: the answer has no end
    by_name: bool = False  # held out of a training by its name, others of its question may have been trained on


def normalise(text: str) -> str:
    """The form in which questions are compared: Unicode NFKC, lower case, runs of white space as one space.

    NFKC folds width and ligatures (and x² into x2); punctuation, digits and word order stay as they are.
    """
    return " ".join(unicodedata.normalize("NFKC", text).lower().split())


def make_prompt(
    turns: Sequence[str],
    dataset: str,
    *,
    original: str | None = None,
    system: str | None = None,
    answers: Sequence[str] = (),
    category: str | None = None,
    template: str | None = None,
    thought: str | None = None,
    cut: bool = False,
) -> Prompt:
    """A prompt with its ids; ``original`` is the question that an augmented one was made from.

    Cluster: the template if there is one, else the original question, else the prompt's own user turns (without
    the system message: the same question under another instruction is the same question).
    Raises DataError for an empty turn, text that UTF-8 cannot encode, or answers that do not match the turns.
    """
    turns, answers = tuple(turns), tuple(answers)
    if not turns or not all(turn.strip() for turn in turns):
        raise DataError("the prompt is empty")
    if answers and len(answers) != len(turns):
        raise DataError(f"{len(answers)} answers for {len(turns)} turns; give one for each, or none")
    try:
        prompt_id = _short_hash(json.dumps([system, turns], ensure_ascii=False, separators=(",", ":")))
        cluster = template or _short_hash(normalise(original if original and original.strip() else "\n".join(turns)))
        "".join([*answers, thought or ""]).encode()
    except UnicodeEncodeError as error:
        raise DataError("the text holds half a surrogate pair, which is no character; repair its encoding") from error
    if not answers:
        thought, cut = None, False
    return Prompt(prompt_id, dataset, turns, cluster, system, answers, category, template, thought or None, cut)


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]


def messages(prompt: Prompt, replies: Sequence[str] = ()) -> list[dict[str, str]]:
    """Chat messages up to and including user turn ``len(replies)``; ``replies`` are the answers before it.

    Raises ValueError when there are as many replies as turns: nothing is left to answer.
    """
    if len(replies) >= len(prompt.turns):
        raise ValueError(f"{len(replies)} replies to {len(prompt.turns)} turns leave none to answer")
    chat = [{"role": "system", "content": prompt.system}] if prompt.system is not None else []
    for turn, reply in zip(prompt.turns, replies, strict=False):
        chat += [{"role": "user", "content": turn}, {"role": "assistant", "content": reply}]
    return [*chat, {"role": "user", "content": prompt.turns[len(replies)]}]


def prompt_set_hash(prompts: Iterable[Prompt]) -> str:
    """Hex sha256 over (prompt_id, dataset) in order: equal hashes mean the same prompts in the same order."""
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(json.dumps([prompt.prompt_id, prompt.dataset]).encode() + b"\n")
    return digest.hexdigest()


@dataclass(frozen=True)
class Overlap:
    """Test prompts without those that training has seen, and the ids of the removed ones by reason."""

    kept: tuple[Prompt, ...]
    same_prompt: tuple[str, ...]
    same_original: tuple[str, ...]


def remove_overlap(test: Iterable[Prompt], train: Iterable[Prompt]) -> Overlap:
    """Take out of ``test`` what occurs in ``train``: the same prompt, or one from the same original question.

    A shared *template* is no overlap (new numbers in a known text are what "seen template" means), so a
    prompt from a template goes only when it is the same prompt; so does one that was held out by its name.
    """
    train = tuple(train)
    seen_prompts = {prompt.prompt_id for prompt in train}
    seen_clusters = {prompt.cluster_id for prompt in train}
    kept: list[Prompt] = []
    same_prompt: list[str] = []
    same_original: list[str] = []
    for prompt in test:
        if prompt.prompt_id in seen_prompts:
            same_prompt.append(prompt.prompt_id)
        elif prompt.template is None and not prompt.by_name and prompt.cluster_id in seen_clusters:
            same_original.append(prompt.prompt_id)
        else:
            kept.append(prompt)
    return Overlap(tuple(kept), tuple(same_prompt), tuple(same_original))
