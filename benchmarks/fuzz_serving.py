"""Ten thousand bad requests against the server: ``python benchmarks/fuzz_serving.py [--requests 10000] [--seed 1]``.

A server over a tiny random target, in this process. Malformed JSON, wrong types, huge bodies, clients that leave
half-way. Prints how often each status came, whether the server was healthy afterwards and still right, and one JSON
line last.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the tests' tiny target

import httpx

from analysis.errors import Parser, run_command
from drafters.decoding.decode import decode
from drafters.decoding.proposers import LookupProposer
from tests.drafters.serving.conftest import serving
from tests.drafters.serving.fuzz import fuzz
from tests.tiny import tiny_target

PROMPT = [10, 20, 30, 20, 30]


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python benchmarks/fuzz_serving.py", description="Bad requests against the server.")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    target = tiny_target()
    (expected,) = decode(target, None, [PROMPT], max_new_tokens=24, stop_ids=frozenset()).sequences
    with serving(target, LookupProposer(4)) as (address, engine):
        began = time.monotonic()
        statuses = Counter(fuzz(address, args.requests, args.seed))
        seconds = time.monotonic() - began
        deadline = time.monotonic() + 30
        while engine._loop.rows and time.monotonic() < deadline:
            time.sleep(0.05)
        asked = {"model": "tiny", "prompt": PROMPT, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
        found = httpx.post(f"{address}/v1/completions", json=asked, timeout=60).json()
        healthy = httpx.get(f"{address}/health").status_code == 200
        right = found["choices"][0]["text"] == target.decode(expected.tokens)
        left = len(engine._loop.rows) + len(engine._tickets)
    for status, count in sorted(statuses.items()):
        print(f"{status}: {count:,}")
    gone = args.requests - sum(statuses.values())
    print(f"clients that left: {gone:,}; healthy: {healthy}; right afterwards: {right}; requests left over: {left}")
    record = {"requests": args.requests, "seed": args.seed, "statuses": dict(sorted(statuses.items())), "left": gone}
    print(json.dumps(record | {"healthy": healthy, "right": right, "left_over": left, "seconds": round(seconds, 1)}))
    return 0 if healthy and right and not left else 1


if __name__ == "__main__":
    raise SystemExit(run_command(main))
