"""From what was found in log files to a run folder in the run format."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from analysis.importers.model import Aggregate, Imported, Response
from analysis.importers.questions import cluster_of
from analysis.importers.registry import Options
from analysis.runlog.manifest import Evaluation, Manifest, SourceFile, Target, settings_hash
from analysis.runlog.outputs import hash_of_text, hash_of_tokens, ids_of_words, repetition, words
from analysis.runlog.schema import TABLES
from analysis.runlog.writing import RunWriter

CREATED_BY = "analysis.importers"
#: Raised where an importer reads a known format otherwise than before.
IMPORTER_VERSION = 1
PROTOCOL: Literal["generate"] = "generate"
NO_DATASET = "all"
#: Responses whose rows are made at a time.
_AT_A_TIME = 10_000


def source_files(paths: Mapping[str, Path], options: Options | None = None) -> list[SourceFile]:
    """The record of the files that a run is made of: ``paths``, by how the user called each; ``options``: what the user
    said about them."""
    found, said = [], "" if options is None else options.as_arguments()
    for given, path in paths.items():
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        found.append(
            SourceFile(
                path=given,
                bytes=path.stat().st_size,
                sha256=digest,
                importer_version=IMPORTER_VERSION,
                options=said,
            )
        )
    return found


def write_run(
    folder: Path | str,
    run: Imported,
    *,
    name: str,
    caveats: Sequence[str] = (),
    sources: Sequence[SourceFile] = (),
) -> None:
    """Write ``run`` as a complete run folder.

    Responses become acceptance, prompts and timings rows of protocol ``generate``, aggregates throughput rows, and
    their requests, where a file has them one by one, requests rows. Raises ValueError for aggregates of one name.
    """
    settings: dict[str, Any] = {"protocol": PROTOCOL, "format": run.format, "counting": run.counting.as_settings()}
    if run.temperature is not None:
        settings["temperature"] = run.temperature
    eval_id = settings_hash(settings)[:12]
    keyed = [(_key(eval_id, run, response), response) for response in run.responses]
    prompts = sorted({(key["prompt_id"], key["dataset"]) for key, _ in keyed})
    manifest = Manifest(
        name=name,
        created_by=CREATED_BY,
        label=run.label,
        variant=run.variant,
        target=Target(id=run.target) if run.target else None,
        evaluations={
            eval_id: Evaluation(
                status="complete",
                protocol=PROTOCOL,
                settings=settings,
                prompt_set_sha256=hashlib.sha256(json.dumps(prompts).encode()).hexdigest() if prompts else "",
                prompts=len(prompts) or sum(a.requests or 0 for a in run.aggregates),
                block_size=_block_size(run.responses),
                datasets=_datasets(keyed, run.aggregates),
            )
        },
        caveats=[*run.notes, *([f"not known: {', '.join(run.unknown)}"] if run.unknown else []), *caveats],
        sources=list(sources) or None,
    )
    writer = RunWriter(folder, manifest)
    if keyed:
        # all responses or none: a reader takes the table of steps, if there is one, for the whole
        if all(response.emitted is not None for response in run.responses):
            for start in range(0, len(keyed), _AT_A_TIME):
                writer.append("acceptance", _steps(keyed[start : start + _AT_A_TIME]))
        for start in range(0, len(keyed), _AT_A_TIME):
            some = keyed[start : start + _AT_A_TIME]
            writer.append("prompts", [_prompt(key, response, run) for key, response in some])
        if timed := [_timing(key, r, run) for key, r in keyed if r.seconds is not None]:
            writer.append("timings", timed)
    if run.aggregates:
        writer.append("throughput", [_trial(i, a, run) for i, a in enumerate(run.aggregates)])
        if served := [row for i, a in enumerate(run.aggregates) for row in _requests(i, a)]:
            writer.append("requests", served)
    writer.finish()


def _key(eval_id: str, run: Imported, response: Response) -> dict[str, Any]:
    return {
        "eval_id": eval_id,
        "protocol": PROTOCOL,
        "prompt_id": response.prompt_id,
        "turn": response.turn,
        "sample": response.sample,
        "temperature": run.temperature,
        "dataset": response.dataset or NO_DATASET,
    }


def _steps(keyed: Sequence[tuple[dict[str, Any], Response]]) -> pa.Table:
    """The acceptance rows of responses, all of which have steps."""
    counts = [len(response.emitted or ()) for _, response in keyed]
    owner = np.repeat(np.arange(len(keyed)), counts)
    emitted = np.concatenate([np.asarray(response.emitted, dtype=np.int64) for _, response in keyed])
    accepted = [
        np.asarray(r.emitted, dtype=np.int64) - 1 if r.accepted is None else np.asarray(r.accepted, dtype=np.int64)
        for _, r in keyed
    ]
    given = {
        "step": np.arange(owner.size) - np.repeat(np.cumsum(counts) - counts, counts),
        "drafted": pa.array([response.drafted for _, response in keyed], pa.int16()).take(pa.array(owner)),
        "accepted": np.concatenate(accepted),
        "emitted": emitted,
    }
    columns = []
    for field in TABLES["acceptance"]:
        if field.name in given:
            columns.append(pa.array(given[field.name]).cast(field.type))
        elif field.name in keyed[0][0]:
            of_response = pa.array([key[field.name] for key, _ in keyed], field.type)
            columns.append(of_response.take(pa.array(owner)))
        else:
            columns.append(pa.nulls(owner.size, field.type))
    return pa.Table.from_arrays(columns, schema=TABLES["acceptance"])


def _prompt(key: dict[str, Any], response: Response, run: Imported) -> dict[str, Any]:
    hashed, ids, repeated = _output(response, run.counting.ids)
    output = response.output_tokens
    if response.tokens is not None and (output is None or response.emitted is None):
        output = response.tokens + run.counting.outside  # from which readers without steps count the tokens in steps
    return {
        **key,
        "cluster_id": cluster_of(response.question) if response.question else response.prompt_id,
        "category": response.category,
        "prompt_tokens": response.prompt_tokens,
        "output_tokens": output,
        "steps": response.steps,
        "finish_reason": response.finish_reason,
        "output_hash": hashed,
        "output_ids": ids,
        "repetition": repeated,
    }


def _output(response: Response, unit: str) -> tuple[str | None, list[int] | None, float | None]:
    """(hash, ids, repetition) of an answer, in the unit of its run: its token ids, else hashes of its words, for no
    text is written."""
    if response.ids is not None:
        return hash_of_tokens(response.ids), list(response.ids), repetition(response.ids)
    if response.text is None or unit == "tokens":
        return None, None, None
    pieces = words(response.text)
    return hash_of_text(response.text), ids_of_words(pieces), repetition([w.strip() for w in pieces])


def _timing(key: dict[str, Any], response: Response, run: Imported) -> dict[str, Any]:
    output = response.output_tokens if response.output_tokens is not None else response.tokens
    return {
        **key,
        "mode": run.mode or "draft",
        "repeat": 0,
        "order": 0,
        "prefill_s": response.prefill,
        "decode_s": response.seconds,
        "draft_s": response.draft,
        "verify_s": response.verify,
        "output_tokens": 1 if run.counting.time == "per token" else output or 0,
    }


def _trial(number: int, aggregate: Aggregate, run: Imported) -> dict[str, Any]:
    return {
        "trial": number,
        "block": 0,
        "order": number,
        "arm": run.label,
        "engine": run.engine,
        "status": "ok",
        "concurrency": aggregate.concurrency,
        "requests": aggregate.requests,
        "output_tokens": aggregate.output_tokens,
        "drafts": aggregate.drafts,
        "draft_tokens": aggregate.draft_tokens,
        "accepted": aggregate.accepted,
        "accepted_at": aggregate.accepted_at,
        "duration_s": aggregate.duration_s,
        "tokens_per_s": aggregate.tokens_per_s,
    }


def _requests(trial: int, aggregate: Aggregate) -> Iterable[dict[str, Any]]:
    for number, request in enumerate(aggregate.served):
        yield {
            "trial": trial,
            "request": number,
            "status": "ok" if request.ok else "failed",
            "ttft_s": request.ttft_s,
            "e2e_s": request.e2e_s,
            "output_tokens": request.output_tokens,
            "output_hash": None if request.text is None else hash_of_text(request.text),
        }


def _datasets(keyed: Sequence[tuple[dict[str, Any], Response]], aggregates: Sequence[Aggregate]) -> dict[str, Any]:
    """Per data set its prompts; per subset of totals its trial and the mean length that it states."""
    if aggregates:
        if len({a.subset for a in aggregates}) < len(aggregates):
            raise ValueError("aggregates of one name, of which a manifest could hold one")
        return {
            a.subset: {"trial": i, "prompts": a.requests, "tau_stated": a.tau, "mean_of": a.mean_of}
            | ({"settings": dict(a.settings)} if a.settings else {})
            | ({"by_place": True} if a.by_place else {})
            for i, a in enumerate(aggregates)
        }
    found: dict[str, set[str]] = {}
    for key, _ in keyed:
        found.setdefault(key["dataset"], set()).add(key["prompt_id"])
    return {name: {"prompts": len(ids)} for name, ids in sorted(found.items())}


def _block_size(responses: Sequence[Response]) -> int | None:
    """Block size, one more than the drafted tokens, if the log has one for all."""
    drafted = {r.drafted for r in responses}
    only = drafted.pop() if len(drafted) == 1 else None
    return only + 1 if only is not None else None
