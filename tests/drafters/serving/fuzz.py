"""Requests that are wrong: wrong types, cut or random bytes, huge bodies, clients that go away."""

import json
import random
import socket

import httpx

VALUES = [None, True, -1, 0, 1, 3, 1.5, 1e400, "", "tiny", "x" * 300, [], {}, [1, 2], ["a"], [[1]], {"type": "text"}]
FIELDS = ["model", "prompt", "messages", "max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "stream",
          "stream_options", "ignore_eos", "n", "logprobs", "tools", "unknown"]  # fmt: skip


def fuzz(address, count, seed):
    """Send ``count`` requests that are wrong in one way or another; statuses seen."""
    draws = random.Random(seed)
    host, port = address.removeprefix("http://").split(":")
    statuses = []
    with httpx.Client(timeout=60) as client:
        for _ in range(count):
            body = {"model": "tiny", "prompt": [5, 6], "max_tokens": 3}
            for name in draws.sample(FIELDS, draws.randint(0, 3)):
                body[name] = draws.choice(VALUES)
            raw = json.dumps(body).encode()
            kind = draws.random()
            if kind < 0.2:
                raw = raw[: draws.randrange(len(raw) + 1)]
            elif kind < 0.3:
                raw = bytes(draws.randrange(256) for _ in range(draws.randrange(200)))
            elif kind < 0.35:
                raw += b" " * (1 << 17)
            path = draws.choice(["/v1/completions", "/v1/completions", "/v1/chat/completions", "/health", "/v2"])
            if kind > 0.9:  # a client that goes away, before or after its request is whole
                with socket.create_connection((host, int(port))) as wire:
                    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n".encode()
                    wire.sendall((head + raw)[: draws.randrange(len(head) + len(raw) + 1)])
            else:
                statuses.append(client.post(f"{address}{path}", content=raw).status_code)
    return statuses
