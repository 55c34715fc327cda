"""Small logs in every format that is known, made here: what the tools write, with numbers that add up by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def lines(rows: Sequence[Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def answer(
    question: int | str,
    lengths: Sequence[Sequence[int]],
    *,
    category: str | None = "qa",
    seconds: float = 0.5,
    texts: Sequence[str] | None = None,
    scalar: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """An answer of Spec-Bench, of ``scalar`` EAGLE: per turn its accept lengths."""
    choice: dict[str, Any] = {
        "index": 0,
        "turns": list(texts) if texts else [f"answer {question}, turn {i}" for i in range(len(lengths))],
        "new_tokens": [sum(turn) for turn in lengths],
        "wall_time": [seconds for _ in lengths],
    }
    if scalar:
        choice["idxs"] = [len(turn) - 1 for turn in lengths]
    else:
        choice["decoding_steps"] = [len(turn) for turn in lengths]
        choice["accept_lengths"] = [n for turn in lengths for n in turn]
    row = {"question_id": question, "answer_id": f"a{question}", "model_id": "toy-eagle-temperature-0.0", **more}
    return {**row, **({"category": category} if category else {}), "choices": [choice], "tstamp": 1.5}


#: 30 tokens in 9 steps; by prompt 14/4, 3/1, 13/4.
ANSWERS = [
    answer(81, [[4, 3], [5, 2]], category="writing"),
    answer(200, [[3]]),
    answer(201, [[1, 6, 2, 4]], category="rag"),
]

#: Condition C2: 11 tokens in 3 steps; the last step accepted 4 and was cut at the stop token after 2.
TRACE = [
    {"condition_id": c, "condition": title, "dataset": "sums", "sample_id": f"sums-{i}", "phase": phase,
     "is_warmup": phase == "warmup", "status": "success", "stop_reason": "eos", "repetition": 0,
     "original_prompt_text": f"What is {i} and {i}?", "generated_token_count": len(ids), "generated_token_ids": ids,
     "decode_time_ms": 1000.0 * (3 if steps is None else 1), "target_prefill_time_ms": 50.0,
     "acceptance_lengths": steps, "accepted_tokens": accepted, "draft_calls": steps and len(steps),
     "verification_calls": steps and len(steps), "drafted_tokens": steps and 7 * len(steps),
     "model": {"target_model_id": "toy-target"}}
    for c, title, steps_of in (("C1", "plain", (None, None)), ("C2", "drafted", ([4, 3], [4])))
    for phase in ("warmup", "measured")
    for i, steps, accepted, ids in (
        (0, steps_of[0], steps_of[0] and 5, [1, 2, 3, 4, 5, 6, 7, 8]),
        (1, steps_of[1], steps_of[1] and 5, [1, 2, 9, 9, 5] if c == "C1" else [1, 2, 3, 9, 5]),
    )
]  # fmt: skip

RESPONSES = [
    {"question_id": 0, "dataset": "gsm8k", "acceptance_lengths": [4, 2], "num_output_tokens": 7,
     "num_input_tokens": 20, "time_per_output_token": 0.01, "time_to_first_token": 0.1},
    {"question_id": 1, "dataset": "gsm8k", "acceptance_lengths": [8, 8, 1], "num_output_tokens": 18,
     "num_input_tokens": 21, "time_per_output_token": 0.005, "time_to_first_token": 0.1},
    {"question_id": 0, "dataset": "humaneval", "acceptance_lengths": [3], "num_output_tokens": 4,
     "num_input_tokens": 22, "time_per_output_token": 0.02, "time_to_first_token": 0.1},
]  # fmt: skip

SPECFORGE = {
    "model": "toy-8b",
    "gsm8k": [{"batch_size": 1, "steps": 3, "topk": 1, "num_draft_tokens": 4, "num_samples": 2,
               "metrics": [{"latency": 2.0, "output_throughput": 150.0, "accept_length": 2.5, "accuracy": 0.5,
                            "num_questions": 2, "num_valid_predictions": 2}]}],
    "mtbench": [{"batch_size": 1, "steps": 3, "topk": 1, "num_draft_tokens": 4, "num_samples": 2,
                 "metrics": [{"latency": 2.0, "output_throughput": 120.0, "accept_length": 2.0, "num_questions": 2}]}],
}  # fmt: skip
BUNDLE = {"toy-8b": {"gsm8k": {"benchmark_name": "gsm8k", "results": [
    {"batch_size": 1, "steps": 3, "topk": 1, "num_draft_tokens": 4,
     "metrics": [{"Name": "Wihtout EAGLE3", "output_throughput": 60.0, "accept_length": 1.0},
                 {"Name": "EAGLE3", "output_throughput": 150.0, "accept_length": 2.5}]}]}}}  # fmt: skip
SPECFORGE_SGLANG = {"backend": "sglang", "dataset": "gsm8k", "samples": 4, "output_tokens": 400, "latency_seconds": 2.0,
                    "throughput_tokens_per_second": 200.0, "average_acceptance_length": 3.25,
                    "spec_verify_count": 130}  # fmt: skip

#: 20 drafts of 3: 12 accepted a first token, 6 a second, 2 a third.
VLLM = {
    "backend": "openai", "model_id": "toy-8b", "duration": 4.0, "completed": 2, "failed": 0, "total_input_tokens": 9,
    "total_output_tokens": 40, "request_throughput": 0.5, "output_throughput": 10.0, "output_lens": [15, 25],
    "max_concurrency": 2, "spec_decode_acceptance_rate": 100 / 3, "spec_decode_acceptance_length": 2.0,
    "spec_decode_num_drafts": 20, "spec_decode_draft_tokens": 60, "spec_decode_accepted_tokens": 20,
    "spec_decode_per_position_acceptance_rates": [0.6, 0.3, 0.1],
}  # fmt: skip


def prometheus(drafts: int, accepted: Sequence[int], *, engines: int = 1, prefix: str = "vllm") -> str:
    """Counters of ``engines`` engines, each with these counts."""
    text = []
    for name, value in (
        ("drafts", drafts),
        ("draft_tokens", drafts * len(accepted)),
        ("accepted_tokens", sum(accepted)),
    ):
        text.append(f"# TYPE {prefix}:spec_decode_num_{name}_total counter")
        for engine in range(engines):
            text.append(f'{prefix}:spec_decode_num_{name}_total{{engine="{engine}",model_name="toy"}} {value:.1f}')
            text.append(f'{prefix}:spec_decode_num_{name}_created{{engine="{engine}",model_name="toy"}} 1.7e+09')
    for engine in range(engines):
        text += [
            f"{prefix}:spec_decode_num_accepted_tokens_per_pos_total"
            f'{{engine="{engine}",model_name="toy",position="{i}"}} {n:.1f}'
            for i, n in enumerate(accepted)
        ]
    return "\n".join(text) + "\n"


def vllm_log(mean: float, accepted: int, drafted: int, shares: Sequence[float]) -> str:
    rates = ", ".join(f"{share:.3f}" for share in shares)
    return (
        f"(APIServer pid=7) INFO SpecDecoding metrics: Mean acceptance length: {mean:.2f}, "
        f"Accepted throughput: 1.00 tokens/s, Drafted throughput: 3.00 tokens/s, Accepted: {accepted} tokens, "
        f"Drafted: {drafted} tokens, Per-position acceptance rate: {rates}, "
        f"Avg Draft acceptance rate: {100 * accepted / max(drafted, 1):.1f}%\n"
    )


#: 100 drafts at 3.00, then 10 drafts at 1.50: pooled 1 + 205/110, the mean of the means is 2.25.
VLLM_LOG = "INFO server is up\n" + vllm_log(3.0, 200, 300, [0.9, 0.6, 0.5]) + vllm_log(1.5, 5, 30, [0.3, 0.2, 0.0])
#: 20 drafts, 10 accepted; then 5 drafts, 10 accepted.
LLAMA_LOG = (
    "srv  log: slot 0\n"
    "draft acceptance = 0.25000 (   10 accepted /    40 generated), mean acceptance length = 1.50, "
    "acceptance rate per position = (0.400, 0.100)\n"
    "draft acceptance = 1.00000 (   10 accepted /    10 generated), mean acceptance length = 3.00, "
    "acceptance rate per position = (1.000, 1.000)\n"
)

META = [
    {"id": "r1", "text": "one two", "meta_info": {"id": "m1", "completion_tokens": 12, "prompt_tokens": 5,
     "spec_verify_ct": 4, "spec_accept_length": 3.0, "finish_reason": {"type": "stop"}, "e2e_latency": 0.5}},
    {"id": "r2", "text": "three", "meta_info": {"id": "m2", "completion_tokens": 9, "prompt_tokens": 5,
     "spec_verify_ct": 6, "spec_accept_length": 1.5, "finish_reason": {"type": "length"}, "e2e_latency": 0.4}},
]  # fmt: skip
SERVING = {"backend": "sglang", "duration": 5.0, "completed": 10, "total_output_tokens": 1000,
           "output_throughput": 200.0, "accept_length": 2.75, "max_concurrency": 4}  # fmt: skip
ONE_BATCH = [
    {"run_name": "toy", "batch_size": 1, "input_len": 10, "output_len": 20, "latency": 2.0, "output_throughput": 10.0,
     "overall_throughput": 15.0, "last_ttft": 0.1, "last_gen_throughput": 11.0, "acc_length": 3.5,
     "cache_hit_rate": None},
    {"run_name": "toy", "batch_size": 8, "input_len": 10, "output_len": 20, "latency": 4.0, "output_throughput": 40.0,
     "overall_throughput": 60.0, "last_ttft": 0.1, "last_gen_throughput": 41.0, "acc_length": -1,
     "cache_hit_rate": None},
]  # fmt: skip

SPECULATORS = (
    "subset,num_drafts,num_draft_tokens,num_accepted_tokens,acceptance_length,acceptance_at_pos_0,acceptance_at_pos_1\n"
    "math,10,20,9,1.9,0.6,0.3\n"
    "chat,4,8,2,1.5,0.5,0.0\n"
)
#: 5 steps: two of 1, one of 2, two of 4; 12 tokens. By request and turn 3, 2 and 1.
MODELOPT = {"acceptance_rate": {
    "Request_AL": {"0": {"0": 3.0, "1": 2.0}, "1": {"0": 1.0}}, "Average_AL": 2.0,
    "Acceptance_Length_Histogram": {"1": 2, "2": 1, "4": 2}, "Conditional_Acceptance_Rate": {"1": 1.0},
    "Joint_Acceptance_Rate": {"1": 1.0}}}  # fmt: skip
CAST = {"toy": {"target": "toy-8b", "seeds": 3, "domains": {
    "chat": {"dflash_ms": [10.0, 6.0, 8.0], "cast_ms": [5.0, 6.0, 4.0]}}}}  # fmt: skip
SAMPLING = {"toy": {"target": "toy-8b", "seeds": [0, 1], "domains": {
    "chat": {"dflash_ms": [5.0, 3.0], "cast_ms": [2.0, 2.0], "dflash_R": 3.5, "cast_R": 4.5}}}}  # fmt: skip

STEP_CSV = (
    "prompt_id,dataset,step,accepted,drafted\n"
    "a,sums,0,3,7\na,sums,1,0,7\nb,sums,0,7,7\nb,sums,1,2,7\nb,sums,2,1,7\n"
)  # fmt: skip

#: 20 drafts, 20 of 60 tokens accepted, as printed by ``bench serve``; by the offline example 10 drafts, 9 accepted.
PRINTED = """============ Serving Benchmark Result ============
Successful requests:                     2
Acceptance length:                       2.00
Drafts:                                  20
Draft tokens:                            60
Accepted tokens:                         20
Per-position acceptance (%):
  Position 0:                            60.00
"""
PRINTED_OFFLINE = """total_num_output_tokens: 19
num_drafts: 10
num_draft_tokens: 30
num_accepted_tokens: 9
mean acceptance length: 1.90
acceptance at token 0: 0.60
"""

#: name: (bytes, key of the format that it is)
ALL: dict[str, tuple[bytes, str]] = {
    "answers.jsonl": (lines(ANSWERS), "specbench"),
    "eagle.jsonl": (lines([answer(q, [[2, 3]], category=None, scalar=True) for q in (1, 2)]), "specbench"),
    "trace.jsonl": (lines(TRACE), "ccdflash"),
    "responses.jsonl": (lines(RESPONSES), "responses"),
    "specforge.jsonl": (json.dumps(SPECFORGE, indent=4).encode(), "specforge"),
    "bundle.json": (json.dumps(BUNDLE, indent=2).encode(), "specforge"),
    "specforge_sglang.json": (json.dumps(SPECFORGE_SGLANG).encode(), "specforge"),
    "vllm.json": (json.dumps(VLLM).encode(), "vllm"),
    "metrics.txt": (prometheus(20, [12, 6, 2]).encode(), "prometheus"),
    "llamacpp.txt": (prometheus(20, [12, 6, 2], prefix="llamacpp").encode(), "prometheus"),
    "vllm.log": (VLLM_LOG.encode(), "log"),
    "llamacpp.log": (LLAMA_LOG.encode(), "log"),
    "meta.jsonl": (lines(META), "sglang"),
    "serving.jsonl": (lines([SERVING]), "sglang"),
    "one_batch.jsonl": (lines(ONE_BATCH), "sglang"),
    "printed.txt": (PRINTED.encode(), "printed"),
    "printed_offline.txt": ((PRINTED_OFFLINE * 2).encode(), "printed"),
    "acceptance.csv": (SPECULATORS.encode(), "speculators"),
    "acceptance_rate.json": (json.dumps(MODELOPT, indent=2).encode(), "modelopt"),
    "cast.json": (json.dumps(CAST).encode(), "cast"),
    "sampling.json": (json.dumps(SAMPLING).encode(), "cast"),
    "steps.csv": (STEP_CSV.encode(), "plain"),
}


def write(folder: Path, name: str, data: bytes | str | None = None) -> Path:
    """The log of this name, or ``data`` under it."""
    path = folder / name
    content = ALL[name][0] if data is None else data
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
