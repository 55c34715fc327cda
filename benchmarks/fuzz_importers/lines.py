"""Logs of servers' lines: vLLM's windows of time (V1) and counts since the start (V0), and llama.cpp's requests."""

from __future__ import annotations

from random import Random

from benchmarks.fuzz_importers.damage import bytes_of
from benchmarks.fuzz_importers.declared import (
    PER_DRAFT,
    RECORDS,
    REDUCED,
    REFUSED,
    SAME,
    Case,
    Cases,
    Counts,
    Mutated,
    tokens_and_steps,
)


def _window(rng: Random) -> tuple[str, Counts]:
    """A line of vLLM: drafts of 3 tokens."""
    drafts = rng.randint(20, 400)
    at = [0, 0, 0]
    at[0] = rng.randint(1, drafts)
    at[1] = rng.randint(0, at[0])
    at[2] = rng.randint(0, at[1])
    accepted = sum(at)
    rates = ", ".join(f"{n / drafts:.3f}" for n in at)
    return (
        f"INFO SpecDecoding metrics: Mean acceptance length: {1 + accepted / drafts:.2f}, Accepted: {accepted} tokens, "
        f"Drafted: {3 * drafts} tokens, Per-position acceptance rate: {rates}, Avg Draft acceptance rate: "
        f"{100 * accepted / (3 * drafts):.1f}%"
    ), (drafts + accepted, drafts)


def _request(rng: Random) -> tuple[str, Counts]:
    """The lines of a request of llama.cpp."""
    passes = rng.randint(5, 80)
    drafts = rng.randint(1, passes)
    drafted = drafts * rng.randint(1, 6)
    accepted = rng.randint(0, drafted)
    return (
        f"slot print_timing: id 0 | eval time = 10.00 ms / {passes + accepted + 1} tokens\n"
        f"draft acceptance rate = {accepted / drafted:.5f} ({accepted} accepted / {drafted} generated)"
    ), (passes + accepted, passes)


#: Parts of a vLLM line, and what is right without each.
_PARTS = {
    "Mean acceptance length": (SAME,),
    "Accepted": (REDUCED,),
    "Drafted": (REDUCED,),
    "Per-position acceptance rate": (SAME,),
}


def _windows_and_requests(name: str, rng: Random) -> Cases:
    """Each mutation of a log whose lines are added."""
    make = _window if name == "vLLM log" else _request
    for what in ("untouched", "drop a field", "rename a field", "cut a line", "swap the order", "zero a list"):
        made = [make(rng) for _ in range(RECORDS)]
        lines, counts = [line for line, _ in made], [count for _, count in made]
        place = rng.randrange(RECORDS)
        right: tuple[str, ...] = (SAME,)
        if what in ("drop a field", "rename a field"):
            if name == "vLLM log":
                part = rng.choice(list(_PARTS))
                right = _PARTS[part]
                pieces = lines[place].split("metrics: ")
                parts = pieces[1].replace("rate: ", "rate: ").split(", ")
                head = next(i for i, piece in enumerate(parts) if piece.startswith(part))
                width = 3 if part.startswith("Per") else 1
                if what == "drop a field":
                    parts[head : head + width] = []
                else:
                    parts[head] = parts[head].replace(part, f"New {part.lower()} of all")
                    right = right if part in ("Accepted", "Drafted") else (SAME, REDUCED)
                lines[place] = f"{pieces[0]}metrics: {', '.join(parts)}"
            else:
                # without its time a request has no passes, so that the log is one of drafts
                right = (PER_DRAFT, REFUSED) if what == "drop a field" else (REDUCED,)
                lines[place] = lines[place].split("\n")[1] if what == "drop a field" else lines[place].replace(
                    "draft acceptance rate", "draft acceptance ratio")  # fmt: skip
        elif what == "cut a line":
            at = lines[place].index("metrics" if name == "vLLM log" else "draft acceptance") + 20
            lines[place] = lines[place][: rng.randrange(at, len(lines[place]))]
            right = (SAME, REDUCED) if name == "vLLM log" else (REDUCED,)
        elif what == "swap the order":
            rng.shuffle(lines)
        elif what == "zero a list" and name == "vLLM log":
            before, rest = lines[place].split("rate: ", 1)
            lines[place] = before + "rate: 0.000, 0.000, 0.000" + rest[19:]
            right = (REDUCED,)
        yield Case(name, "log", what, Mutated(bytes_of(lines), right, place), counts, tokens_and_steps)


def _since_start(rng: Random) -> tuple[list[str], list[Counts]]:
    """Lines of vLLM V0, with drafts of 3 tokens, and what each adds to the one before."""
    lines: list[str] = []
    counts: list[Counts] = []
    drafts = emitted = 0
    for _ in range(RECORDS):
        more = rng.randint(20, 400)
        tokens = rng.randint(more, 4 * more)
        drafts, emitted = drafts + more, emitted + tokens
        accepted = rng.randint(emitted - drafts, 3 * drafts)  # also those behind a rejected one
        lines.append(
            f"INFO metrics.py] Speculative metrics: Draft acceptance rate: {accepted / (3 * drafts):.3f}, System "
            f"efficiency: {emitted / (4 * drafts):.3f}, Number of speculative tokens: 3, Number of accepted tokens: "
            f"{accepted}, Number of draft tokens: {3 * drafts}, Number of emitted tokens: {emitted}."
        )
        counts.append((tokens, more))
    return lines, counts


def _v0(rng: Random) -> Cases:
    """Each mutation of a log whose last line counts. Without the last, the one before it does."""
    for what in ("untouched", "drop a field", "rename a field", "cut a line", "start the server again"):
        lines, counts = _since_start(rng)
        place = rng.choice([RECORDS - 1, rng.randrange(RECORDS)])
        right: tuple[str, ...] = (SAME,)
        if what in ("drop a field", "rename a field"):
            head, rest = lines[place].split("metrics: ")
            parts = rest.split(", ")
            part = rng.randrange(len(parts))
            parts[part : part + 1] = [] if what == "drop a field" else [f"New {parts[part].lower()}"]
            lines[place] = f"{head}metrics: {', '.join(parts)}"
            right = (REDUCED,)
        elif what == "cut a line":
            start = lines[place].index("metrics: ") + 20
            lines[place] = lines[place][: rng.randrange(start, len(lines[place]))]
            right = (SAME, REDUCED)  # the last of its digits may all be there
        elif what == "start the server again":
            more, of_more = _since_start(rng)
            lines, counts = lines + more, counts + of_more
        lost = place if right != (SAME,) and place == RECORDS - 1 else None
        yield Case("vLLM V0 log", "log", what, Mutated(bytes_of(lines), right, lost), counts, tokens_and_steps)


def cases_of(rng: Random) -> Cases:
    """Every mutation of every kind of lines, once."""
    for name in ("vLLM log", "llama.cpp log"):
        yield from _windows_and_requests(name, rng)
    yield from _v0(rng)
