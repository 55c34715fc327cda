"""Asks an OpenAI-compatible server for the target's answers, many at once, as token ids.

The prompt is sent as token ids, and the answer's ids are taken from ``token_ids``, which vLLM gives for
``return_token_ids`` and this project's server too: text that is tokenised again may give other tokens. A request that
failed for a passing reason is sent again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import httpx

TRIES = 4
PAUSE_S = 0.5  # before the second try; doubled before each further one
_PASSING = {408, 429, 500, 502, 503, 504}

#: Called with each answer: its key, its tokens and its finish reason.
Take = Callable[[str, list[int], str], None]


@dataclass(frozen=True)
class Question:
    """A prompt as token ids, and the room for its answer."""

    key: str
    prompt: Sequence[int]
    max_tokens: int


@dataclass(frozen=True)
class Sampling:
    """How answers are chosen. The defaults are greedy."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def fields(self) -> dict[str, Any]:
        """Of a request. At temperature 0 the others have no effect, and are not sent."""
        return {"temperature": 0.0} if self.temperature == 0 else dict(vars(self))


class AskError(Exception):
    """Why there is no answer; ``passing``: another try may have one."""

    def __init__(self, reason: str, *, passing: bool):
        super().__init__(reason)
        self.reason, self.passing = reason, passing


@dataclass(frozen=True)
class Outcome:
    """How many were answered, by finish reason, and how many were not, by reason; tries beside the first."""

    answered: Mapping[str, int]
    failed: Mapping[str, int]
    retries: int


def ask_all(
    url: str,
    model: str,
    questions: Sequence[Question],
    take: Take,
    *,
    sampling: Sampling,
    stop_ids: AbstractSet[int],
    concurrency: int = 64,
    timeout_s: float = 600.0,
    pause_s: float = PAUSE_S,
) -> Outcome:
    """Ask every question, ``concurrency`` at a time; ``take`` gets the answers as they come, in any order.

    An answer that ends with reason ``stop`` must end with one of ``stop_ids``: without it a drafter would never learn
    where answers end.
    """
    asking = _Asking(f"{url.rstrip('/')}/v1/completions", model, sampling, stop_ids, take, timeout_s, pause_s)
    return asyncio.run(asking.all(questions, concurrency))


class _Asking:
    def __init__(
        self, url: str, model: str, sampling: Sampling, stop_ids: AbstractSet[int], take: Take, timeout_s: float,
        pause_s: float,
    ):  # fmt: skip
        self.url, self.model, self.sampling, self.stop_ids = url, model, sampling, stop_ids
        self.take, self.timeout_s, self.pause_s = take, timeout_s, pause_s
        self.answered: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.retries = 0

    async def all(self, questions: Sequence[Question], concurrency: int) -> Outcome:
        waiting = iter(questions)
        limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
        async with httpx.AsyncClient(limits=limits, timeout=self.timeout_s) as client:

            async def work() -> None:
                for question in waiting:
                    await self._settle(client, question)

            await asyncio.gather(*(work() for _ in range(min(concurrency, len(questions)))))
        return Outcome(dict(self.answered), dict(self.failed), self.retries)

    async def _settle(self, client: httpx.AsyncClient, question: Question) -> None:
        for attempt in range(TRIES):
            if attempt:
                self.retries += 1
                await asyncio.sleep(self.pause_s * 2 ** (attempt - 1))
            try:
                tokens, reason = await self._ask(client, question)
            except AskError as error:
                last = error.reason
                if error.passing:
                    continue
            else:
                self.take(question.key, tokens, reason)
                self.answered[reason] += 1
                return
            break
        self.failed[last] += 1

    async def _ask(self, client: httpx.AsyncClient, question: Question) -> tuple[list[int], str]:
        body = {
            "model": self.model,
            "prompt": list(question.prompt),
            "max_tokens": question.max_tokens,
            "return_token_ids": True,
            **self.sampling.fields(),
        }
        try:
            answer = await client.post(self.url, json=body)
        except httpx.TimeoutException as error:
            raise AskError(f"no answer within {self.timeout_s:g} s", passing=True) from error
        except httpx.HTTPError as error:
            raise AskError(f"connection broke: {type(error).__name__}", passing=True) from error
        if answer.status_code != 200:
            raise AskError(f"HTTP {answer.status_code}", passing=answer.status_code in _PASSING)
        return self._tokens(answer, question)

    def _tokens(self, answer: httpx.Response, question: Question) -> tuple[list[int], str]:
        try:
            choice = answer.json()["choices"][0]
            tokens, reason = choice.get("token_ids"), choice["finish_reason"]
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise AskError("malformed answer", passing=True) from error
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise AskError("the server returns no token_ids (vLLM does from 0.10.2 on)", passing=False)
        if not tokens or len(tokens) > question.max_tokens:
            raise AskError("no tokens" if not tokens else "more tokens than asked for", passing=False)
        if reason not in ("stop", "length"):
            raise AskError(f"finish reason {reason}", passing=True)
        if reason == "stop" and tokens[-1] not in self.stop_ids:
            raise AskError("ended without a stop token of the target", passing=False)
        return tokens, reason
