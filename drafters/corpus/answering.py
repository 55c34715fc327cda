"""How prompts become examples: the target answers them in batches, or reads answers that are there already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat

import torch

from analysis.errors import DataError
from drafters.corpus.given import LeftOutError, answered_tokens
from drafters.corpus.store import SHORT_ANSWER, CorpusExample
from drafters.prompts.identity import Prompt, messages
from drafters.target.frozen import Target

LeftOut = list[tuple[str, str]]  # (prompt id, reason)
NO_ANSWER = "no answer of the engine"


@dataclass(frozen=True)
class Chat:
    """A tokenised conversation."""

    prompt: Prompt
    tokens: list[int]
    supervised: list[bool] | None  # of given answers; None: the target is to answer


@dataclass(frozen=True)
class Answering:
    """How prompts become examples."""

    target: Target
    layer_ids: tuple[int, ...]
    max_new_tokens: int
    max_length: int
    dtype: torch.dtype

    def chats(
        self, prompts: Sequence[Prompt], given_answers: bool, answers: Mapping[str, Sequence[int]] | None = None
    ) -> tuple[list[Chat], LeftOut]:
        """The prompts that can become examples, tokenised, and those that cannot.

        ``answers``: tokens by prompt id, of an engine that the target's own answers were asked of.
        """
        chats: list[Chat] = []
        left_out: LeftOut = []
        for prompt in prompts:
            if given_answers and not prompt.answers:
                left_out.append((prompt.prompt_id, "no given answer"))
                continue
            if given_answers:
                try:
                    tokens, supervised = answered_tokens(self.target, prompt)
                except LeftOutError as reason:
                    left_out.append((prompt.prompt_id, str(reason)))
                    continue
                chat = Chat(prompt, tokens[: self.max_length], supervised[: self.max_length])
                usable = holds_anchor(supervised[: self.max_length])
            else:
                chat = Chat(prompt, self.target.encode_chat(messages(prompt)), None)
                usable = len(chat.tokens) + 2 <= self.max_length
                if usable and answers is not None:
                    if prompt.prompt_id not in answers:
                        left_out.append((prompt.prompt_id, NO_ANSWER))
                        continue
                    chat = self._answered(chat, answers[prompt.prompt_id])
            if usable:
                chats.append(chat)
            else:
                left_out.append((prompt.prompt_id, f"no room for an answer within {self.max_length} tokens"))
        return chats, left_out

    def _answered(self, chat: Chat, answer: Sequence[int]) -> Chat:
        supervised = [False] * len(chat.tokens) + [True] * len(answer)
        return Chat(chat.prompt, [*chat.tokens, *answer][: self.max_length], supervised[: self.max_length])

    def most_tokens(self, chat: Chat) -> int:
        """How long the example of this chat can become."""
        return min(len(chat.tokens) + (self.max_new_tokens if chat.supervised is None else 0), self.max_length)

    def examples(self, batch: Sequence[Chat]) -> tuple[list[CorpusExample], LeftOut]:
        """Run one batch. Raises DataError if ``dtype`` cannot hold a hidden state."""
        examples: list[CorpusExample] = []
        left_out: LeftOut = []
        for example in self._read(batch) if batch[0].supervised else self._answer(batch):
            if not holds_anchor(example.supervised.tolist()):
                left_out.append((example.example_id, SHORT_ANSWER))
            elif example.features is not None and not example.features.isfinite().all():
                cure = "; use bfloat16 for the features" if self.dtype == torch.float16 else ""
                raise DataError(
                    f"corpus: prompt {example.example_id}: a hidden state of the target is too large for "
                    f"{self.dtype}, or not a number{cure}"
                )
            else:
                examples.append(example)
        return examples, left_out

    def _answer(self, batch: Sequence[Chat]) -> list[CorpusExample]:
        output = self.target.greedy(
            [chat.tokens for chat in batch], self.max_new_tokens, layer_ids=self.layer_ids, feature_dtype=self.dtype
        )
        examples = []
        for chat, answer, features in zip(batch, output.tokens, output.features or repeat(None), strict=False):
            supervised = [False] * len(chat.tokens) + [True] * len(answer)
            examples.append(self._example(chat.prompt, chat.tokens + answer, supervised, features))
        return examples

    def _read(self, batch: Sequence[Chat]) -> list[CorpusExample]:
        if not self.layer_ids:
            return [self._example(chat.prompt, chat.tokens, chat.supervised or [], None) for chat in batch]
        width = max(len(chat.tokens) for chat in batch)
        # padding on the right comes after everything that causal attention lets a token see: no mask is needed
        ids = torch.tensor([chat.tokens + [self.target.pad_id] * (width - len(chat.tokens)) for chat in batch])
        output = self.target.forward(ids.to(self.target.device), layer_ids=self.layer_ids)
        assert output.features is not None
        return [
            self._example(chat.prompt, chat.tokens, chat.supervised or [], features.to(self.dtype))
            for chat, features in zip(batch, output.features, strict=True)
        ]

    def _example(
        self, prompt: Prompt, tokens: list[int], supervised: list[bool], features: torch.Tensor | None
    ) -> CorpusExample:
        length = min(len(tokens), self.max_length)
        return CorpusExample(
            example_id=prompt.prompt_id,
            dataset=prompt.dataset,
            cluster_id=prompt.cluster_id,
            tokens=torch.tensor(tokens[:length]),
            prompt_length=supervised.index(True),
            supervised=torch.tensor(supervised[:length]),
            features=None if features is None else features[: length - 1].cpu(),
        )


def holds_anchor(supervised: Sequence[bool]) -> bool:
    """An anchor is a supervised token with another right after it."""
    return any(here and after for here, after in pairwise(supervised))
