"""Logs of every format, damaged in ways whose right outcome is known: ``python -m benchmarks.fuzz_importers [N]``.

A format makes a sound log with a known number of tokens and steps. A mutation declares what is right: the same value;
the value without one record, and that record counted as a problem; steps that are not known; or refusal in one line.
Anything else (another value, a traceback, a record lost without a word) is a fault. N logs in all (default 100,000) are
spread over all pairs of format and mutation.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from analysis.errors import DraftlabError
from analysis.importers.collect import collect
from analysis.importers.summary import lengths

SAME, REDUCED, UNKNOWN, REFUSED = "same", "reduced", "unknown", "refused"
#: Of so many records one may be lost: 5% is the most.
_RECORDS = 21

Record = Any
Counts = tuple[int, int]  # tokens, steps


@dataclass(frozen=True)
class Mutated:
    """A log, and the outcomes that are right; ``lost``: the record that ``reduced`` lacks."""

    data: bytes
    right: tuple[str, ...]
    lost: int | None = None


@dataclass(frozen=True)
class Format:
    """``make``: a record and its (tokens, steps); ``render``: the log of records; ``essential``, ``optional``: paths
    of fields without which a record cannot be used, or can; ``lists``: of lists that cannot be all zeros;
    ``filler``: of the list that says nothing where it is all zeros in every record."""

    name: str
    make: Callable[[Random, int], tuple[Record, Counts]]
    essential: Sequence[tuple[Any, ...]]
    optional: Sequence[tuple[Any, ...]]
    lists: Sequence[tuple[Any, ...]] = ()
    filler: tuple[Any, ...] | None = None
    csv: bool = False


def _steps(rng: Random, most: int = 8) -> list[int]:
    return [rng.randint(1, most) for _ in range(rng.randint(2, 7))]


def _answer(rng: Random, number: int, *, scalar: bool = False) -> tuple[Record, Counts]:
    turns = [_steps(rng) for _ in range(rng.randint(1, 2))]
    choice: dict[str, Any] = {
        "index": 0,
        "turns": [f"answer {number} {i}" for i in range(len(turns))],
        "new_tokens": [sum(turn) for turn in turns],
        "wall_time": [rng.uniform(0.1, 2) for _ in turns],
    }
    if scalar:
        choice["idxs"] = [len(turn) - 1 for turn in turns]
    else:
        choice["decoding_steps"] = [len(turn) for turn in turns]
        choice["accept_lengths"] = [n for turn in turns for n in turn]
    row = {"question_id": number, "category": "qa", "model_id": "toy", "choices": [choice]}
    return row, (sum(map(sum, turns)), sum(map(len, turns)))


def _trace(rng: Random, number: int) -> tuple[Record, Counts]:
    steps = _steps(rng)
    row = {
        "condition_id": "C2",
        "condition": "drafted",
        "dataset": "sums",
        "sample_id": f"sums-{number}",
        "status": "success",
        "generated_token_count": sum(steps) + 1,
        "decode_time_ms": rng.uniform(10, 900),
        "target_prefill_time_ms": 5.0,
        "acceptance_lengths": steps,
        "verification_calls": len(steps),
        "drafted_tokens": 7 * len(steps),
        "accepted_tokens": sum(steps) - len(steps),
    }
    return row, (sum(steps), len(steps))


def _lists(rng: Random, number: int) -> tuple[Record, Counts]:
    steps = _steps(rng)
    row = {"id": number, "dataset": "sums", "acceptance_lengths": steps, "num_output_tokens": sum(steps) + 1}
    return {**row, "time_per_output_token": rng.uniform(0.001, 0.1)}, (sum(steps), len(steps))


def _meta(rng: Random, number: int) -> tuple[Record, Counts]:
    steps, tokens = len(lengths_ := _steps(rng)), sum(lengths_)
    meta = {"id": f"m{number}", "completion_tokens": tokens, "spec_verify_ct": steps, "e2e_latency": 0.5,
            "spec_accept_length": tokens / steps}  # fmt: skip
    return {"question_id": number, "text": f"t{number}", "meta_info": meta}, (tokens, steps)


def _timings(rng: Random, number: int) -> tuple[Record, Counts]:
    steps, tokens = len(lengths_ := _steps(rng)), sum(lengths_)
    timings = {"predicted_n": tokens + 1, "predicted_ms": rng.uniform(10, 900), "draft_n": 7 * steps,
               "draft_n_accepted": tokens - steps}  # fmt: skip
    return {"question_id": number, "content": f"t{number}", "timings": timings}, (tokens, steps)


def _table(rng: Random, number: int) -> tuple[Record, Counts]:
    steps, tokens = len(lengths_ := _steps(rng)), sum(lengths_)
    row = {"prompt_id": number, "steps": steps, "tokens": tokens, "drafted": 7 * steps, "seconds": rng.uniform(0.1, 2)}
    return row, (tokens, steps)


FORMATS = (
    Format("Spec-Bench", _answer,
           [("choices", 0, "new_tokens"), ("choices", 0, "turns"), ("choices", 0, "decoding_steps")],
           [("category",), ("choices", 0, "wall_time")],
           [("choices", 0, "new_tokens"), ("choices", 0, "decoding_steps"), ("choices", 0, "accept_lengths")]),
    Format("EAGLE", lambda rng, n: _answer(rng, n, scalar=True), [("choices", 0, "new_tokens"), ("choices", 0, "idxs")],
           [("category",), ("choices", 0, "wall_time")], [("choices", 0, "new_tokens")], ("choices", 0, "idxs")),
    Format("CC-DFlash", _trace, [("generated_token_count",), ("acceptance_lengths",), ("sample_id",)],
           [("decode_time_ms",), ("target_prefill_time_ms",), ("drafted_tokens",), ("verification_calls",)],
           [("acceptance_lengths",)]),
    Format("acceptance lengths", _lists, [("acceptance_lengths",)], [("time_per_output_token",)],
           [("acceptance_lengths",)]),
    Format("SGLang requests", _meta, [("meta_info", "completion_tokens")],
           [("meta_info", "e2e_latency"), ("meta_info", "spec_accept_length"), ("text",)]),
    Format("llama.cpp answers", _timings, [("timings", "predicted_n"), ("timings", "draft_n_accepted")],
           [("timings", "predicted_ms"), ("content",)]),
    Format("plain JSON lines", _table, [("steps",), ("tokens",), ("prompt_id",)], [("drafted",), ("seconds",)]),
    Format("plain CSV", _table, [("steps",), ("tokens",), ("prompt_id",)], [("drafted",), ("seconds",)], csv=True),
)  # fmt: skip


def _at(record: Record, path: tuple[Any, ...]) -> tuple[Any, Any]:
    """(what holds the field, its name)."""
    for name in path[:-1]:
        record = record[name]
    return record, path[-1]


def _copy(records: list[Record]) -> list[Record]:
    return json.loads(json.dumps(records))  # type: ignore[no-any-return]


def _render(form: Format, records: list[Record]) -> list[str]:
    if not form.csv:
        return [json.dumps(record) for record in records]
    names = list(dict.fromkeys(name for record in records for name in record))
    return [",".join(names), *(",".join(str(record.get(name, "")) for name in names) for record in records)]


def _bytes(lines: Sequence[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _drop(form: Format, rng: Random, records: list[Record], rename: bool = False) -> Mutated:
    """A field of one record goes, or is called otherwise."""
    place = rng.randrange(len(records))
    path = rng.choice([*form.essential, *form.optional])
    holder, name = _at(records[place], path)
    value = holder.pop(name)
    if rename and not form.csv:
        holder[f"{name}_x"] = value
    lost = path in form.essential
    return Mutated(_bytes(_render(form, records)), (REDUCED,) if lost else (SAME,), place if lost else None)


def _rename(form: Format, rng: Random, records: list[Record]) -> Mutated:
    return _drop(form, rng, records, rename=True)


def _rename_all(form: Format, rng: Random, records: list[Record]) -> Mutated:
    """A field is called otherwise in every record."""
    path = rng.choice([*form.essential, *form.optional])
    renamed = []
    for record in records:
        holder, name = _at(record, path)
        items = [(f"{k}_x" if k == name else k, v) for k, v in holder.items()]
        holder.clear()
        holder.update(items)
        renamed.append(record)
    if path not in form.essential:
        right: tuple[str, ...] = (SAME,)
    else:  # another format may know what is left, and reads the same
        right = (REFUSED, SAME) if form.name == "CC-DFlash" else (REFUSED,)
    return Mutated(_bytes(_render(form, renamed)), right)


def _repeat(form: Format, rng: Random, records: list[Record]) -> Mutated:
    """A column of a table, or a key of one object, is there twice."""
    lines = _render(form, records)
    if form.csv:
        column = rng.randrange(lines[0].count(",") + 1)
        wide = [f"{line},{line.split(',')[column]}" for line in lines]
        return Mutated(_bytes(wide), (REFUSED,))
    place = rng.randrange(len(lines) - 1)  # a last line that cannot be read is one where the writer stopped
    name = rng.choice(list(records[place]))
    lines[place] = lines[place][:-1] + f', "{name}": {json.dumps(records[place][name])}}}'
    return Mutated(_bytes(lines), (REDUCED,), place)


def _cut(form: Format, rng: Random, records: list[Record]) -> Mutated:
    """One line breaks off."""
    lines = _render(form, records)
    first = 1 if form.csv else 0
    place = rng.randrange(first, len(lines))
    line = lines[place]
    end = line.rfind(",") if form.csv else len(line)
    lines[place] = line[: rng.randrange(1, end)]
    return Mutated(_bytes(lines), (REDUCED,), place - first)


def _swap(form: Format, rng: Random, records: list[Record]) -> Mutated:
    """Records stand in another order, and their fields too."""
    rng.shuffle(records)
    names = list(records[0])
    rng.shuffle(names)
    return Mutated(_bytes(_render(form, [{n: r[n] for n in names} for r in records])), (SAME,))


def _zero(form: Format, rng: Random, records: list[Record]) -> Mutated:
    """The list of one record is all zeros."""
    place = rng.randrange(len(records))
    path = rng.choice(list(form.lists))
    holder, name = _at(records[place], path)
    holder[name] = [0] * len(holder[name])
    return Mutated(_bytes(_render(form, records)), (REDUCED,), place)


def _fill(form: Format, rng: Random, records: list[Record]) -> Mutated:
    """A count is the same filler in every record."""
    assert form.filler is not None
    for record in records:
        holder, name = _at(record, form.filler)
        holder[name] = [0] * len(holder[name])
    return Mutated(_bytes(_render(form, records)), (UNKNOWN,))


def _encode(form: Format, rng: Random, records: list[Record]) -> Mutated:
    """A letter of one record is in Latin-1."""
    lines = [line.encode() for line in _render(form, records)]
    place = rng.randrange(1 if form.csv else 0, len(lines))
    at = rng.choice([i for i, byte in enumerate(lines[place]) if chr(byte).isalnum()])
    lines[place] = lines[place][:at] + b"\xe9" + lines[place][at + 1 :]
    return Mutated(b"\n".join(lines) + b"\n", (REFUSED,))


def _untouched(form: Format, rng: Random, records: list[Record]) -> Mutated:
    return Mutated(_bytes(_render(form, records)), (SAME,))


MUTATIONS = {
    "untouched": _untouched,
    "drop a field": _drop,
    "rename a field": _rename,
    "rename it everywhere": _rename_all,
    "repeat a column": _repeat,
    "cut a line": _cut,
    "swap the order": _swap,
    "zero a list": _zero,
    "filler everywhere": _fill,
    "a byte of Latin-1": _encode,
}


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


_PARTS = {
    "vLLM log": {"Mean acceptance length": (SAME,), "Accepted": (REDUCED,), "Drafted": (REDUCED,),
                 "Per-position acceptance rate": (SAME,)},
}  # fmt: skip


def _line_mutations(name: str, rng: Random) -> Iterator[tuple[str, Mutated, list[Counts]]]:
    """Each mutation of a log of lines, with the counts of its records."""
    make = _window if name == "vLLM log" else _request
    for what in ("untouched", "drop a field", "rename a field", "cut a line", "swap the order", "zero a list"):
        made = [make(rng) for _ in range(_RECORDS)]
        lines, counts = [line for line, _ in made], [count for _, count in made]
        place = rng.randrange(_RECORDS)
        right: tuple[str, ...] = (SAME,)
        if what in ("drop a field", "rename a field"):
            if name == "vLLM log":
                part = rng.choice(list(_PARTS[name]))
                right = _PARTS[name][part]
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
                right = ("per draft", REFUSED) if what == "drop a field" else (REDUCED,)
                lines[place] = lines[place].split("\n")[1] if what == "drop a field" else lines[place].replace(
                    "draft acceptance rate", "draft acceptance ratio")  # fmt: skip
        elif what == "cut a line":
            at = lines[place].index("metrics" if name == "vLLM log" else "draft acceptance") + 20
            lines[place] = lines[place][: rng.randrange(at, len(lines[place]))]
            right = (SAME, REDUCED) if name == "vLLM log" else (REDUCED,)
        elif what == "swap the order":
            rng.shuffle(lines)
        elif what == "zero a list" and name == "vLLM log":
            head, rest = lines[place].split("rate: ", 1)
            lines[place] = head + "rate: 0.000, 0.000, 0.000" + rest[19:]
            right = (REDUCED,)
        yield what, Mutated(_bytes(lines), right, place), counts


@dataclass(frozen=True)
class Totals:
    """``make``: the fields of one total, in order, and its (tokens, steps); ``essential``, ``optional``: those without
    which it is refused, or the same; ``rates``: a list that cannot be all zeros. ``line``: how a field is written, None
    for JSON."""

    name: str
    make: Callable[[Random], tuple[dict[str, Any], Counts]]
    essential: Sequence[str]
    optional: Sequence[str]
    rates: str | None = None
    line: str | None = None


def _drafts(rng: Random) -> tuple[int, list[int]]:
    """(drafts, accepted tokens by position), falling, none of them 0."""
    drafts = rng.randint(30, 4000)
    first = rng.randint(10, drafts)
    second = rng.randint(5, first)
    return drafts, [first, second, rng.randint(1, second)]


def _bench(rng: Random) -> tuple[dict[str, Any], Counts]:
    drafts, at = _drafts(rng)
    accepted, prefix = sum(at), "spec_decode_"
    tokens = drafts + accepted + 2
    return {
        "model_id": "toy",
        "duration": 10.0,
        "completed": 2,
        "total_output_tokens": tokens,
        "output_throughput": tokens / 10,
        f"{prefix}acceptance_rate": 100 * accepted / (3 * drafts),
        f"{prefix}acceptance_length": 1 + accepted / drafts,
        f"{prefix}num_drafts": drafts,
        f"{prefix}draft_tokens": 3 * drafts,
        f"{prefix}accepted_tokens": accepted,
        f"{prefix}per_position_acceptance_rates": [n / drafts for n in at],
    }, (drafts + accepted, drafts)


def _counters(rng: Random) -> tuple[dict[str, Any], Counts]:
    drafts, at = _drafts(rng)
    name = "vllm:spec_decode_num_"
    label = 'engine="0",model_name="toy"'
    return {
        f"{name}drafts_total{{{label}}}": drafts,
        f"{name}draft_tokens_total{{{label}}}": 3 * drafts,
        f"{name}accepted_tokens_total{{{label}}}": sum(at),
        **{f'{name}accepted_tokens_per_pos_total{{{label},position="{i}"}}': n for i, n in enumerate(at)},
    }, (drafts + sum(at), drafts)


def _prints(rng: Random) -> tuple[dict[str, Any], Counts]:
    drafts, at = _drafts(rng)
    accepted = sum(at)
    mean = f"{1 + accepted / drafts:.2f}"
    return {"Drafts": drafts, "Draft tokens": 3 * drafts, "Accepted tokens": accepted, "Acceptance length": mean}, (
        drafts + accepted,
        drafts,
    )


_OF_VLLM = "spec_decode_"
TOTALS = (
    Totals("vLLM bench serve", _bench, [f"{_OF_VLLM}num_drafts", f"{_OF_VLLM}accepted_tokens"],
           ["model_id", f"{_OF_VLLM}acceptance_rate", f"{_OF_VLLM}acceptance_length", f"{_OF_VLLM}draft_tokens",
            f"{_OF_VLLM}per_position_acceptance_rates", "total_output_tokens"],
           f"{_OF_VLLM}per_position_acceptance_rates"),
    Totals("Prometheus", _counters, ["drafts_total", "num_accepted_tokens_total", 'position="0"', 'position="1"'],
           ["draft_tokens_total"], None, "{} {}.0"),
    Totals("printed totals", _prints, ["Drafts", "Accepted tokens"], ["Draft tokens", "Acceptance length"], None,
           "{}:    {}"),
)  # fmt: skip


def _totals_mutations(form: Totals, rng: Random) -> Iterator[tuple[str, Mutated, list[Counts]]]:
    """Each mutation of one total: the value is the same, or the log is refused."""
    for what in ("untouched", "drop a field", "rename a field", "repeat a column", "cut a line", "swap the order",
                 "zero a list"):  # fmt: skip
        fields, counts = form.make(rng)
        right: tuple[str, ...] = (SAME,)
        wanted = rng.choice([*form.essential, *form.optional])
        name = next(field for field in fields if wanted in field)
        if what in ("drop a field", "rename a field"):
            value = fields.pop(name)
            if what == "rename a field":
                fields[f"x_{name}"] = value
            right = (REFUSED,) if wanted in form.essential else (SAME,)
        elif what == "swap the order":
            names = list(fields)
            rng.shuffle(names)
            fields = {n: fields[n] for n in names}
        elif what == "zero a list":
            if form.rates is None:
                continue
            fields[form.rates] = [0.0] * 3
            right = (REFUSED,)
        lines = [json.dumps(fields)] if form.line is None else [form.line.format(n, v) for n, v in fields.items()]
        if what == "repeat a column":
            if form.line is not None:
                continue  # a counter that is there twice is a later state of it
            lines[0] = lines[0][:-1] + f', "{name}": {json.dumps(fields[name])}}}'
            right = (REFUSED,)
        elif what == "cut a line":
            place = 0 if form.line is None else list(fields).index(name)
            lines[place] = lines[place][: rng.randrange(1, len(lines[place]) - 1 if form.line is None else len(name))]
            right = (REFUSED,) if form.line is None or wanted in form.essential else (SAME,)
        yield what, Mutated(_bytes(lines), right), [counts]


def _outcome(path: Path, data: bytes) -> tuple[str, Any]:
    """(``refused`` or ``read``, what was read)."""
    path.write_bytes(data)
    try:
        return "read", collect([path])
    except DraftlabError as error:
        return (REFUSED if "\n" not in str(error).strip() else "a refusal of several lines"), None


def judge(path: Path, mutated: Mutated, counts: Sequence[Counts]) -> str:
    """Which right outcome the log had, or what went wrong."""
    what, found = _outcome(path, mutated.data)
    if what != "read":
        return what if what in mutated.right else f"{what}, where {' or '.join(mutated.right)} is right"
    (run,) = found.runs
    if run.responses:
        of_run = lengths(run)
        value: tuple[int, int] | None = (of_run.tokens, of_run.steps) if of_run.steps else None
    else:
        (total,) = run.aggregates
        value = (total.drafts + total.accepted, total.drafts) if total.drafts else None
        if total.mean_of:
            return "per draft" if "per draft" in mutated.right else "per draft, which was not declared"
    lost = mutated.lost
    rest = [count for place, count in enumerate(counts) if place != lost]
    problems = [problem for _, problem in found.problems if problem.kind != "detail"]
    known = {
        SAME: (sum(t for t, _ in counts), sum(s for _, s in counts)),
        REDUCED: (sum(t for t, _ in rest), sum(s for _, s in rest)),
    }
    if value is None:
        return UNKNOWN if UNKNOWN in mutated.right else "steps unknown, which was not declared"
    for outcome in mutated.right:
        if outcome == SAME and value == known[SAME] and not [p for p in problems if p.kind == "invalid"]:
            return SAME
        if outcome == REDUCED and value == known[REDUCED] and problems:
            return REDUCED
    return f"{value} with {len(problems)} problems, where {' or '.join(mutated.right)} of {known} is right"


def cases(rng: Random) -> Iterator[tuple[str, str, Mutated, list[Counts]]]:
    """Every pair of format and mutation once: (format, mutation, the log, its records' counts)."""
    for form in FORMATS:
        for name, mutate in MUTATIONS.items():
            if (mutate is _zero and not form.lists) or (mutate is _fill and form.filler is None):
                continue
            made = [form.make(rng, number) for number in range(_RECORDS)]
            yield form.name, name, mutate(form, rng, _copy([record for record, _ in made])), [c for _, c in made]
    for name in ("vLLM log", "llama.cpp log"):
        for what, mutated, counts in _line_mutations(name, rng):
            yield name, what, mutated, counts
    for total in TOTALS:
        for what, mutated, counts in _totals_mutations(total, rng):
            yield total.name, what, mutated, counts


def fuzz(most: int, seed: int = 1) -> tuple[Counter[tuple[str, str, str]], list[str]]:
    """(how often each outcome, by format and mutation; the faults) of ``most`` logs or some more."""
    found: Counter[tuple[str, str, str]] = Counter()
    faults = []
    rng = Random(seed)
    memory = Path("/dev/shm")  # a log is read several times
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        path = Path(folder) / "log"
        while found.total() < most:
            for form, mutation, mutated, counts in cases(rng):
                try:
                    outcome = judge(path, mutated, counts)
                except Exception as error:
                    outcome = f"{type(error).__name__}: {error}"
                if outcome not in (SAME, REDUCED, UNKNOWN, REFUSED, "per draft"):
                    faults.append(f"{form}, {mutation}: {outcome}")
                    outcome = "FAULT"
                found[form, mutation, outcome] += 1
    return found, faults


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the outcomes by format and mutation; exit 1 for a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", nargs="?", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    start = time.perf_counter()
    found, faults = fuzz(args.n, args.seed)
    pairs = sorted({(form, mutation) for form, mutation, _ in found})
    print("| format | mutation | outcomes |\n|---|---|---|")
    for form, mutation in pairs:
        outcomes = {o: n for (f, m, o), n in sorted(found.items()) if (f, m) == (form, mutation)}
        print(f"| {form} | {mutation} | {', '.join(f'{outcome} {n:,}' for outcome, n in outcomes.items())} |")
    print(
        f"\n{found.total():,} logs of {len(pairs)} pairs of format and mutation, {len(faults)} faults, seed {args.seed}"
    )
    for fault in faults[:20]:
        print(f"fault: {fault}")
    print(f"{time.perf_counter() - start:.0f} s")
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
