"""Text of a growing list of tokens, in pieces that are never taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class TextStream:
    """Turns runs of tokens into pieces of text whose concatenation is the text of all tokens.

    A token may hold part of a character, so what ends in an incomplete one waits for more. ``held``: characters at the
    end that wait until the text is finished, since a stop string may begin there. Each call decodes the last few tokens
    alone.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], held: int = 0):
        self._decode, self._held = decode, held
        self._tokens: list[int] = []
        self._before = self._read = 0  # tokens decoded as the left context of new ones; tokens whose text is out
        self._waiting = ""  # decoded, not given out
        self._given = 0

    def push(self, tokens: Sequence[int]) -> str:
        """The text that is now certain."""
        self._tokens += tokens
        context = self._decode(self._tokens[self._before : self._read])
        text = self._decode(self._tokens[self._before :])
        if len(text) > len(context) and not text.endswith("\ufffd"):
            self._waiting += text[len(context) :]
            self._before, self._read = self._read, len(self._tokens)
        return self._give(len(self._waiting) - self._held)

    def finish(self, tokens: Sequence[int] = (), end: int | None = None) -> str:
        """The rest of the text with the last tokens; ``end``: characters before the stop string, where one ended it."""
        self._tokens += tokens
        context = self._decode(self._tokens[self._before : self._read])
        self._waiting += self._decode(self._tokens[self._before :])[len(context) :]
        return self._give(len(self._waiting) if end is None else end - self._given)

    def _give(self, count: int) -> str:
        piece = self._waiting[: max(0, count)]
        self._waiting = self._waiting[len(piece) :]
        self._given += len(piece)
        return piece
