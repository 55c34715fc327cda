"""A server as a child process: started, waited for, seen to die, and always stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from analysis.errors import DraftlabError

#: A line for the user.
Report = Callable[[str], None]

_POLL_S = 0.25
_TOLD_EVERY_S = 10.0
_TERM_S = 15.0


class ServerError(DraftlabError):
    """A server that did not start, died, or does not answer; the trial failed, the experiment goes on."""


def free_port() -> int:
    """A port of the loopback interface that nothing listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def is_taken(host: str, port: int) -> bool:
    """Whether something accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


class Child:
    """A server process in a group of its own, its output in a log file."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Path):
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            try:
                self._process = subprocess.Popen(
                    command,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, **env},
                    start_new_session=True,
                )
            except OSError as error:
                raise ServerError(f"cannot start {command[0]}: {error.strerror or error}") from error

    def death(self) -> str | None:
        """How the process ended, with its last line of output; None while it lives."""
        code = self._process.poll()
        if code is None:
            return None
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f"{how}: {lines[-1].strip()[:300]}" if lines else how

    def wait_death(self, seconds: float) -> str | None:
        """:meth:`death`, seen up to ``seconds`` later: connections break before the process is gone."""
        deadline = time.monotonic() + seconds
        while (found := self.death()) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def stop(self) -> None:
        """End the whole group: politely, then by force."""
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_TERM_S)
        # children of a server that is gone may still hold its port or its memory
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


@contextmanager
def running(
    command: Sequence[str], env: Mapping[str, str], log: Path, url: str, timeout_s: float, report: Report
) -> Iterator[Child]:
    """A healthy server at ``url`` (``http://host:port``) for the block; it is stopped whatever happens.

    Raises ServerError if the port is taken, the process dies, or it is not healthy in time.
    """
    host, port = httpx.URL(url).host, httpx.URL(url).port or 80
    if is_taken(host, port):
        raise ServerError(f"port {port} of {host} is taken by another process")
    child = Child(command, env, log)
    try:
        wait_healthy(url, timeout_s, report, child)
        yield child
    finally:
        child.stop()
        _wait_closed(host, port)


def wait_healthy(url: str, timeout_s: float, report: Report, child: Child | None = None) -> None:
    """Wait until ``/health`` answers 200. Raises ServerError if it does not in time, or ``child`` dies."""
    began = told = time.monotonic()
    with httpx.Client(timeout=2) as client:  # one for all looks: making one takes more time than a look
        while True:
            if child is not None and (death := child.death()) is not None:
                raise ServerError(f"died while starting ({death})")
            with suppress(httpx.HTTPError):
                if client.get(f"{url}/health").status_code == 200:
                    return
            now = time.monotonic()
            if now - began > timeout_s:
                raise ServerError(f"not healthy after {timeout_s:g} s")
            if now - told >= _TOLD_EVERY_S:
                told = now
                report(f"waiting for the server: {now - began:.0f} s, at most {timeout_s - (now - began):.0f} s more")
            time.sleep(_POLL_S)


def served_model(url: str) -> str:
    """The first model that the server at ``url`` names. Raises ServerError if it names none."""
    try:
        return str(httpx.get(f"{url}/v1/models", timeout=10).json()["data"][0]["id"])
    except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError) as error:
        raise ServerError(f"{url} names no model ({type(error).__name__})") from error


def _wait_closed(host: str, port: int) -> None:
    deadline = time.monotonic() + 5
    while is_taken(host, port) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
