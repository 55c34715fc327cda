"""A load of fixed prompts over the OpenAI-compatible API, streamed, so that the times of tokens are real."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class Ask:
    """What every request has in common."""

    model: str
    max_tokens: int
    temperature: float = 0.0
    ignore_eos: bool = True
    seed: int = 0
    timeout_s: float = 300.0

    def body(self, prompt: Sequence[int]) -> dict[str, Any]:
        """A completion request; the prompt as token ids, so that every engine reads the same."""
        return {
            "model": self.model,
            "prompt": list(prompt),
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "ignore_eos": self.ignore_eos,
            "stream": True,
            "stream_options": {"include_usage": True},
        }


@dataclass(frozen=True)
class Answer:
    """One request. ``status``: ``ok``, or what went wrong; seconds from sending, to the first token and to the end."""

    prompt: int
    status: str
    ttft_s: float | None = None
    e2e_s: float | None = None
    output_tokens: int | None = None
    output_hash: str | None = None

    @property
    def ok(self) -> bool:
        """Whether it ended as it should."""
        return self.status == "ok"


@dataclass(frozen=True)
class Load:
    """All answers in the order of the prompts, and the seconds from the first request to the last answer."""

    answers: tuple[Answer, ...]
    duration_s: float


def text_hash(text: str) -> str:
    """16 hex digits of an output's text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def put_load(url: str, prompts: Sequence[Sequence[int]], ask: Ask, concurrency: int) -> Load:
    """Send every prompt once, ``concurrency`` at a time, in their order."""
    return asyncio.run(_put_load(url, prompts, ask, concurrency))


async def _put_load(url: str, prompts: Sequence[Sequence[int]], ask: Ask, concurrency: int) -> Load:
    answers: dict[int, Answer] = {}
    waiting = iter(range(len(prompts)))
    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    async with httpx.AsyncClient(limits=limits, timeout=ask.timeout_s) as client:
        began = time.perf_counter()

        async def work() -> None:
            for number in waiting:
                answers[number] = await _send(client, f"{url}/v1/completions", ask, prompts[number], number)

        await asyncio.gather(*(work() for _ in range(min(concurrency, len(prompts)))))
        duration = time.perf_counter() - began
    return Load(tuple(answers[i] for i in range(len(prompts))), duration)


async def _send(client: httpx.AsyncClient, url: str, ask: Ask, prompt: Sequence[int], number: int) -> Answer:
    try:
        async with asyncio.timeout(ask.timeout_s):
            return await _stream(client, url, ask, prompt, number)
    except TimeoutError:
        return Answer(number, f"no answer within {ask.timeout_s:g} s")
    except httpx.TimeoutException:
        return Answer(number, f"no answer within {ask.timeout_s:g} s")
    except httpx.HTTPError as error:
        return Answer(number, f"connection broke: {type(error).__name__}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Answer(number, f"malformed stream: {str(error)[:100]}")


async def _stream(client: httpx.AsyncClient, url: str, ask: Ask, prompt: Sequence[int], number: int) -> Answer:
    began = time.perf_counter()
    first: float | None = None
    ended: float | None = None
    texts: list[str] = []
    usage: dict[str, Any] | None = None
    async with client.stream("POST", url, json=ask.body(prompt)) as answer:
        if answer.status_code != 200:
            text = (await answer.aread()).decode("utf-8", "replace")
            return Answer(number, f"HTTP {answer.status_code}: {_message(text)}")
        done = False
        async for line in answer.aiter_lines():
            if not line.startswith("data:"):
                continue
            data = line[5:].strip()
            if data == "[DONE]":
                done = True
                break
            event = json.loads(data)
            if "error" in event:
                return Answer(number, f"error in the stream: {_message(data)}")
            if choices := event.get("choices"):
                now = time.perf_counter()
                first = now if first is None else first
                ended = now
                texts.append(choices[0].get("text") or "")
            usage = event.get("usage") or usage
    if not done:
        return Answer(number, "the stream was closed half-way")
    if first is None or ended is None:
        return Answer(number, "the stream held no token")
    if usage is None:
        return Answer(number, "the server reported no usage")
    tokens = int(usage["completion_tokens"])
    status = "ok"
    if ask.ignore_eos and tokens != ask.max_tokens:
        status = f"{tokens} tokens where {ask.max_tokens} were asked for: ignore_eos was not heeded"
    return Answer(number, status, first - began, ended - began, tokens, text_hash("".join(texts)))


def _message(text: str) -> str:
    """The message of an error body, in one line."""
    try:
        error = json.loads(text)["error"]
        text = error["message"] if isinstance(error, dict) else str(error)
    except (ValueError, KeyError, TypeError):
        pass
    return " ".join(text.split())[:200]
