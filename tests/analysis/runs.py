"""Makes small runs for tests, complete with manifest, gates and history, from explicit counts or from a seed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.runlog.manifest import Drafter, Environment, Evaluation, Manifest, Target, Training, settings_hash
from analysis.runlog.schema import GATE_MOMENTS, GATE_QUANTITIES
from analysis.runlog.writing import RunWriter

BLOCK = 8
LAYERS = (2, 9, 15, 21, 28)  # indices into hidden_states
NORMS = np.array([4.0, 9.0, 15.0, 30.0, 80.0])  # late states are long
Change = Callable[[Manifest], Any]


def prompt(
    prompt_id: str, accepted: int | Sequence[int | None] | None, *, dataset: str = "sums", **more: Any
) -> dict[str, Any]:
    """One evaluated prompt: ``accepted`` draft tokens of its step, or of each of its steps."""
    steps = list(accepted) if isinstance(accepted, Sequence) else [accepted]
    return {"prompt_id": prompt_id, "accepted": steps, "dataset": dataset, "cluster_id": prompt_id, **more}


def prompts_of(accepted: Sequence[Any], clusters: Sequence[Any] | None = None, **more: Any) -> list[dict[str, Any]]:
    """Prompts p000, p001, ... with these accepted counts, each its own cluster unless told."""
    ids = [f"p{i:03d}" for i in range(len(accepted))]
    named = ids if clusters is None else [f"c{c}" for c in clusters]
    return [prompt(i, a, cluster_id=c, **more) for i, a, c in zip(ids, accepted, named, strict=True)]


def manifest_of(name: str, prompts: Sequence[Mapping[str, Any]], protocol: str, fusion: str) -> Manifest:
    """The manifest of a trained and evaluated arm; arms differ in fusion alone."""
    settings = {"protocol": protocol, "block_size": BLOCK, "max_new_tokens": 64}
    labels = sorted({p["dataset"] for p in prompts})
    datasets = {
        label: {
            "prompts": sum(p["dataset"] == label for p in prompts),
            "role": "held-out",
            "seen": next(p.get("seen") for p in prompts if p["dataset"] == label),
            "vocabulary_coverage": 0.97,
            "caveat": None,
        }
        for label in labels
    }
    gate = 2880 if fusion == "gated" else 0
    count = {"fc": 1_658_880, "gate": gate, "layers": 9_000_000, "norms": 5_760}
    total = sum(count.values())
    return Manifest(
        name=name,
        created_by="tests",
        label={"concat": "DFlash", "gated": "DynaDFlash"}[fusion],
        target=Target(id="toy-135m", sha256="ab" * 32, num_layers=30, hidden_size=576, chat_template_sha256="cd" * 32),
        drafter=Drafter(
            config={"fusion": fusion, "block_size": BLOCK, "target_layer_ids": [layer - 1 for layer in LAYERS]},
            parameters={**count, "total": total, "trainable": total},
            init_sha256="ef" * 32,
            checkpoint_sha256=settings_hash(name),
        ),
        training=Training(
            status="complete",
            settings={"batch": 4},
            settings_sha256=settings_hash({"batch": 4}),
            seeds={"init": 0, "data": 0, "anchors": 0},
            precision="float32",
            corpus_sha256="12" * 32,
            prompt_set_sha256="34" * 32,
            examples=240,
            steps=60,
            data_hash="56" * 32,
        ),
        evaluations={
            settings_hash(settings)[:12]: Evaluation(
                status="complete",
                protocol=protocol,
                settings=settings,
                prompt_set_sha256=settings_hash(sorted(p["prompt_id"] for p in prompts)),
                prompts=len(prompts),
                block_size=BLOCK,
                datasets=datasets,
            )
        },
        environment=Environment(threads=1, device="cpu", versions={"torch": "0"}),
    )


def write_run(
    folder: Path,
    prompts: Sequence[Mapping[str, Any]],
    *,
    protocol: str = "prefix",
    fusion: str = "concat",
    change: Change | None = None,
    gates: bool = True,
    history: bool = True,
    seed: int = 0,
    poison_gates: bool = False,
    timings: Sequence[Mapping[str, Any]] = (),
    trials: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Write a complete run, in place of one that is there.

    ``change`` edits the manifest first; ``poison_gates`` puts NaN into one moment. ``timings``: rows of timed
    generations, by ``prompt_id``; ``trials``: rows of serving trials.
    """
    shutil.rmtree(folder, ignore_errors=True)
    manifest = manifest_of(folder.name, prompts, protocol, fusion)
    (eval_id,) = manifest.evaluations
    if change:
        change(manifest)
    writer = RunWriter(folder, manifest)
    keys = [
        {
            "eval_id": eval_id,
            "protocol": protocol,
            "prompt_id": p["prompt_id"],
            "turn": p.get("turn", 0),
            "sample": p.get("sample", 0),
            "temperature": 0.0,
            "dataset": p["dataset"],
        }
        for p in prompts
    ]
    writer.append("acceptance", [s for k, p in zip(keys, prompts, strict=True) for s in _steps(k, p)], part=eval_id)
    writer.append("prompts", [_row(k, p) for k, p in zip(keys, prompts, strict=True)], part=eval_id)
    by_id = {key["prompt_id"]: key for key in keys}
    if timings:
        writer.append("timings", [{**by_id[row["prompt_id"]], **row} for row in timings], part=eval_id)
    if trials:
        writer.append("throughput", list(trials))
    rng = np.random.default_rng(seed)
    if gates:
        stats, sample = _gates(keys, fusion, rng)
        if poison_gates:
            stats[len(stats) // 2]["gate_sum"] = float("nan")
        writer.append("gate_stats", stats, part=eval_id)
        writer.append("gates", sample, part=eval_id)
    if history:
        writer.append("history", _history(rng, bonus=0.2 if fusion == "gated" else 0.0))
    writer.commit()
    return folder


def two_runs(root: Path, a: Sequence[Any], b: Sequence[Any], clusters: Sequence[Any] | None = None, **more: Any):
    """Two runs, ``one`` and ``two``, over the same prompts, from accepted counts per prompt."""
    return (
        write_run(root / "one", prompts_of(a, clusters), **more),
        write_run(root / "two", prompts_of(b, clusters), fusion="gated", **more),
    )


def simulated(
    datasets: Mapping[str, tuple[int, int]], *, effect: float = 0.3, seed: int = 0, steps: int | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Prompts of two arms: per data set (prompts, clusters). Acceptance is geometric with a rate that a cluster,
    a prompt and the arm move; ``effect`` is what B adds on the logit scale. One step a prompt (prefix), or as many as
    ``steps``, give or take two."""
    rng = np.random.default_rng(seed)
    arms: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for number, (dataset, (count, clusters)) in enumerate(datasets.items()):
        of_cluster = rng.normal(0, 0.5, clusters)
        for i in range(count):
            cluster = i % clusters
            logit = 0.9 - 0.3 * number + of_cluster[cluster] + rng.normal(0, 0.4)
            for arm, extra in zip(arms, (0.0, effect), strict=True):
                rate = 1 / (1 + np.exp(-logit - extra))
                count = steps + int(rng.integers(-2, 3)) if steps else 1
                accepted = [int(min(rng.geometric(1 - rate) - 1, BLOCK - 1)) for _ in range(count)]
                arm.append(
                    prompt(
                        f"{number}-{i:04d}",
                        accepted,
                        dataset=dataset,
                        cluster_id=f"{dataset}-{cluster}",
                        seen="template seen" if number == 0 else "unseen",
                        study_role="confirmatory",
                        repetition=float(rng.beta(1, 20)),
                    )
                )
    return arms


STUDY = {"gsm_symbolic": (120, 40), "gsm_symbolic (unseen)": (90, 15), "humaneval": (60, 60)}


def study(root: Path, *, protocol: str = "prefix", **more: Any) -> tuple[Path, Path]:
    """A study as users have it: two arms, three data sets, clusters, gates and history."""
    a, b = simulated(STUDY, steps=None if protocol == "prefix" else 6, **more)
    return (
        write_run(root / "study-dflash", a, protocol=protocol, fusion="concat", seed=1),
        write_run(root / "study-dynadflash", b, protocol=protocol, fusion="gated", seed=2),
    )


def _steps(key: Mapping[str, Any], p: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows, position = [], 20
    for step, accepted in enumerate(p["accepted"]):
        emitted = None if accepted is None else accepted + 1
        rows.append(
            {
                **key,
                "step": step,
                "position": position,
                "drafted": BLOCK - 1,
                "eligible": p.get("eligible", BLOCK - 1),
                "accepted": accepted,
                "emitted": emitted,
                "ended": None if accepted is None else "block" if accepted == BLOCK - 1 else p.get("ended", "mismatch"),
            }
        )
        position += emitted or 0
    return rows


def _row(key: Mapping[str, Any], p: Mapping[str, Any]) -> dict[str, Any]:
    values = [a for a in p["accepted"] if a is not None]
    return {
        **key,
        "cluster_id": p["cluster_id"],
        "category": p.get("category"),
        "study_role": p.get("study_role"),
        "seen": p.get("seen"),
        "prompt_tokens": p.get("prompt_tokens", 20),
        "output_tokens": sum(values) + len(values) + (key["protocol"] != "prefix"),
        "steps": len(p["accepted"]),
        "finish_reason": p.get("finish_reason", "length"),
        "output_hash": p.get("output_hash"),
        "matches_baseline": p.get("matches_baseline"),
        "first_mismatch": p.get("first_mismatch"),
        "mismatch_margin": p.get("mismatch_margin"),
        "repetition": p.get("repetition"),
    }


def _gates(keys: Sequence[Mapping[str, Any]], fusion: str, rng: np.random.Generator):
    """Moments and a sample of made-up tokens: feature norms grow with depth, gates move where the arm has them."""
    stats, sample = [], []
    for key in keys:
        for role in ("prompt", "answer"):
            tokens, count = 12, len(LAYERS)
            norm = NORMS * np.exp(rng.normal(0, 0.15, (tokens, count)))
            spread = 0.12 * np.linspace(-1, 1, count)
            gate = np.exp(spread + rng.normal(0, 0.1, (tokens, count))) if fusion == "gated" else np.ones_like(norm)
            contribution = gate * norm * rng.uniform(0.5, 0.7, norm.shape)
            share = contribution / contribution.sum(1, keepdims=True)
            log_gate = np.log(gate)
            moments = (gate, norm, gate * norm, contribution, share, log_gate, log_gate - log_gate[:, -1:])
            for j, layer in enumerate(LAYERS):
                sums = {f"{m}_sum": float(x[:, j].sum()) for m, x in zip(GATE_MOMENTS, moments, strict=True)}
                squares = {
                    f"{m}_sumsq": float((x[:, j] ** 2).sum()) for m, x in zip(GATE_MOMENTS, moments, strict=True)
                }
                stats.append({**key, "role": role, "layer": layer, "n": tokens, "n_log": tokens, **sums, **squares})
                values = {q: float(x[0, j]) for q, x in zip(GATE_QUANTITIES, moments, strict=False)}
                sample.append({**key, "position": 5, "role": role, "layer": layer, **values})
    return stats, sample


def _history(rng: np.random.Generator, bonus: float) -> list[dict[str, Any]]:
    rows = []
    for step in range(60):
        loss = 2.0 + 4.0 * np.exp(-step / 15) + rng.normal(0, 0.1)
        tau = 1.0 + (2.2 + bonus) * (1 - np.exp(-step / 20))
        validated = step % 10 == 9
        rows.append(
            {
                "step": step,
                "epoch": 0,
                "examples": 4 * (step + 1),
                "tokens": 400 * (step + 1),
                "lr": 6e-4,
                "gamma": 4.0,
                "loss": loss,
                "ce": loss + 0.3,
                "grad_norm": 1.0,
                "accepted_length": tau + rng.normal(0, 0.1),
                "val_accepted_length": tau if validated else None,
                "val_unseen_accepted_length": tau - 0.4 if validated else None,
                "data_hash": f"{step:064x}",
                "seconds": 0.5,
            }
        )
    return rows
