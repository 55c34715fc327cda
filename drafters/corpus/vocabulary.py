"""A draft vocabulary: the tokens that a drafter predicts, chosen from what its target says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.errors import DataError


@dataclass(frozen=True)
class DraftVocabulary:
    """``ids``: target ids, ascending; and how many of them each source gave."""

    ids: tuple[int, ...]
    from_answers: int
    from_prompts: int
    from_order: int

    @property
    def note(self) -> str | None:
        """What a reader must know of a vocabulary that the answers did not fill."""
        if len(self.ids) == self.from_answers:
            return None
        return (
            f"draft vocabulary: the corpus's answers hold {self.from_answers} of {len(self.ids)} tokens; "
            f"{self.from_prompts} are from its prompts, {self.from_order} the first of the target's vocabulary"
        )


def draft_vocabulary(count: int, answers: np.ndarray, prompts: np.ndarray, mask_token_id: int) -> DraftVocabulary:
    """The ``count`` tokens most frequent in answers, then in prompts, then first in the target's vocabulary.

    ``answers``, ``prompts``: int64 [vocab], how often each token stands there; ties go to the smaller id. The ids of a
    byte-pair vocabulary are in the order of its merges, the most frequent first. The mask token is never predicted.
    Raises DataError if the target has fewer tokens.
    """
    usable = len(answers) - 1
    if count > usable:
        raise DataError(
            f"drafter.draft_vocab {count}: the target has {usable} tokens beside the mask; ask for 2 to that"
        )
    # by source, then by frequency there, then by id
    frequency = np.where(answers > 0, answers, prompts)
    source = np.where(answers > 0, 0, np.where(prompts > 0, 1, 2))
    order = np.lexsort((-frequency, source))
    chosen = order[order != mask_token_id][:count]
    given = np.bincount(source[chosen], minlength=3)
    return DraftVocabulary(tuple(sorted(chosen.tolist())), *given.tolist())
