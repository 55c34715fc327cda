"""What every column of the run format means: meaning, unit, and who writes it. docs/run-format.md is made from this."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """``meaning``: a sentence without its full stop; ``unit``: of the value, empty for names and identifiers."""

    meaning: str
    unit: str = ""


@dataclass(frozen=True)
class TableFacts:
    """``row``: what one row is; ``writers``: the commands that write the table; ``columns``: those beside the key."""

    row: str
    writers: str
    columns: dict[str, Column]


#: Columns that several tables share.
SHARED = {
    "eval_id": Column("hash of the evaluation's settings; the key of `evaluations` in run.json"),
    "protocol": Column("`prefix` (one step per prompt), `replay` or `generate` (whole answers)"),
    "prompt_id": Column("the prompt; two runs pair where protocol, prompt, turn and sample are equal"),
    "turn": Column("turn of the conversation, from 0"),
    "sample": Column("sample of the same prompt, from 0 (temperature above 0)"),
    "temperature": Column("sampling temperature; 0 is greedy; null: not recorded"),
    "dataset": Column("data set of the prompt, the unit of the per-dataset tables"),
    "output_hash": Column("hash of the output's token ids (or text, in imported runs that hold no ids)"),
}

_GATED = {
    "gate": Column("gate g of the target layer at this token; 1 for a fusion without gates", "factor"),
    "feature_norm": Column("norm of the target's hidden state h before the gate", "norm"),
    "gated_norm": Column("norm of g h", "norm"),
    "contribution_norm": Column("norm of W g h, what the layer adds to the fused sum before its norm", "norm"),
    "contribution_share": Column(
        "projection of W g h on the fused sum u, over the squared norm of u; adds to 1", "share"
    ),
}
_SUMS = {
    f"{name}_{moment}": Column(f"{'sum' if moment == 'sum' else 'sum of squares'} over tokens of {what}")
    for name, what in (
        *((name, f"`{name}`") for name in _GATED),
        ("log_gate", "log g, over the `n_log_gate` tokens where it is defined"),
        ("log_ratio", "log of g over the last layer's g, over the `n_log` tokens where it is defined"),
    )
    for moment in ("sum", "sumsq")
}

FACTS: dict[str, TableFacts] = {
    "acceptance": TableFacts(
        "a verification step: one draft block that the target checked",
        "drafters.evaluate; analysis.importers",
        {
            "step": Column("step of the answer, from 0"),
            "position": Column("index of the anchor among the tokens of prompt and answer", "tokens"),
            "drafted": Column("draft tokens proposed in this step", "tokens"),
            "eligible": Column("draft slots before the stop token or the length limit, those at risk", "tokens"),
            "accepted": Column("draft tokens that the target agreed with", "tokens"),
            "emitted": Column(
                "tokens added to the answer, the bonus token included, cut at the stop or limit", "tokens"
            ),
            "ended": Column("why the step ended: `mismatch`, `vocabulary`, `block`, `stop` or `length`"),
        },
    ),
    "anchors": TableFacts(
        "a position of an answer under `replay`, its last token excluded: the drafter proposes after every one. "
        "`acceptance` has the positions at which greedy decoding takes a step",
        "drafters.evaluate",
        {
            "position": Column("index of the anchor among the tokens of prompt and answer", "tokens"),
            "eligible": Column("draft slots before the stop token or the length limit, those at risk", "tokens"),
            "accepted": Column("leading draft tokens that equal the answer's", "tokens"),
            "entropy": Column("entropy of the target's distribution of the next token, rounded to 1/1024", "nats"),
            "margin": Column(
                "difference of the target's two largest logits for the next token, rounded to 1/1024", "logits"
            ),
            "ranks": Column(
                "per eligible slot, from slot 1: how many tokens the slot's own distribution puts before the answer's, "
                "at most 16; null for a drafter without distributions",
                "tokens",
            ),
        },
    ),
    "prompts": TableFacts(
        "an evaluated prompt (turn, sample)",
        "drafters.evaluate; analysis.importers",
        {
            "cluster_id": Column(
                "what prompts share that makes them dependent: original question or template; never null"
            ),
            "category": Column("category of the prompt, as its source names it"),
            "study_role": Column("`exploratory`, `confirmatory`, or null where not recorded"),
            "seen": Column("`template seen` or `unseen`: whether training had the prompt's template"),
            "prompt_tokens": Column("length of the prompt", "tokens"),
            "output_tokens": Column("length of the answer, its stop token included", "tokens"),
            "steps": Column("verification steps of the answer; equals its rows in acceptance", "steps"),
            "finish_reason": Column("`stop` or `length`"),
            "output_ids": Column("token ids of the answer, where they are kept"),
            "repetition": Column("share of the answer's 4-grams that occurred before in it", "share"),
            "matches_baseline": Column(
                "whether the output equals plain decoding of the same prompt; under `replay`, whether one pass over "
                "the whole answer prefers the same tokens (where it does not, the target is near a tie)"
            ),
            "first_mismatch": Column("index of the first token that differs, from 0", "tokens"),
            "mismatch_margin": Column("difference of the target's two largest logits there", "logits"),
        },
    ),
    "timings": TableFacts(
        "a timed generation",
        "drafters.evaluate --protocol generate; analysis.importers",
        {
            "mode": Column("`plain` (no drafter) or `draft`"),
            "repeat": Column("repetition of the same prompt, from 0"),
            "order": Column("place among the generations that were timed by turns"),
            "prefill_s": Column("time to the first token", "seconds"),
            "decode_s": Column("time of all tokens after the first", "seconds"),
            "draft_s": Column("part of decode_s spent in the drafter", "seconds"),
            "verify_s": Column("part of decode_s spent in the target", "seconds"),
            "other_s": Column("rest of decode_s", "seconds"),
            "output_tokens": Column("tokens generated", "tokens"),
        },
    ),
    "gates": TableFacts(
        "a sampled token and target layer; the sampling rule is in run.json",
        "drafters.evaluate, arms with a projection",
        {
            "position": Column("index of the token", "tokens"),
            "role": Column("`prompt` or `answer`"),
            "layer": Column("index into transformers' `hidden_states` (0 is the embedding)"),
            **_GATED,
        },
    ),
    "gate_stats": TableFacts(
        "a prompt, role and target layer: moments over all of its tokens",
        "drafters.evaluate, arms with a projection",
        {
            "role": Column("`prompt` or `answer`"),
            "layer": Column("index into transformers' `hidden_states`"),
            "n": Column("tokens summed over", "tokens"),
            "n_log": Column("tokens whose gate and last-layer gate are positive, summed over by `log_ratio`", "tokens"),
            "n_log_gate": Column("tokens whose gate is positive, summed over by `log_gate`", "tokens"),
            **_SUMS,
        },
    ),
    "fusion": TableFacts(
        "a draft layer and target layer of a layer-wise fusion: means over training tokens",
        "drafters.train, layer-wise arms",
        {
            "draft_layer": Column("draft layer, from 0"),
            "target_layer": Column("index into transformers' `hidden_states`"),
            "weight": Column("softmax weight of the target layer in this draft layer", "share"),
            "mean_feature_norm": Column("mean norm of the target layer's hidden state", "norm"),
            "contribution_share": Column("share of the fused sum that the layer contributes", "share"),
        },
    ),
    "history": TableFacts(
        "an optimizer step",
        "drafters.train",
        {
            "step": Column("optimizer step, from 1"),
            "epoch": Column("pass over the corpus, from 0"),
            "examples": Column("examples consumed in this step", "examples"),
            "tokens": Column("supervised label tokens consumed in this step", "tokens"),
            "lr": Column("learning rate"),
            "gamma": Column("decay of the loss weight exp(-(k - 1)/gamma)", "slots"),
            "loss": Column("weighted loss, over the whole step: cross-entropy, and what is trained beside it"),
            "ce": Column("unweighted cross-entropy", "nats per token"),
            "distill": Column("weighted distance from the target's distribution; null without `loss.distill`"),
            "selection_ce": Column("weighted cross-entropy among a path's candidates; null without", "nats per token"),
            "confidence_bce": Column("weighted cross-entropy of the confidence head; null without", "nats per token"),
            "grad_norm": Column("norm of the gradient before clipping", "norm"),
            "ce_at": Column("cross-entropy per draft slot, from slot 1", "nats per token"),
            "accuracy_at": Column("top-1 accuracy per draft slot, from slot 1", "share"),
            "accepted_length": Column(
                "mean accepted length of the step's training blocks, bonus token counted", "tokens"
            ),
            "val_accepted_length": Column("mean accepted length on validation prompts of seen templates", "tokens"),
            "val_unseen_accepted_length": Column(
                "mean accepted length on validation prompts of unseen templates", "tokens"
            ),
            "data_hash": Column("rolling hash of what was consumed: equal hashes, equal data in equal order"),
            "seconds": Column("wall time of the step", "seconds"),
        },
    ),
    "throughput": TableFacts(
        "a serving trial: one arm, one load, one fresh server",
        "drafters.throughput; analysis.importers",
        {
            "trial": Column("number of the trial"),
            "block": Column("block of the plan, within which arms are compared"),
            "order": Column("place of the arm within the block"),
            "arm": Column("name of the arm"),
            "engine": Column("serving engine, where known"),
            "status": Column("`ok` or `failed`; a failed trial enters no mean"),
            "reason": Column("why a trial failed"),
            "concurrency": Column("requests in flight", "requests"),
            "requests": Column("requests completed", "requests"),
            "output_tokens": Column("output tokens of all requests", "tokens"),
            "drafts": Column("verification steps, from the engine's counters", "steps"),
            "draft_tokens": Column("draft tokens proposed", "tokens"),
            "accepted": Column("draft tokens accepted", "tokens"),
            "accepted_at": Column("drafts whose token at each position was accepted", "steps"),
            "duration_s": Column("wall time of the trial", "seconds"),
            "tokens_per_s": Column("output tokens per second", "tokens/s"),
        },
    ),
    "requests": TableFacts(
        "a request of a serving trial",
        "drafters.throughput; analysis.importers",
        {
            "trial": Column("number of the trial"),
            "request": Column("number of the request within the trial"),
            "status": Column("`ok`, or why the request failed"),
            "ttft_s": Column("time to first token", "seconds"),
            "e2e_s": Column("time to last token", "seconds"),
            "output_tokens": Column("output tokens", "tokens"),
        },
    ),
}


def column_of(table: str, name: str) -> Column:
    """The facts of a column. Raises KeyError for one that is not described."""
    return FACTS[table].columns[name] if name in FACTS[table].columns else SHARED[name]
