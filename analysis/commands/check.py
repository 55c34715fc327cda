"""Validate a run or a log file: ``python -m analysis.check RUN_OR_FILE``.

Holds files against the manifest (rows, sha256), tables against their schemas, and counts against the identities that
they must keep; then says what a comparison with it could claim, and what it could not.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from analysis.errors import DataError, Exit, Parser
from analysis.importers.collect import LEFT_OUT
from analysis.importers.direct import open_references
from analysis.keys import natural
from analysis.measures.aggregate import has_totals_alone
from analysis.runlog.counting import counting_of
from analysis.runlog.identities import broken_identities
from analysis.runlog.load import Evaluated, load, protocols
from analysis.runlog.reading import Run
from analysis.runlog.steps import require_conforming
from analysis.stats.cluster import partition
from analysis.stats.method import ENOUGH, FEWEST
from analysis.wording import counted, one_line

_SHOWN = 5
_PIECE = 1 << 20


@dataclass(frozen=True)
class Report:
    """``faults``: what is wrong; ``can``, ``cannot``: what a comparison with the run could claim, and could not."""

    faults: tuple[str, ...]
    can: tuple[str, ...]
    cannot: tuple[str, ...]


def check(run: Run) -> Report:
    """The whole examination of an opened run. Raises nothing for a fault of the run: faults are told."""
    faults = list(_faults_of_files(run))
    tables_hold = True
    for name in run.tables():
        if fault := _fault_of_table(run, name):
            faults.append(fault)
            tables_hold = tables_hold and name not in ("acceptance", "prompts", "timings")
    can: list[str] = []
    cannot: list[str] = []
    if tables_hold:
        for protocol in sorted(protocols(run)) if run.has("prompts") else ():
            try:
                evaluated = load(run, protocol)
            except DataError as error:
                faults.append(str(error))
                continue
            faults += broken_identities(evaluated)
            _claims_of_protocol(evaluated, can, cannot)
        _claims_of_run(run, can, cannot)
    return Report(tuple(faults), tuple(can), tuple(cannot))


def _faults_of_files(run: Run) -> Iterator[str]:
    for parts in run.manifest.tables.values():
        for part in parts:
            digest = hashlib.sha256()
            with run.filesystem.open(f"{run.root}/{part.file}", "rb") as file:
                while piece := file.read(_PIECE):
                    digest.update(piece)
            if digest.hexdigest() != part.sha256:
                yield f"{part.file}: its sha256 is not the manifest's; the file was changed after it was written"


def _fault_of_table(run: Run, name: str) -> str | None:
    try:
        if name == "acceptance":
            require_conforming(run)
            return None
        for path in run.files(name):
            run.read_part(name, path)
    except DataError as error:
        return str(error)
    return None


def _claims_of_protocol(evaluated: Evaluated, can: list[str], cannot: list[str]) -> None:
    protocol, rows = evaluated.protocol, evaluated.prompts
    usable = rows[rows["problem"].isna()]
    n, steps = len(usable), int(usable["steps"].sum())
    if not n:
        cannot.append(f"{protocol}: anything about acceptance; no prompt has a verification step with a count")
        return
    clusters, prompts = partition(usable["cluster_id"]).count, len(usable[["dataset", "prompt_id"]].drop_duplicates())
    what = counted(prompts, "prompt")
    if prompts < n:
        what = f"{counted(n, 'turn' if usable['turn'].any() else 'sample')} of {what}"
    tau = f", {usable['tokens'].sum() / steps:.4f} tokens a step" if steps else ""
    can.append(
        f"{protocol}: pair {what} by id with another run's "
        f"({counted(clusters, 'cluster')}, {counted(steps, 'step')}{tau}), data sets "
        f"{', '.join(map(one_line, sorted(usable['dataset'].unique(), key=natural)))}"
    )
    if lost := len(rows) - n:
        cannot.append(f"{protocol}: use {counted(lost, 'prompt')} ({', '.join(sorted(set(rows['problem'].dropna())))})")
    if clusters < FEWEST:
        cannot.append(f"{protocol}: find any difference significant; that takes {FEWEST} clusters at least")
    elif clusters < ENOUGH:
        cannot.append(f"{protocol}: rest on many clusters; under {ENOUGH} intervals are wide or approximate")
    if evaluated.counts.at_risk.any():
        can.append(f"{protocol}: tell acceptance by draft position")
    else:
        cannot.append(f"{protocol}: tell acceptance by draft position; which slots were at risk is not logged")
    can.append(f"{protocol}: know how it counts: {counting_of(evaluated.run.manifest, protocol)}")


def _claims_of_run(run: Run, can: list[str], cannot: list[str]) -> None:
    m = run.manifest
    if has_totals_alone(run):
        can.append("set its totals beside another's")
        cannot.append("pair prompts, or give an interval or a test over prompts: there are totals alone")
    if m.status != "complete":
        cannot.append(f"count as finished: its status is {m.status}")
    target = m.target
    if target is None:
        cannot.append("make sure that both arms had one target: it is not known")
    elif target.sha256 is None:
        cannot.append(f"make sure that the target's weights were the same; only its name is known ({target.id})")
    else:
        can.append(f"make sure that both arms had one target ({target.id})")
    if m.training is None:
        cannot.append("tell whether the arms were trained alike: no training is recorded")
    else:
        can.append("hold the training of the arms against each other (data, order, steps, seeds)")
        cannot.append("speak about another training seed: the run is one training")
    _claims_of_timings(run, can, cannot)
    if run.has("prompts"):
        prompts = run.read("prompts", ["output_hash", "matches_baseline", "repetition"])
        if prompts["output_hash"].null_count < len(prompts):
            can.append("tell on how many prompts outputs are the same as another run's")
        else:
            cannot.append("compare outputs: neither text nor hashes are logged")
        if prompts["matches_baseline"].null_count == len(prompts):
            cannot.append("say that decoding was lossless without a baseline run (--baseline)")
        if prompts["repetition"].null_count == len(prompts):
            cannot.append("tell whether loops inflate acceptance: repetition is not logged")


def _claims_of_timings(run: Run, can: list[str], cannot: list[str]) -> None:
    if not run.has("timings"):
        cannot.append("say anything about speed: no time is logged" if not run.has("throughput") else "time prompts")
        return
    modes = set(run.read("timings", ["mode"])["mode"].unique().to_pylist())
    if {"plain", "draft"} <= modes:
        can.append("give speed-ups over plain decoding of its own")
    else:
        can.append("compare speed with another run's; speed-ups want a baseline run (--baseline)")


def _of_reference(reference: str, folder: Path) -> Run:
    return open_references([reference], folder, allow_incomplete=True)[0]


def lines(run: Run, found: Report) -> list[str]:
    """The examination as lines."""
    tables = ", ".join(f"{name} {_rows(run, name):,}" for name in run.tables())
    told = [f"{run.name}: {one_line(run.label)}, by {one_line(run.manifest.created_by)}; rows: {tables or 'none'}"]
    left_out = [caveat for caveat in run.manifest.caveats if LEFT_OUT in caveat]
    told += [f"note: {caveat}" for caveat in run.manifest.caveats if caveat not in left_out]
    told += [f"fault: {fault}" for fault in found.faults]
    if not found.faults:
        told.append("no fault found" + (" in the rows that were imported" if left_out else ""))
    told += left_out
    told += [f"a comparison could, {claim}" for claim in found.can]
    return [*told, *(f"a comparison could not, {claim}" for claim in found.cannot)]


def _rows(run: Run, name: str) -> int:
    total = 0
    for path in run.files(name):
        with run.filesystem.open(path, "rb") as file:
            total += pq.ParquetFile(file).metadata.num_rows
    return total


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description. Exit 65 if there is a fault."""
    parser = Parser(prog="python -m analysis.check", description="Validate a run or a log file.")
    parser.add_argument("run", metavar="RUN_OR_FILE")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        run = _of_reference(args.run, Path(folder))
        found = check(run)
        for line in lines(run, found):
            print(one_line(line))
    return Exit.DATA if found.faults else Exit.OK
