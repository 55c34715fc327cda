"""The web application: completions, chat completions, models, health and metrics over an engine."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from analysis.errors import DataError
from drafters.decoding.rows import Request
from drafters.decoding.sampling import Sampling
from drafters.serving.engine import Dead, Engine, Full, Update
from drafters.serving.metrics import CONTENT_TYPE
from drafters.serving.protocol import ApiError, ChatRequest, CompletionRequest, parse, usage
from drafters.serving.text import TextStream

COMPLETION_TOKENS = 16  # the API's default


#: Text, tokens and finish reason (with the last) of every update of a request.
Pieces = AsyncIterator[tuple[str, Sequence[int], str | None]]


@dataclass(frozen=True)
class Limits:
    """Most of everything that a client can ask for: bytes of a body, tokens of prompt and answer together."""

    body: int = 1 << 20
    length: int = 2048


def json_response(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """ASCII JSON, which also holds what is not valid Unicode."""
    return Response(json.dumps(data), status, headers, "application/json")


class Service:
    """One served model: its name, its engine, its limits."""

    def __init__(self, engine: Engine, model: str, limits: Limits):
        self.engine, self.model, self.limits = engine, model, limits
        self._created = int(time.time())
        self._numbers = itertools.count()

    def app(self) -> Starlette:
        """The application."""
        return Starlette(
            routes=[
                Route("/v1/completions", self.completions, methods=["POST"]),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                Route("/v1/models", self.models),
                Route("/health", self.health),
                Route("/metrics", self.metrics),
            ],
            exception_handlers={ApiError: _api_error, HTTPException: _http_error, ClientDisconnect: _gone},
        )

    async def health(self, request: HttpRequest) -> Response:
        """200 while the engine lives."""
        return Response(status_code=200 if self.engine.failure is None else 503)

    async def metrics(self, request: HttpRequest) -> Response:
        """Counters in the Prometheus format."""
        return Response(self.engine.metrics.page(), media_type=CONTENT_TYPE)

    async def models(self, request: HttpRequest) -> Response:
        """The one model."""
        card = {"id": self.model, "object": "model", "created": self._created, "owned_by": "draftlab"}
        return json_response({"object": "list", "data": [{**card, "max_model_len": self.limits.length}]})

    async def completions(self, request: HttpRequest) -> Response:
        """``POST /v1/completions``."""
        asked = parse(CompletionRequest, await self._body(request))
        self._check_model(asked.model)
        if isinstance(asked.prompt, str):
            tokens = await self._tokens(self.engine.target.tokenizer.encode, asked.prompt)
        else:
            tokens = asked.prompt
        return await self._answer(
            request, asked, tokens, asked.max_tokens or COMPLETION_TOKENS, _Completion(self.model)
        )

    async def chat(self, request: HttpRequest) -> Response:
        """``POST /v1/chat/completions``."""
        asked = parse(ChatRequest, await self._body(request))
        self._check_model(asked.model)
        messages = [message.plain() for message in asked.messages]
        tokens = await self._tokens(self.engine.target.encode_chat, messages)
        most = asked.max_completion_tokens or asked.max_tokens or max(1, self.limits.length - len(tokens))
        return await self._answer(request, asked, tokens, most, _Chat(self.model))

    async def _body(self, request: HttpRequest) -> bytes:
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > self.limits.body:
                raise ApiError(413, f"the body is larger than {self.limits.body:,} bytes")
        return bytes(body)

    def _check_model(self, name: str | None) -> None:
        if name != self.model:
            raise ApiError(404, f"The model `{str(name)[:100]}` does not exist.", "model")

    async def _tokens(self, encode: Any, text: Any) -> list[int]:
        try:
            return await run_in_threadpool(encode, text)
        except (DataError, UnicodeError, TypeError, ValueError) as error:
            raise ApiError(400, f"the prompt cannot be encoded: {str(error)[:200]}") from None

    async def _answer(
        self, request: HttpRequest, asked: Any, tokens: list[int], most: int, shape: _Completion | _Chat
    ) -> Response:
        vocabulary = self.engine.target.vocab_size
        if not tokens or max(tokens) >= vocabulary:
            raise ApiError(400, f"the prompt must hold at least one token, each under {vocabulary:,}", "prompt")
        if len(tokens) + most > self.limits.length:
            raise ApiError(
                400,
                f"This model's maximum context length is {self.limits.length:,} tokens; the prompt has "
                f"{len(tokens):,} and the answer may have {most:,}.",
                "max_tokens",
            )
        number = next(self._numbers)
        temperature = 1.0 if asked.temperature is None else asked.temperature
        wanted = Request(
            tokens,
            most,
            ("served", number if asked.seed is None else asked.seed),
            Sampling(temperature, asked.top_p or 1.0, max(0, asked.top_k or 0)),
            frozenset() if asked.ignore_eos else self.engine.target.stop_ids,
            asked.stops,
        )
        loop, updates = asyncio.get_running_loop(), asyncio.Queue[Update]()
        try:
            ticket = self.engine.submit(wanted, lambda u: loop.call_soon_threadsafe(updates.put_nowait, u))
        except Full:
            raise ApiError(429, "too many requests are waiting; try again later") from None
        except Dead as error:
            raise ApiError(503, f"the engine has failed: {error}") from None
        pieces = self._pieces(updates, wanted)
        if asked.stream:
            counted = asked.stream_options is not None and asked.stream_options.include_usage
            shown = bool(asked.return_token_ids)
            events = _events(pieces, shape, len(tokens), counted, shown, lambda: self.engine.cancel(ticket))
            return StreamingResponse(events, media_type="text/event-stream")
        whole = asyncio.ensure_future(_collect(pieces))
        left = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait({whole, left}, return_when=asyncio.FIRST_COMPLETED)
            if not whole.done():
                raise ClientDisconnect
            text, answer, reason = whole.result()
        finally:
            self.engine.cancel(ticket)
            for task in (whole, left):
                task.cancel()
        if reason == "error":
            raise ApiError(500, f"the engine has failed: {self.engine.failure or 'it was stopped'}")
        found = shape.whole(text, reason)
        if asked.return_token_ids:
            found["choices"][0] |= {"prompt_token_ids": tokens, "token_ids": answer}
        return json_response({**found, "usage": usage(len(tokens), len(answer))})

    async def _pieces(self, updates: asyncio.Queue[Update], wanted: Request) -> Pieces:
        held = max((len(stop) - 1 for stop in wanted.stop_strings), default=0)
        stream = TextStream(self.engine.target.decode, held)
        while True:
            update = await updates.get()
            if update.finish_reason is not None:
                text = stream.finish(update.tokens, update.text_end)
                yield text, update.tokens, update.finish_reason
                return
            yield stream.push(update.tokens), update.tokens, None


class _Completion:
    """Objects of the completions endpoint."""

    def __init__(self, model: str):
        self.common = {"id": f"cmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    def whole(self, text: str, reason: str) -> dict[str, Any]:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        return {**self.common, "object": "text_completion", "choices": [choice]}

    def opening(self) -> list[dict[str, Any]]:
        return []

    def chunk(self, text: str, reason: str | None) -> dict[str, Any]:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        return {**self.common, "object": "text_completion", "choices": [choice]}

    def closing(self, counts: dict[str, int]) -> dict[str, Any]:
        return {**self.common, "object": "text_completion", "choices": [], "usage": counts}


class _Chat:
    """Objects of the chat endpoint."""

    def __init__(self, model: str):
        self.common = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    def whole(self, text: str, reason: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        return {**self.common, "object": "chat.completion", "choices": [choice]}

    def opening(self) -> list[dict[str, Any]]:
        return [self._chunk([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])]

    def chunk(self, text: str, reason: str | None) -> dict[str, Any]:
        return self._chunk([{"index": 0, "delta": {"content": text} if text else {}, "finish_reason": reason}])

    def closing(self, counts: dict[str, int]) -> dict[str, Any]:
        return {**self._chunk([]), "usage": counts}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self.common, "object": "chat.completion.chunk", "choices": choices}


async def _events(
    pieces: Pieces,
    shape: _Completion | _Chat,
    prompt: int,
    counted: bool,
    shown: bool,
    done: Any,
) -> AsyncIterator[str]:
    """Server-sent events, with token ids if ``shown``.

    ``done`` is called however it ends, a reader that leaves included.
    """
    count = 0
    try:
        for data in shape.opening():
            yield _event(data)
        async for text, tokens, reason in pieces:
            count += len(tokens)
            if reason == "error":
                yield _event(ApiError(500, "the engine has failed").body())
                return
            if text or reason or shown:
                chunk = shape.chunk(text, reason)
                if shown:
                    chunk["choices"][0]["token_ids"] = list(tokens)
                yield _event(chunk)
        if counted:
            yield _event(shape.closing(usage(prompt, count)))
        yield "data: [DONE]\n\n"
    finally:
        done()


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


async def _collect(pieces: Pieces) -> tuple[str, list[int], str]:
    texts: list[str] = []
    answer: list[int] = []
    ended = "error"
    async for text, tokens, reason in pieces:
        texts.append(text)
        answer += tokens
        ended = reason or ended
    return "".join(texts), answer, ended


async def _disconnected(request: HttpRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _api_error(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    headers = {"Retry-After": "1"} if error.status == 429 else None
    return json_response(error.body(), error.status, headers)


async def _http_error(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return json_response(ApiError(error.status_code, str(error.detail)).body(), error.status_code)


async def _gone(request: HttpRequest, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it
