"""A server over the tiny target in a thread, with prompt lookup as its drafter."""

import socket
import threading
import time
from contextlib import contextmanager

import httpx
import pytest

uvicorn = pytest.importorskip("uvicorn")

from drafters.decoding.proposers import LookupProposer  # noqa: E402
from drafters.serving.app import Limits, Service  # noqa: E402
from drafters.serving.engine import Engine  # noqa: E402
from drafters.serving.metrics import Metrics  # noqa: E402


@contextmanager
def serving(target, proposer, *, places=4, waiting=64, limits=Limits(length=400, body=1 << 16), around=None):  # noqa: B008
    """(address, engine) of a server; it is stopped at the end. ``around``: a wrapper of the application."""
    metrics = Metrics("tiny", proposer.block_size - 1 if proposer else 0)
    engine = Engine(target, proposer, metrics, places=places, waiting=waiting)
    engine.start()
    app = Service(engine, "tiny", limits).app()
    server = uvicorn.Server(
        uvicorn.Config(around(app) if around else app, log_level="critical", timeout_graceful_shutdown=1)
    )
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    while True:
        try:
            httpx.get(f"{address}/health", timeout=5)
            break
        except httpx.HTTPError:
            time.sleep(0.02)
    try:
        yield address, engine
    finally:
        server.should_exit = True
        engine.stop()
        thread.join(10)


@pytest.fixture(scope="session")
def served(tiny):
    with serving(tiny, LookupProposer(4)) as found:
        yield found


@pytest.fixture
def address(served):
    return served[0]
