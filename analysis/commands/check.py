"""Validate a run or a log file: ``python -m analysis.check RUN_OR_FILE``.

Checks files against the manifest (rows, sha256), tables against their schemas, and counts against the identities that
must hold. Then lists what a comparison with the run can and cannot show.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from analysis.commands.log_options import add_log_options, log_options
from analysis.errors import DataError, Exit, Parser
from analysis.importers.collect import LEFT_OUT
from analysis.importers.direct import open_references
from analysis.keys import natural
from analysis.measures.aggregate import has_totals_alone
from analysis.runlog.counting import counting_of
from analysis.runlog.evaluations import named, only
from analysis.runlog.identities import broken_identities
from analysis.runlog.load import Evaluated, SeveralEvaluations, load, protocols
from analysis.runlog.reading import Run
from analysis.runlog.steps import require_conforming
from analysis.stats.cluster import partition
from analysis.stats.method import ENOUGH, FEWEST
from analysis.wording import counted, one_line

_SHOWN = 5
_PIECE = 1 << 20


@dataclass(frozen=True)
class Claim:
    """Something that a comparison with the run can or cannot do: a stable ``code``, and a phrase for people."""

    code: str
    text: str


@dataclass(frozen=True)
class Report:
    """``faults``: what is invalid; ``can``, ``cannot``: what a comparison with the run can and cannot do."""

    faults: tuple[str, ...]
    can: tuple[Claim, ...]
    cannot: tuple[Claim, ...]


def check(run: Run) -> Report:
    """Check an opened run. Faults of the run are listed, not raised."""
    faults = list(_faults_of_files(run))
    tables_hold = True
    for name in run.tables():
        if fault := _fault_of_table(run, name):
            faults.append(fault)
            tables_hold = tables_hold and name not in ("acceptance", "prompts", "timings")
    can: list[Claim] = []
    cannot: list[Claim] = []
    if tables_hold:
        for protocol in sorted(protocols(run)) if run.has("prompts") else ():
            try:
                evaluations = [("", load(run, protocol))]
            except SeveralEvaluations:
                keys = named(run, protocol=protocol)
                evaluations = [(f"evaluation {key}, ", load(only(run, key, protocol), protocol)) for key in keys]
            except DataError as error:
                faults.append(str(error))
                continue
            for evaluation, evaluated in evaluations:
                faults += broken_identities(evaluated)
                _claims_of_protocol(evaluated, evaluation + protocol, can, cannot)
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
                yield f"{part.file}: its sha256 differs from the manifest's; the file was changed after it was written"


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


def _claims_of_protocol(evaluated: Evaluated, protocol: str, can: list[Claim], cannot: list[Claim]) -> None:
    rows = evaluated.prompts
    usable = rows[rows["problem"].isna()]
    n, steps = len(usable), int(usable["steps"].sum())
    if not n:
        cannot.append(Claim("acceptance", f"{protocol}: measure acceptance (no verification step has a count)"))
        return
    clusters, prompts = partition(usable["cluster_id"]).count, len(usable[["dataset", "prompt_id"]].drop_duplicates())
    what = counted(prompts, "prompt")
    if prompts < n:
        what = f"{counted(n, 'turn' if usable['turn'].any() else 'sample')} of {what}"
    tau = f", {usable['tokens'].sum() / steps:.4f} tokens per step" if steps else ""
    size = f"{counted(clusters, 'cluster')}, {counted(steps, 'step')}{tau}"
    names = ", ".join(map(one_line, sorted(usable["dataset"].unique(), key=natural)))
    can.append(Claim("pairs", f"{protocol}: pair {what} by id with another run ({size}), data sets {names}"))
    if lost := len(rows) - n:
        reasons = ", ".join(sorted(set(rows["problem"].dropna())))
        cannot.append(Claim("lost-prompts", f"{protocol}: use {counted(lost, 'prompt')} ({reasons})"))
    if clusters < FEWEST:
        text = f"{protocol}: show a significant difference (requires at least {FEWEST} clusters)"
        cannot.append(Claim("significance", text))
    elif clusters < ENOUGH:
        text = f"{protocol}: give narrow intervals (approximate or wide below {ENOUGH} clusters)"
        cannot.append(Claim("few-clusters", text))
    if evaluated.counts.at_risk.any():
        can.append(Claim("positions", f"{protocol}: show acceptance by draft position"))
    else:
        text = f"{protocol}: show acceptance by draft position (the slots at risk are not logged)"
        cannot.append(Claim("positions", text))
    counting = counting_of(evaluated.run.manifest, evaluated.protocol)
    can.append(Claim("counting", f"{protocol}: use a known counting convention: {counting}"))


def _claims_of_run(run: Run, can: list[Claim], cannot: list[Claim]) -> None:
    m = run.manifest
    if has_totals_alone(run):
        can.append(Claim("totals", "compare its totals with another run's"))
        cannot.append(Claim("pairs", "pair prompts or give an interval over prompts (the log has only totals)"))
    if m.status != "complete":
        cannot.append(Claim("finished", f"treat the run as finished (its status is {m.status})"))
    target = m.target
    if target is None:
        cannot.append(Claim("target", "verify that both arms used the same target (the target is not recorded)"))
    elif target.sha256 is None:
        text = f"verify that the target's weights were the same (only its name is recorded: {target.id})"
        cannot.append(Claim("target-weights", text))
    else:
        can.append(Claim("target", f"verify that both arms used the same target ({target.id})"))
    if m.training is None:
        cannot.append(Claim("training", "verify that the arms were trained alike (no training is recorded)"))
    else:
        can.append(Claim("training", "compare the training of the arms (data, order, steps, seeds)"))
        cannot.append(Claim("other-seeds", "generalise to other training seeds (the run is a single training)"))
    _claims_of_timings(run, can, cannot)
    if run.has("prompts"):
        prompts = run.read("prompts", ["output_hash", "matches_baseline", "repetition"])
        if prompts["output_hash"].null_count < len(prompts):
            can.append(Claim("outputs", "count the prompts with the same output as another run"))
        else:
            cannot.append(Claim("outputs", "compare outputs (neither text nor hashes are logged)"))
        if prompts["matches_baseline"].null_count == len(prompts):
            cannot.append(Claim("lossless", "verify lossless decoding without a baseline run (--baseline)"))
        if prompts["repetition"].null_count == len(prompts):
            cannot.append(Claim("loops", "check whether loops inflate acceptance (repetition is not logged)"))


def _claims_of_timings(run: Run, can: list[Claim], cannot: list[Claim]) -> None:
    if not run.has("timings"):
        totals = run.has("throughput")
        text = "time prompts (only totals are timed)" if totals else "compare speed (no times are logged)"
        cannot.append(Claim("speed", text))
        return
    modes = set(run.read("timings", ["mode"])["mode"].unique().to_pylist())
    if {"plain", "draft"} <= modes:
        can.append(Claim("own-speed-up", "give speed-ups over its own plain decoding"))
    else:
        can.append(Claim("speed", "compare speed with another run (speed-ups require a baseline run, --baseline)"))


def lines(run: Run, report: Report) -> list[str]:
    """The report as lines."""
    tables = ", ".join(f"{name} {_rows(run, name):,}" for name in run.tables())
    shown = [f"{run.name}: {one_line(run.label)}, by {one_line(run.manifest.created_by)}; rows: {tables or 'none'}"]
    left_out = [caveat for caveat in run.manifest.caveats if LEFT_OUT in caveat]
    shown += [f"note: {caveat}" for caveat in run.manifest.caveats if caveat not in left_out]
    shown += [f"fault: {fault}" for fault in report.faults]
    if not report.faults:
        shown.append("no faults" + (" in the imported rows" if left_out else ""))
    shown += left_out
    shown += [f"a comparison can {claim.text}" for claim in report.can]
    return [*shown, *(f"a comparison cannot {claim.text}" for claim in report.cannot)]


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
    add_log_options(parser)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        (run,) = open_references([args.run], Path(folder), allow_incomplete=True, options=log_options(args))
        report = check(run)
        for line in lines(run, report):
            print(one_line(line))
    return Exit.DATA if report.faults else Exit.OK
