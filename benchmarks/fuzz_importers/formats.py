"""Logs of one record to a line, as tools write them for each answer."""

from __future__ import annotations

from random import Random
from typing import Any

from benchmarks.fuzz_importers.damage import Format, Record, csv_lines
from benchmarks.fuzz_importers.declared import SAME, Counts


def step_lengths(rng: Random, most: int = 8) -> list[int]:
    """Tokens of each step of an answer."""
    return [rng.randint(1, most) for _ in range(rng.randint(2, 7))]


def _answer(rng: Random, number: int, *, scalar: bool = False) -> tuple[Record, Counts]:
    turns = [step_lengths(rng) for _ in range(rng.randint(1, 2))]
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
    steps = step_lengths(rng)
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
    steps = step_lengths(rng)
    row = {"id": number, "dataset": "sums", "acceptance_lengths": steps, "num_output_tokens": sum(steps) + 1}
    return {**row, "time_per_output_token": rng.uniform(0.001, 0.1)}, (sum(steps), len(steps))


def _meta(rng: Random, number: int) -> tuple[Record, Counts]:
    steps, tokens = len(lengths_ := step_lengths(rng)), sum(lengths_)
    meta = {"id": f"m{number}", "completion_tokens": tokens, "spec_verify_ct": steps, "e2e_latency": 0.5,
            "spec_accept_length": tokens / steps}  # fmt: skip
    return {"question_id": number, "text": f"t{number}", "meta_info": meta}, (tokens, steps)


def _timings(rng: Random, number: int) -> tuple[Record, Counts]:
    steps, tokens = len(lengths_ := step_lengths(rng)), sum(lengths_)
    timings = {"predicted_n": tokens + 1, "predicted_ms": rng.uniform(10, 900), "draft_n": 7 * steps,
               "draft_n_accepted": tokens - steps}  # fmt: skip
    return {"question_id": number, "content": f"t{number}", "timings": timings}, (tokens, steps)


def _table(rng: Random, number: int) -> tuple[Record, Counts]:
    steps, tokens = len(lengths_ := step_lengths(rng)), sum(lengths_)
    row = {"prompt_id": number, "steps": steps, "tokens": tokens, "drafted": 7 * steps, "seconds": rng.uniform(0.1, 2)}
    return row, (tokens, steps)


FORMATS = (
    Format("Spec-Bench", "specbench", _answer,
           [("choices", 0, "new_tokens"), ("choices", 0, "turns"), ("choices", 0, "decoding_steps")],
           [("category",), ("choices", 0, "wall_time")],
           [("choices", 0, "new_tokens"), ("choices", 0, "decoding_steps"), ("choices", 0, "accept_lengths")]),
    Format("EAGLE", "specbench", lambda rng, n: _answer(rng, n, scalar=True),
           [("choices", 0, "new_tokens"), ("choices", 0, "idxs")],
           [("category",), ("choices", 0, "wall_time")], [("choices", 0, "new_tokens")], ("choices", 0, "idxs")),
    Format("CC-DFlash", "ccdflash", _trace, [("generated_token_count",), ("acceptance_lengths",), ("sample_id",)],
           [("decode_time_ms",), ("target_prefill_time_ms",), ("drafted_tokens",), ("verification_calls",)],
           [("acceptance_lengths",)], also=(SAME,)),  # another format may know what is left, and reads the same
    Format("acceptance lengths", "responses", _lists, [("acceptance_lengths",)], [("time_per_output_token",)],
           [("acceptance_lengths",)]),
    Format("SGLang requests", "sglang", _meta, [("meta_info", "completion_tokens")],
           [("meta_info", "e2e_latency"), ("meta_info", "spec_accept_length"), ("text",)]),
    Format("llama.cpp answers", "timed", _timings, [("timings", "predicted_n"), ("timings", "draft_n_accepted")],
           [("timings", "predicted_ms"), ("content",)]),
    Format("plain JSON lines", "plain", _table, [("steps",), ("tokens",), ("prompt_id",)],
           [("drafted",), ("seconds",)]),
    Format("plain CSV", "plain", _table, [("steps",), ("tokens",), ("prompt_id",)], [("drafted",), ("seconds",)],
           csv=True, render=csv_lines),
)  # fmt: skip
