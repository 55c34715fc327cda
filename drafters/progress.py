"""Long work made visible: a bar with the time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

#: ``tick(done, note)``: how much is done by now, and a few words on how it goes.
Tick = Callable[[int, str], None]

_LINE_EVERY_S = 30.0


def say(line: str) -> None:
    """Tell on stderr what a slow step does."""
    Console(stderr=True).print(line, highlight=False, soft_wrap=True, markup=False)


@contextmanager
def progress(title: str, total: int, start: int = 0) -> Iterator[Tick]:
    """Show work of ``total`` units on stderr, ``start`` of which were done before (a resumed run)."""
    console = Console(stderr=True)
    if console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Bars(*columns, console=console) as bars:
            task = bars.add_task(title, total=total, completed=start, note="")
            yield lambda done, note: bars.update(task, completed=done, note=note)
        return
    began = last = time.monotonic()

    def line(done: int, note: str) -> None:
        nonlocal last
        now = time.monotonic()
        if done < total and now - last < _LINE_EVERY_S:
            return
        last = now
        left = (now - began) / max(1, done - start) * (total - done)
        text = f"{title}: {done}/{total}, {now - began:.0f} s, {left:.0f} s left  {note}".rstrip()
        console.print(text, highlight=False, soft_wrap=True)

    yield line
