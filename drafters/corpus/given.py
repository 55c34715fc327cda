"""Answers that came with the data: where each stands in its chat, and which tokens are learnt.

An engine's answer may bring what the chat template writes too: a thought, its end token. Each is placed once. An
answer that the engine cut at its length limit has no end, so no stop token is learnt from it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from drafters.prompts.identity import Prompt, messages
from drafters.target.frozen import Target

_OPEN = "<think>"
_THOUGHT = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)
_TEMPLATE_THOUGHT = re.compile(r"<think>\s*(</think>\s*)?\Z")  # what a generation prompt may end with


class LeftOutError(Exception):
    """The reason why a given answer is no example."""


def answered_tokens(target: Target, prompt: Prompt) -> tuple[list[int], list[bool]]:
    """Tokens of a chat with its given answers, and which of them are an answer's (stop token included).

    The chat is what the target sees when it is to give the last answer, and that answer. An earlier answer is
    supervised if it stands there after just what the target saw when it was to give that one; templates that
    rewrite history (that drop thoughts, say) do not keep it so. Raises LeftOutError.
    """
    *history, last = prompt.answers
    chat = messages(prompt, history)
    seen = target.encode_chat(chat)
    text, said = place(target.render_chat(chat), _whole_answer(target, prompt), cut=prompt.cut)
    tokens = target.tokenizer.encode(text, add_special_tokens=False)
    answer = target.tokenizer.encode(said, add_special_tokens=False)
    end = next((i for i, token in enumerate(answer) if token in target.stop_ids), None)
    if end is not None:
        answer = answer[: end + 1]
    elif not prompt.cut:
        rendered = target.encode_chat([*chat, {"role": "assistant", "content": last}], generation_prompt=False)
        answer += [token for token in rendered if token in target.stop_ids][-1:]
    spans = [(len(tokens), len(tokens) + len(answer)), *_earlier_spans(target, prompt, history, seen, tokens)]
    tokens = tokens + answer
    return tokens, [any(first <= i < end for first, end in spans) for i in range(len(tokens))]


def place(prompt: str, answer: str, *, cut: bool = False) -> tuple[str, str]:
    """A rendered generation prompt and the answer after it, with one thought between them.

    A template may end the prompt with an empty thought (thinking off) or with an open one. An answer that brings a
    thought of its own replaces either; of two empty ones the template's stays, since the target does not write it.
    Raises LeftOutError for an answer without a thought after an open one.
    """
    found = _TEMPLATE_THOUGHT.search(prompt)
    if found is None:
        return prompt, answer
    closed, own = found.group(1) is not None, _THOUGHT.match(answer)
    if closed and own and not own.group(1).strip():
        return prompt, answer[own.end() :]
    if answer.lstrip().startswith(_OPEN):
        return prompt[: found.start()], answer.lstrip()
    if not closed and "</think>" not in answer and not cut:
        raise LeftOutError("an answer without a thought, although the chat template opens one")
    return prompt, answer


def thinks(prompt: Prompt) -> bool:
    """Whether the last given answer holds a thought that is not empty."""
    before, end, _ = prompt.answers[-1].partition("</think>")  # where the template opens it, the answer only ends it
    thought = before.strip().removeprefix(_OPEN) if end else ""
    return bool((prompt.thought or thought).strip())


def _whole_answer(target: Target, prompt: Prompt) -> str:
    """The last answer, with the thought that came in a field of its own before it."""
    if prompt.thought is None:
        return prompt.answers[-1]
    if _OPEN not in (target.chat_template or ""):
        raise LeftOutError("a thought in a separate field, which the chat template does not support")
    if prompt.cut and not prompt.answers[-1].strip():  # within the thought
        return f"{_OPEN}\n{prompt.thought.strip()}"
    return f"{_OPEN}\n{prompt.thought.strip()}\n</think>\n\n{prompt.answers[-1].lstrip()}"


def _earlier_spans(
    target: Target, prompt: Prompt, history: Sequence[str], seen: list[int], tokens: list[int]
) -> list[tuple[int, int]]:
    """Spans of earlier answers in ``tokens`` that stand after just what the target saw then."""
    spans = []
    for turn in range(len(history)):
        before = target.encode_chat(messages(prompt, history[:turn]))
        stops = (i for i in range(len(before), min(len(seen), len(tokens))) if tokens[i] in target.stop_ids)
        if tokens[: len(before)] == before and (end := next(stops, None)) is not None:
            spans.append((len(before), end + 1))
    return spans
