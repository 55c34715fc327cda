"""The life of a training run: begun or resumed, trained with checkpoints and validations, finished."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from analysis.errors import DataError, DraftlabError
from analysis.runlog import manifest as records
from analysis.runlog.addresses import MANIFEST
from analysis.runlog.manifest import Manifest, settings_hash
from analysis.runlog.reading import Run, read_manifest
from analysis.runlog.writing import RunWriter, write_atomic
from analysis.stats.spikes import WINDOW, spikes
from drafters.axes import complete
from drafters.checkpoints.folder import save_drafter, weights_sha256
from drafters.checkpoints.mean_gate import save_mean_gate
from drafters.checkpoints.run_files import FINAL, remember_prompts
from drafters.config import RunConfig, ValidationSettings
from drafters.corpus.build import Corpus, CorpusExample
from drafters.corpus.vocabulary import draft_vocabulary
from drafters.model import fusion_table
from drafters.model.drafter import Drafter
from drafters.progress import progress, say
from drafters.prompts.sources import prompt_set_hash
from drafters.provenance import environment
from drafters.target.frozen import Target
from drafters.training.corpora import arm_corpus, validation_corpora
from drafters.training.group import Group, joined
from drafters.training.logs import logging_to, require_logs
from drafters.training.schedule import native_precision
from drafters.training.stopping import NotFiniteError, stop_requests
from drafters.training.trainer import Trainer

#: Of a corpus without stored features, for the mean gate that the frozen control takes.
MEAN_GATE_EXAMPLES = 4096


def train(config: RunConfig, folder: Path, device: str, logs: Sequence[str] = (), keep: int | None = None) -> str:
    """Train ``config`` into ``folder``, on this process or, under torchrun, on all ranks; returns a line for the user.

    ``logs``: names of drafters.training.logs. ``keep``: how many saved states stay, after the end too; None: the last
    one, until the end. Raises UsageError without a log's package, DataError if the folder holds a run with other
    settings, LostRankError if another rank stops.
    """
    require_logs(logs)
    with joined(device) as group:
        return _train(config, folder, device, group, logs, keep)


def _train(config: RunConfig, folder: Path, device: str, group: Group, logs: Sequence[str], keep: int | None) -> str:
    """All ranks do this; rank 0 alone writes."""
    writer = _begin(config, folder, group)
    manifest = writer.manifest
    assert manifest.training is not None
    if manifest.training.status == "complete":
        if not (folder / "checkpoints" / FINAL).exists():
            raise DataError(
                f"{folder}: trained already, but its weights are not here (runs that ship are logs alone); "
                "to train it again, --run another folder or move this one away"
            )
        return f"{folder}: complete already, {manifest.training.steps} steps; nothing to do"

    target = Target.of_run(config.model_dump(), device)
    manifest.target, manifest.environment = target.info(), environment(device)
    _require_possible(config, target, writer, group)
    prompts = config.corpus.training_prompts()
    corpus = arm_corpus(config, target, prompts, "corpus")
    manifest.caveats += [note for note in corpus.notes if note not in manifest.caveats]
    if corpus.build_seconds:
        manifest.timings["corpus_s"] = corpus.build_seconds
    validation = validation_corpora(config, target, prompts, manifest)

    drafter_config = complete(config.drafter, target, _vocabulary(config, corpus, manifest))
    if manifest.training.precision is None:  # a training goes on in the precision that it began with
        asked = config.training.precision
        manifest.training.precision = native_precision(device) if asked == "auto" else asked
    precision = group.from_leader(manifest.training.precision)
    trainer = Trainer(config, drafter_config, corpus, target, device, precision, group)
    manifest.drafter = records.Drafter(
        config=drafter_config.model_dump(mode="json", exclude={"draft_vocab"})
        | {"draft_vocab": len(drafter_config.draft_vocab) if drafter_config.draft_vocab else None},
        parameters=trainer.drafter.parameter_counts(),
        init_sha256=weights_sha256(trainer.drafter, backbone_only=True),
    )
    manifest.training.corpus_sha256 = corpus.sha256
    manifest.training.prompt_set_sha256 = prompt_set_hash(prompts)
    manifest.training.examples = len(corpus)
    checkpoints = folder / "checkpoints"
    _resume(trainer, writer, checkpoints)
    trainer.begin()
    if group.leads:
        remember_prompts(checkpoints, prompts)
        writer.save()

    started = time.monotonic() - sum(row["seconds"] for row in trainer.history)
    shown = progress(f"train {config.name}", trainer.steps, trainer.step) if group.leads else nullcontext(_untold)
    logged = logging_to(logs, folder, config, trainer.step) if group.leads else nullcontext(_unwritten)
    with shown as tick, logged as log, stop_requests() as stop:
        while trainer.step < trainer.steps:
            row = _step(trainer, folder)
            _validate(trainer, row, config.validation, validation)
            length = row["val_accepted_length"] or row["accepted_length"] or 0.0
            losses = np.array([past["loss"] for past in trainer.history[-1 - WINDOW :]], dtype=float)
            log({**row, "steps": trainer.steps, "spike": bool(spikes(losses)[-1])})
            tick(trainer.step, f"loss {row['loss'] or 0:.3f}, accepted length {length:.2f}")
            stopped = group.any(stop.requested)
            due = stopped or trainer.step % config.training.checkpoint_every == 0
            if due and trainer.step < trainer.steps:
                _save(trainer, writer, checkpoints, keep or 1)
            if stopped:
                raise KeyboardInterrupt
    manifest.timings["train_s"] = time.monotonic() - started
    drafter, _ = trainer.complete()
    if group.leads:
        _finish(trainer, drafter, writer, checkpoints, keep or 0)
        writer.save()
    return f"{folder}: {trainer.steps} steps in {manifest.timings['train_s']:.0f} s; weights in {checkpoints / FINAL}"


def _step(trainer: Trainer, folder: Path) -> dict[str, Any]:
    """A step of the optimizer. Of one whose gradient is not finite, the examples are written down."""
    try:
        return trainer.train_step()
    except NotFiniteError as error:
        path = folder / f"not-finite-step-{error.step:06d}.json"
        if trainer.group.leads:
            record = {"step": error.step, "lr": error.lr, "loss": str(error.loss), "grad_norm": str(error.grad_norm)}
            write_atomic(path, json.dumps({**record, "examples": error.examples}) + "\n")
        raise DataError(
            f"{folder}: {error}; its examples are in {path.name}. The same command goes on from the last checkpoint. "
            "Another run may take a lower training.lr, more training.warmup, or training.precision=float32"
        ) from error


def _vocabulary(config: RunConfig, corpus: Corpus, manifest: Manifest) -> tuple[int, ...] | None:
    """The draft vocabulary's target ids, if there is one; what the answers did not fill is noted."""
    if config.drafter.draft_vocab is None:
        return None
    answers, prompts = corpus.token_counts(), corpus.token_counts(answers=False)  # reads the whole corpus
    found = draft_vocabulary(config.drafter.draft_vocab, answers, prompts, config.drafter.mask_token_id)
    if found.note and found.note not in manifest.caveats:
        manifest.caveats.append(found.note)
        say(f"{config.name}: {found.note}")
    return found.ids


def _require_possible(config: RunConfig, target: Target, writer: RunWriter, group: Group) -> None:
    """Raises DataError for a drafter that the target cannot have, before the corpus, which takes long. A run that has
    nothing yet is removed, so that the corrected configuration may have its name."""
    whole = config.drafter.model_copy(update={"draft_vocab": None, "prompt_tokens": False})
    try:
        complete(whole, target)
    except DataError:
        if group.leads and not writer.manifest.tables:
            (writer.folder / MANIFEST).unlink(missing_ok=True)
            with suppress(OSError):  # not empty
                writer.folder.rmdir()
        raise


def _untold(done: int, note: str) -> None:
    """What ranks beside the first show of their progress."""


def _unwritten(row: Mapping[str, Any]) -> None:
    """Where ranks beside the first log."""


def _begin(config: RunConfig, folder: Path, group: Group) -> RunWriter:
    """The run folder, opened by rank 0; what it raises, all ranks raise."""
    writer, failure = None, None
    if group.leads:
        try:
            writer = _open_run(config, folder)
        except DraftlabError as error:
            failure = error
    if failure := group.from_leader(failure):
        raise failure
    return writer or RunWriter.resume(folder)


def _open_run(config: RunConfig, folder: Path) -> RunWriter:
    settings = config.model_dump(mode="json")
    digest = settings_hash(settings)
    if (folder / MANIFEST).exists():
        if other := _other_settings(read_manifest(str(folder)), config):
            raise DataError(
                f"{folder}: holds a run with other settings ({'; '.join(other)}); "
                "choose another name, or --run another folder"
            )
        return RunWriter.resume(folder)
    manifest = Manifest(
        name=config.name,
        label=config.label,
        created_by="drafters.train",
        training=records.Training(
            status="running", settings=settings, settings_sha256=digest, seeds=config.seeds.model_dump()
        ),
    )
    writer = RunWriter(folder, manifest)
    writer.save()
    return writer


def _other_settings(manifest: Manifest, config: RunConfig) -> list[str]:
    """Where a run's settings differ from ``config``. A field that came later than the run had its default then."""
    if manifest.training is None:
        return ["it was not trained"]
    try:
        held = RunConfig.model_validate(manifest.training.settings)
    except ValidationError as error:
        return [f"{'.'.join(map(str, error.errors()[0]['loc']))} is not known here"]
    theirs, ours = _flat(held.model_dump(mode="json")), _flat(config.model_dump(mode="json"))
    names = [name for name in ours | theirs if ours.get(name) != theirs.get(name)]
    return [f"{name} {json.dumps(theirs.get(name))} there, {json.dumps(ours.get(name))} here" for name in names]


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def _validate(trainer: Trainer, row: dict[str, Any], settings: ValidationSettings, corpora: dict[str, Corpus]) -> None:
    due = trainer.step % settings.every == 0 or trainer.step == trainer.steps
    for column in ("val_accepted_length", "val_unseen_accepted_length"):
        corpus = corpora.get(column)
        row[column] = trainer.validate(corpus) if corpus is not None and due else None


def _save(trainer: Trainer, writer: RunWriter, checkpoints: Path, keep: int) -> None:
    # history first: on resume it may run past the weights and is cut, but it must not fall short of them
    leads = trainer.group.leads
    if leads:
        writer.append("history", trainer.history)
        writer.commit()
    trainer.save(checkpoints / f"step-{trainer.step:06d}")
    if leads:
        _remove_old(checkpoints, keep)


def _remove_old(checkpoints: Path, keep: int) -> None:
    """All saved states but the last ``keep``; the newest is whole by now."""
    folders = _step_folders(checkpoints)
    for old in folders[: len(folders) - keep]:
        shutil.rmtree(old)


def _step_folders(checkpoints: Path) -> list[Path]:
    return sorted(checkpoints.glob("step-*"))


def _resume(trainer: Trainer, writer: RunWriter, checkpoints: Path) -> None:
    if saved := _step_folders(checkpoints):
        history = Run.open(writer.folder, allow_incomplete=True).read("history").to_pylist()
        trainer.restore(saved[-1], history)


def _finish(trainer: Trainer, drafter: Drafter, writer: RunWriter, checkpoints: Path, keep: int) -> None:
    writer.append("history", trainer.history)
    corpus = trainer.corpus
    sample = trainer.reader.each(corpus[i] for i in range(min(fusion_table.EXAMPLES, len(corpus))))
    if rows := fusion_table.fusion_rows(drafter.fusion, drafter.config.target_layer_ids, sample):
        writer.append("fusion", rows)
    final, temporary = checkpoints / FINAL, checkpoints / f".{FINAL}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    save_drafter(drafter, temporary)
    save_mean_gate(drafter.fusion, trainer.reader.each(_for_mean_gate(corpus)), temporary)
    shutil.rmtree(final, ignore_errors=True)
    temporary.rename(final)
    manifest = writer.manifest
    assert manifest.training is not None and manifest.drafter is not None
    manifest.drafter.checkpoint_sha256 = weights_sha256(drafter)
    manifest.training.steps, manifest.training.data_hash = trainer.step, trainer.hash.state
    manifest.training.status = "complete"
    writer.commit()
    _remove_old(checkpoints, keep)


def _for_mean_gate(corpus: Corpus) -> Iterator[CorpusExample]:
    """All examples; where the target has to read each again, some of them, spread over the corpus."""
    count = len(corpus) if corpus.layer_ids else min(len(corpus), MEAN_GATE_EXAMPLES)
    return (corpus[i * len(corpus) // count] for i in range(count))
