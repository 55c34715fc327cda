"""Log files taken as runs where a command expects a run: imported on the way, into a folder that is thrown away."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analysis.errors import DataError, DraftlabError, UsageError
from analysis.importers.collect import Collected, collect
from analysis.importers.model import Imported
from analysis.importers.registry import Options
from analysis.importers.write import source_files, write_run
from analysis.runlog.addresses import MANIFEST, located
from analysis.runlog.reading import Run

_SELECT = "#"


def open_references(
    references: Sequence[str],
    folder: Path,
    *,
    strict: bool = False,
    allow_incomplete: bool = False,
    options: Options | None = None,
) -> list[Run]:
    """Runs of references, each a run (path, address, name) or a log file (path, address), which is imported into
    ``folder``.

    ``FILE#CONDITION`` picks one run of a file with several. Files that lack data sets take them from the others of
    these references, by prompt id. ``options``: what the user says about the files. Raises UsageError for a condition
    that is not there, or several without a choice.
    """
    found: list[tuple[str, str, Imported, Collected] | Run] = []
    for given in references:
        reference = _fetched(given, folder)
        path, condition = _file(reference)
        if path is None:
            _require_manifest(reference)
            found.append(Run.open(reference, allow_incomplete=allow_incomplete))
            continue
        try:
            collected = collect([path], options, strict=strict)
            found.append((given, reference, _pick(given, collected.runs, condition), collected))
        except DraftlabError as error:  # of a file that was fetched, the user knows the address
            told = str(error)
            raise type(error)(told if given == reference else told.replace(str(path), given)) from error
    categories = _categories([item[2] for item in found if not isinstance(item, Run)])
    runs: list[Run] = []
    for number, item in enumerate(found):
        if isinstance(item, Run):
            runs.append(item)
            continue
        given, reference, imported, collected = item
        name = _name(reference, imported)
        target = folder / str(number) / name
        write_run(
            target,
            _with_categories(imported, categories),
            name=name,
            caveats=collected.caveats(),
            sources=source_files({given: _path(reference)}, options),
        )
        runs.append(replace(Run.open(target), address=given))  # what is wrong with it is told of the file
    return runs


def _require_manifest(reference: str) -> None:
    """Raises UsageError for a folder of logs, which would be told to lack its manifest."""
    folder = Path(reference)
    if folder.is_dir() and not (folder / MANIFEST).exists() and any(path.is_file() for path in folder.iterdir()):
        raise UsageError(
            f"{reference}: no {MANIFEST}, so no run; if its files are logs, those of one arm make a run: "
            f"python -m analysis.importers {reference}/* --out runs/NAME"
        )


def _fetched(reference: str, folder: Path) -> str:
    """The reference, its log file fetched into ``folder`` if it is at an address. Importers read a file more than
    once."""
    if "://" not in reference:
        return reference
    for address, condition in ((reference, ""), (reference.rpartition(_SELECT)[0], reference.rpartition(_SELECT)[2])):
        if "://" not in address:
            continue
        filesystem, path = located(address)
        try:
            # a web server answers for a folder too: what holds a manifest is a run
            if not filesystem.isfile(path) or filesystem.exists(f"{path}/{MANIFEST}"):
                continue
            name = path.rpartition("/")[2]
            local = folder / f"fetched-{hashlib.sha256(address.encode()).hexdigest()[:8]}" / name
            local.parent.mkdir(exist_ok=True)
            filesystem.get_file(path, str(local))
        except Exception as error:  # each library of a storage has errors of its own: no credentials, no network
            raise DataError(f"{address}: cannot be read ({type(error).__name__}: {error})") from error
        return f"{local}{_SELECT}{condition}" if condition else str(local)
    return reference


def _file(reference: str) -> tuple[Path | None, str | None]:
    """(the file, the condition asked for); (None, None) for what is no file."""
    path = Path(reference)
    if reference == "-" or (path.exists() and not path.is_dir()):
        return path, None
    name, _, condition = reference.rpartition(_SELECT)
    return (Path(name), condition) if name and Path(name).is_file() else (None, None)


def _path(reference: str) -> Path:
    path, _ = _file(reference)
    assert path is not None
    return path


def _pick(reference: str, runs: Sequence[Imported], condition: str | None) -> Imported:
    named = {run.variant or run.label: run for run in runs}
    if condition is None and len(runs) == 1:
        return runs[0]
    if condition is None:
        choices = ", ".join(f"{reference}{_SELECT}{name}" for name in named)
        raise UsageError(f"{reference}: holds {len(runs)} runs; give one: {choices}")
    if condition not in named:
        raise UsageError(f"{reference}: no run '{condition}'; there are {', '.join(named)}")
    return named[condition]


def _name(reference: str, run: Imported) -> str:
    """Of the folder, so of the report: the file's name, with the condition."""
    path, condition = _file(reference)
    assert path is not None
    name = path.name
    for suffix in (".gz", ".zst", ".jsonl", ".json", ".csv", ".parquet", ".txt", ".log"):
        name = name.removesuffix(suffix)
    return (f"{name}-{condition}" if condition else name) or "log"


def _categories(runs: Sequence[Imported]) -> dict[str, tuple[str | None, str | None]]:
    """Data set and category by prompt id, where a file states them."""
    return {r.prompt_id: (r.dataset, r.category) for run in runs for r in run.responses if r.dataset is not None}


def _with_categories(run: Imported, known: dict[str, tuple[str | None, str | None]]) -> Imported:
    if all(r.dataset is not None or r.prompt_id not in known for r in run.responses):
        return run
    responses = [
        replace(r, dataset=known[r.prompt_id][0], category=known[r.prompt_id][1])
        if r.dataset is None and r.prompt_id in known
        else r
        for r in run.responses
    ]
    return replace(run, responses=responses, notes=[*run.notes, "data sets taken from the other file, by prompt id"])
