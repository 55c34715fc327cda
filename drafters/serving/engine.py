"""The engine: one thread that decodes whatever is asked, all requests in one batch.

Continuous batching: before every step the places of finished requests are taken by waiting ones, whose prompts run in
one pass; then all of them go on together.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drafters.decoding.loop import Loop
from drafters.decoding.proposers import Proposer
from drafters.decoding.rows import Request, Row
from drafters.model.acceptance import StepCount
from drafters.serving.metrics import Metrics
from drafters.target.frozen import Target


class Full(Exception):
    """Too many requests wait already."""


class Dead(Exception):
    """The engine has failed and decodes nothing any more."""


@dataclass(frozen=True)
class Update:
    """New tokens of a request. ``finish_reason`` (with the last ones): ``stop``, ``length`` or ``error``; ``text_end``:
    characters of the text before a stop string."""

    tokens: Sequence[int]
    finish_reason: str | None = None
    text_end: int | None = None


#: Called by the engine's thread with every update of a request.
Listener = Callable[[Update], object]


@dataclass(eq=False)
class Ticket:
    """A request that was taken, and who listens to it."""

    request: Request
    listener: Listener
    left: bool = False  # the reader has gone away


class Engine:
    """Decodes tickets in a thread of its own, ``places`` at once; ``waiting`` more may wait."""

    def __init__(
        self, target: Target, proposer: Proposer | None, metrics: Metrics, *, places: int = 8, waiting: int = 256
    ):
        self.target, self.metrics, self.places = target, metrics, places
        self._most_waiting = waiting
        self._loop = Loop(target, proposer, self._hear)
        self._queue: deque[Ticket] = deque()
        self._tickets: dict[int, Ticket] = {}  # by id of the request
        self._wake = threading.Condition()
        self._stopping = False
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Begin to decode."""
        self._thread.start()

    def stop(self) -> None:
        """End after the step under way; requests that are not done get ``error``."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def failure(self) -> str | None:
        """Why the engine has died; None while it lives."""
        return self._failure

    def submit(self, request: Request, listener: Listener) -> Ticket:
        """Queue a request. Raises Full if too many wait, Dead if the engine has failed."""
        with self._wake:
            if self._failure is not None or self._stopping:
                raise Dead(self._failure or "the server is stopping")
            if len(self._queue) >= self._most_waiting:
                raise Full
            ticket = Ticket(request, listener)
            self._queue.append(ticket)
            self.metrics.waiting.set(len(self._queue))
            self._wake.notify()
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Its reader has left: it is taken out before the next step."""
        with self._wake:
            ticket.left = True
            self._wake.notify()

    def _run(self) -> None:
        try:
            while self._take():
                if self._loop.rows:
                    self._loop.step()
        except Exception as error:
            self._failure = f"{type(error).__name__}: {error}"
        finally:
            with self._wake:
                self._stopping = True
                ended = [*self._tickets.values(), *self._queue]
                self._queue.clear()
            for ticket in ended:
                ticket.listener(Update((), "error"))

    def _take(self) -> bool:
        """Drop who has left, admit who waits; False once the engine is to stop. Waits while there is nothing to do."""
        with self._wake:
            while not (self._stopping or self._queue or self._loop.rows):
                self.metrics.running.set(0)
                self._wake.wait()
            if self._stopping:
                return False
            gone = [row for row in self._loop.rows if self._tickets[id(row.request)].left]
            new: list[Ticket] = []
            while self._queue and len(self._loop.rows) - len(gone) + len(new) < self.places:
                ticket = self._queue.popleft()
                if not ticket.left:
                    new.append(ticket)
            self.metrics.waiting.set(len(self._queue))
        for row in gone:
            self._loop.remove(row)
            del self._tickets[id(row.request)]
        if new:
            self._tickets |= {id(ticket.request): ticket for ticket in new}
            self.metrics.prompt_tokens.inc(sum(len(ticket.request.prompt) for ticket in new))
            self._loop.admit([ticket.request for ticket in new])
        self.metrics.running.set(len(self._loop.rows))
        return True

    def _hear(self, row: Row, step: StepCount | None, tokens: list[int]) -> None:
        self.metrics.generation_tokens.inc(len(tokens))
        if step is not None:
            self.metrics.step(step)
        ticket = self._tickets[id(row.request)]
        if row.finish_reason is not None:
            self.metrics.finished(row.finish_reason)
            del self._tickets[id(row.request)]
        ticket.listener(Update(tuple(tokens), row.finish_reason, row.text_end))
