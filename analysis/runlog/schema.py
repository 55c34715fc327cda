"""The tables of a run, as Arrow schemas (run format, schema version 2).

One entry per table of ``runs/<name>/``. A reader holds every file against these; a writer casts to them.
Columns listed in ``NULLABLE`` may hold nulls, all others may not. Version 2 adds the protocol ``replay`` and its table
``anchors``; otherwise it is version 1.
"""

from __future__ import annotations

import pyarrow as pa

SCHEMA_VERSION = 2  # of what is written
READABLE_VERSIONS = (1, 2)

_TYPES = {
    "string": pa.string(),
    "bool": pa.bool_(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "list<int8>": pa.list_(pa.int8()),
    "list<int32>": pa.list_(pa.int32()),
    "list<int64>": pa.list_(pa.int64()),
    "list<float32>": pa.list_(pa.float32()),
}


def _schema(*groups: tuple[str, str]) -> pa.Schema:
    return pa.schema([(name, _TYPES[kind]) for kind, names in groups for name in names.split()])


# A pair of rows from two runs is the same key apart from eval_id, which names the settings, not the prompt.
PAIR_KEY = ("protocol", "prompt_id", "turn", "sample")
KEY = ("eval_id", *PAIR_KEY)
_KEYED = (
    ("string", "eval_id protocol prompt_id"),
    ("int16", "turn"),
    ("int64", "sample"),  # a seed, where a log names samples so
    ("float32", "temperature"),
    ("string", "dataset"),
)

#: The per-token quantities of a fusion, in the order of the mathematics (design, section 4).
GATE_QUANTITIES = ("gate", "feature_norm", "gated_norm", "contribution_norm", "contribution_share")
#: What gate_stats sums over tokens: the quantities, log g_l, and log(g_l / g_last).
GATE_MOMENTS = (*GATE_QUANTITIES, "log_gate", "log_ratio")

#: Outputs with a larger share of repeated 4-grams (``prompts.repetition``) are loops more than text: they inflate
#: acceptance.
DEGENERATE = 0.5

#: Why a verification step ended.
ENDINGS = ("mismatch", "vocabulary", "block", "stop", "length")

TABLES: dict[str, pa.Schema] = {
    # one row per verification step
    "acceptance": _schema(
        *_KEYED,
        ("int32", "step position"),
        ("int16", "drafted eligible accepted emitted"),
        ("string", "ended"),
    ),
    # one row per position of an answer under replay
    "anchors": _schema(
        *_KEYED,
        ("int32", "position"),
        ("int16", "eligible accepted"),
        ("float32", "entropy margin"),
        ("list<int8>", "ranks"),
    ),
    # one row per evaluated prompt (turn, sample)
    "prompts": _schema(
        *_KEYED,
        ("string", "cluster_id category study_role seen"),
        ("int32", "prompt_tokens output_tokens steps"),
        ("string", "finish_reason output_hash"),
        ("list<int32>", "output_ids"),
        ("float32", "repetition"),
        ("bool", "matches_baseline"),
        ("int32", "first_mismatch"),
        ("float32", "mismatch_margin"),
    ),
    # one row per timed generation; seconds
    "timings": _schema(
        *_KEYED,
        ("string", "mode"),
        ("int16", "repeat order"),
        ("float64", "prefill_s decode_s draft_s verify_s other_s"),
        ("int32", "output_tokens"),
    ),
    # sampled (prompt, token, target layer) rows; `layer` indexes transformers' hidden_states
    "gates": _schema(
        *_KEYED,
        ("int32", "position"),
        ("string", "role"),
        ("int16", "layer"),
        ("float32", " ".join(GATE_QUANTITIES)),
    ),
    # per (prompt, role, target layer): sums over all tokens; log_gate is summed over the n_log_gate tokens whose gate
    # is positive, log_ratio over the n_log tokens whose last-layer gate is positive too
    "gate_stats": _schema(
        *_KEYED,
        ("string", "role"),
        ("int16", "layer"),
        ("int64", "n n_log n_log_gate"),
        ("float64", " ".join(f"{name}_sum {name}_sumsq" for name in GATE_MOMENTS)),
    ),
    # per (draft layer, from 0; target layer, indexing hidden_states) of a layer-wise fusion: means over tokens
    "fusion": _schema(
        ("int16", "draft_layer target_layer"),
        ("float32", "weight mean_feature_norm contribution_share"),
    ),
    # one row per optimizer step; accepted lengths count the bonus token
    "history": _schema(
        ("int32", "step epoch"),
        ("int64", "examples tokens"),
        ("float32", "lr gamma loss ce distill selection_ce confidence_bce grad_norm"),
        ("list<float32>", "ce_at accuracy_at"),
        ("float32", "accepted_length val_accepted_length val_unseen_accepted_length"),
        ("string", "data_hash"),
        ("float64", "seconds"),
    ),
    # one row per serving trial
    "throughput": _schema(
        ("int16", "trial block order"),
        ("string", "arm engine status reason"),
        ("int16", "concurrency"),
        ("int32", "requests"),
        ("int64", "output_tokens drafts draft_tokens accepted"),
        ("list<int64>", "accepted_at"),
        ("float64", "duration_s tokens_per_s"),
        ("string", "output_hash"),
    ),
    # one row per request of a serving trial
    "requests": _schema(
        ("int16", "trial"),
        ("int32", "request"),
        ("string", "prompt_id status"),
        ("float64", "ttft_s e2e_s"),
        ("int32", "output_tokens"),
        ("string", "output_hash"),
    ),
}

#: Columns that came within this schema version: runs that were written before have none, and nulls are read.
LATER: dict[str, frozenset[str]] = {
    "gate_stats": frozenset({"n_log_gate"}),
    "anchors": frozenset({"ranks"}),
    "history": frozenset({"distill", "selection_ce", "confidence_bce"}),
}

NULLABLE: dict[str, frozenset[str]] = {
    # a lost count costs its pair, which the comparison lists; it does not make the file unreadable
    "acceptance": frozenset({"temperature", "position", "drafted", "eligible", "accepted", "emitted", "ended"}),
    "prompts": frozenset(TABLES["prompts"].names) - {*KEY, "dataset", "cluster_id"},
    "timings": frozenset({"temperature", "prefill_s", "draft_s", "verify_s", "other_s"}),
    "gates": frozenset({"temperature", *GATE_QUANTITIES}),
    "gate_stats": frozenset({"temperature", "n_log_gate"}),
    "anchors": frozenset({"temperature", "ranks"}),
    "history": frozenset(TABLES["history"].names) - {"step"},
    "throughput": frozenset(TABLES["throughput"].names) - {"trial", "arm", "status"},
    "requests": frozenset({"prompt_id", "ttft_s", "e2e_s", "output_tokens", "output_hash"}),
}
