"""What ends a training early.

SIGINT and SIGTERM end it after the step that is running, with a checkpoint; a second one ends it at once. A gradient
that is not finite ends it before the weights take it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from analysis.errors import DataError


class StopRequest:
    """Whether the process has been asked to stop."""

    def __init__(self) -> None:
        self.requested = False


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Inside, the first signal is a request. Handlers belong to the main thread: elsewhere nothing is requested."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def heard(number: int, frame: FrameType | None) -> None:
        request.requested = True
        restore()

    for number in numbers:
        signal.signal(number, heard)
    try:
        yield request
    finally:
        restore()


class NotFiniteError(DataError):
    """A gradient is NaN or infinite. The weights are those before the step; ``examples``: the ids of its examples."""

    def __init__(self, step: int, lr: float, loss: float | None, grad_norm: float, examples: list[str]):
        super().__init__(f"step {step}: the gradient is not finite (norm {grad_norm}, loss {loss}, lr {lr:.3g})")
        self.step, self.lr, self.loss, self.grad_norm, self.examples = step, lr, loss, grad_norm, examples
