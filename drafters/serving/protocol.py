"""The OpenAI API as this server speaks it: what a request may say, what is refused, what answers look like.

Fields that would change the output and are not supported are refused unless they have the value that changes nothing;
fields that are unknown are ignored, as the API's clients send their own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

MOST_STOPS = 4
#: Fields that are not supported, and the values under which they change nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "best_of": (None, 1),
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "echo": (None, False),
    "suffix": (None, ""),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "length_penalty": (None, 1),
    "min_p": (None, 0),
    "min_tokens": (None, 0),
    "use_beam_search": (None, False),
    "logit_bias": (None, {}),
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
    "functions": (None, []),
    "response_format": (None, {"type": "text"}),
    "stop_token_ids": (None, []),
}


_KINDS = {
    404: "NotFoundError",
    429: "RateLimitError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
}


class ApiError(Exception):
    """An error in the API's own format."""

    def __init__(self, status: int, message: str, param: str | None = None):
        super().__init__(message)
        self.status, self.message, self.param = status, message, param

    def body(self) -> dict[str, Any]:
        """The JSON that clients of the API read."""
        kinds = {
            404: "NotFoundError",
            429: "RateLimitError",
            500: "InternalServerError",
            503: "ServiceUnavailableError",
        }
        kind = kinds.get(self.status, "BadRequestError")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.status}}


class StreamOptions(BaseModel):
    """``stream_options``."""

    include_usage: bool = False


class _Common(BaseModel):
    # strict: a string is not a number; unknown fields are kept, and looked at by `_refuse_unsupported`
    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = None
    temperature: float | None = Field(default=None, ge=0, le=100, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    ignore_eos: bool | None = False
    max_tokens: int | None = Field(default=None, ge=1)
    return_token_ids: bool | None = False  # as vLLM has it: the answer's token ids beside its text

    @property
    def stops(self) -> tuple[str, ...]:
        """Stop strings, without empty ones."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(filter(None, given))


class CompletionRequest(_Common):
    """``POST /v1/completions``: the prompt as text or as token ids."""

    prompt: str | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]


class Message(BaseModel):
    """One message of a chat; its content is text, or parts that are text."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: str
    content: str | list[dict[str, Any]] | None = None

    def plain(self) -> dict[str, str]:
        """Role and text. Raises ApiError for a part that is not text."""
        if isinstance(self.content, list):
            parts = [part.get("text") for part in self.content if part.get("type") == "text"]
            if len(parts) != len(self.content) or not all(isinstance(part, str) for part in parts):
                raise ApiError(400, "only text content is supported", "messages")
            return {"role": self.role, "content": "".join(map(str, parts))}
        return {"role": self.role, "content": self.content or ""}


class ChatRequest(_Common):
    """``POST /v1/chat/completions``."""

    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)


Kind = TypeVar("Kind", bound=_Common)


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def parse(kind: type[Kind], body: bytes) -> Kind:
    """Read a request. Raises ApiError 400 that names what is wrong."""
    try:
        data = json.loads(body, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(data, dict):
        raise ApiError(400, "the body must be a JSON object")
    _refuse_unsupported(data)
    try:
        asked = kind.model_validate(data)
    except (ValidationError, RecursionError) as error:
        if isinstance(error, RecursionError):
            raise ApiError(400, "the body is nested too deeply") from None
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])[:100]
        raise ApiError(400, f"{field}: {first['msg'][:200]}", field) from None
    if len(asked.stops) > MOST_STOPS or any(len(stop) > 200 for stop in asked.stops):
        raise ApiError(400, f"stop: at most {MOST_STOPS} strings of at most 200 characters", "stop")
    return asked


def _refuse_unsupported(data: Mapping[str, Any]) -> None:
    for name, allowed in _NEUTRAL.items():
        value = data.get(name)
        # bool is a number in Python, and 1 == True: a flag does not pass for a count
        if not any(type(value) is type(a) and value == a for a in allowed) and not (
            isinstance(value, float) and math.isfinite(value) and value in [a for a in allowed if type(a) is int]
        ):
            raise ApiError(400, f"{name} is not supported", name)


def usage(prompt: int, completion: int) -> dict[str, int]:
    """Token counts, as the API has them."""
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
