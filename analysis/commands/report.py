"""Write all reports of a plan: ``python -m analysis.report``.

The plan, ``reports/plan.yaml``:

    comparisons:
      - {a: study-dflash, b: study-dynadflash, name: title, question: the question it answers}
      - {a: study-dflash, b: [study-dynadflash, study-dflare]}     # several arms, each against the first
      - {a: [seed-1, seed-2, ...], b: [seed-1, seed-2, ...]}       # several trainings of two arms

    factorials:
      - {runs: [study-dflash, study-dflash-conv, study-dflash-path, study-dflash2], folder: study-family}

    serving:
      - {run: serving-smollm2, baseline: plain, bounds: {ttft_s: 2.0}}    # an experiment of drafters.throughput

    claims: claims.yaml    # published claims; replication.md says what these reports make of each

``name``, ``question``, ``protocol``, ``metric``, ``margin``, ``hypothesis`` and ``controls`` (runs) are optional, as
for ``python -m analysis.compare``. Each entry becomes a folder ``<A>-vs-<B>/`` beside the plan, or the ``folder`` that
it names.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from analysis.comparison.factorial import compare_factorial
from analysis.comparison.matrix import compare_many
from analysis.comparison.pairwise import compare_runs
from analysis.comparison.seed_study import compare_seeds
from analysis.errors import DataError, Parser, UsageError
from analysis.measures.claims import Claims, judge_claim
from analysis.measures.serving import serving
from analysis.report.sections import factorial, replication
from analysis.report.sections.serving import headline
from analysis.report.writing import (
    RESULT,
    write_factorial,
    write_matrix,
    write_report,
    write_seeds,
    write_serving,
)
from analysis.runlog.addresses import MANIFEST, default_reports, find_runs_folder, resolve
from analysis.runlog.reading import Run, read_manifest
from analysis.runlog.writing import write_atomic

Kind = TypeVar("Kind", bound=BaseModel)


class PlanEntry(BaseModel):
    """One report of the plan."""

    model_config = ConfigDict(extra="forbid")

    a: str | list[str]
    b: str | list[str]
    controls: list[str] = []
    protocol: Literal["replay", "generate", "prefix"] | None = None
    metric: str | None = None
    margin: float | None = None
    hypothesis: str | None = None
    name: str | None = None
    question: str | None = None
    into: str | None = Field(default=None, alias="folder")

    @property
    def folder(self) -> str:
        """The name of the report's folder: as the plan says, else of the runs' own names."""
        if self.into is not None:
            return self.into
        a, b = ([Path(run).name for run in _list(runs)] for runs in (self.a, self.b))
        if isinstance(self.a, list):
            return f"{a[0]}-x{len(a)}-vs-{b[0]}-x{len(b)}"
        return f"{a[0]}-vs-{'-and-'.join(b)}"

    @property
    def runs(self) -> list[str]:
        """All runs of the entry."""
        return [*_list(self.a), *_list(self.b), *self.controls]


def _list(runs: str | list[str]) -> list[str]:
    return [runs] if isinstance(runs, str) else runs


class FactorialEntry(BaseModel):
    """A factorial of arms of the plan; ``folder``: of its report."""

    model_config = ConfigDict(extra="forbid")

    runs: list[str]
    folder: str
    protocol: Literal["replay", "generate", "prefix"] | None = None
    metric: str | None = None
    name: str | None = None
    question: str | None = None


class ServingEntry(BaseModel):
    """One serving experiment of the plan."""

    model_config = ConfigDict(extra="forbid")

    run: str
    baseline: str | None = None
    bounds: dict[str, float] = {}
    name: str | None = None
    question: str | None = None

    @property
    def folder(self) -> str:
        """The name of the report's folder."""
        return Path(self.run).name

    @property
    def runs(self) -> list[str]:
        """The one run."""
        return [self.run]


Entry = PlanEntry | FactorialEntry | ServingEntry


class Plan(BaseModel):
    """``reports/plan.yaml``."""

    model_config = ConfigDict(extra="forbid")

    comparisons: list[PlanEntry]
    factorials: list[FactorialEntry] = []
    serving: list[ServingEntry] = []
    claims: str | None = None  # a file beside the plan: published claims, judged by these reports (replication.md)

    @property
    def entries(self) -> list[Entry]:
        """Every report of the plan, in order."""
        return [*self.comparisons, *self.factorials, *self.serving]


def read_plan(path: Path) -> Plan:
    """Raises UsageError if the plan does not exist, DataError naming the invalid field."""
    try:
        return _read(Plan, path)
    except FileNotFoundError as error:
        raise UsageError(
            f"{path} does not exist; write a plan such as 'comparisons: [{{a: RUN, b: RUN}}]', "
            "or use python -m analysis.compare RUN_A RUN_B"
        ) from error


def _read(kind: type[Kind], path: Path) -> Kind:
    try:
        return kind.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not YAML ({error})") from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the file"
        raise DataError(f"{path}: {field}: {first['msg']}") from error


def default_plan() -> Path:
    """``reports/plan.yaml`` beside the nearest ``runs/`` folder, else in the working directory."""
    return default_reports() / "plan.yaml"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the reports of the plan, and list the runs that are not in it."""
    parser = Parser(prog="python -m analysis.report", description="Write all reports of a plan.")
    parser.add_argument("plan", nargs="?", type=Path, help="YAML file (default: reports/plan.yaml)")
    path: Path = parser.parse_args(argv).plan or default_plan()
    plan = read_plan(path)
    failures, written = [], []
    for number, entry in enumerate(plan.entries, start=1):
        try:
            outcome = _write(entry, path.parent)
            written += [entry.folder] if not outcome.startswith("skipped") else []
        except DataError as error:
            outcome = f"skipped: {error}"
            failures.append(f"{_title(entry)}: {error}")
        print(f"[{number}/{len(plan.entries)}] {_title(entry)}: {outcome}", flush=True)
    if plan.claims is not None:
        print(f"replication: {_replication(plan, path.parent, written)}")
    if unlisted := _unlisted(plan):
        print(f"runs not in the plan: {', '.join(unlisted)}")
    if failures:
        raise DataError(f"{len(failures)} of {len(plan.entries)} reports failed; the first: {failures[0]}")
    return 0


def planned_folders(plan: Plan) -> list[str]:
    """The names of the folders that the plan's reports have."""
    return [entry.folder for entry in plan.entries]


def _title(entry: Entry) -> str:
    if isinstance(entry, FactorialEntry):
        return f"factorial {', '.join(entry.runs)}"
    if isinstance(entry, ServingEntry):
        return f"serving {entry.run}"
    return f"{', '.join(_list(entry.a))} vs {', '.join(_list(entry.b))}"


def _write(entry: Entry, reports: Path) -> str:
    """Write one report of the plan unless one of its runs is unfinished; returns the outcome for the user."""
    for run in entry.runs:
        status = read_manifest(resolve(run)).status
        if status != "complete":
            return f"skipped: {run} is {status}, not complete"
    options: dict[str, Any] = {"title": entry.name, "question": entry.question}
    if isinstance(entry, ServingEntry):
        found = serving(Run.open(resolve(entry.run)), entry.baseline, entry.bounds)
        return f"{headline(found)}; {write_serving(found, reports / entry.folder, **options)}"
    if isinstance(entry, FactorialEntry):
        effects = compare_factorial(entry.runs, protocol=entry.protocol, metric=entry.metric)
        return f"{factorial.headline(effects)}; {write_factorial(effects, reports / entry.folder, **options)}"
    if isinstance(entry.a, list):
        if unused := [name for name in ("controls", "hypothesis") if getattr(entry, name)]:
            raise DataError(
                f"{unused[0]} cannot be combined with several seeds, which are compared on all their prompts"
            )
        study = compare_seeds(
            entry.a, _list(entry.b), protocol=entry.protocol, metric=entry.metric, margin=entry.margin
        )
        return f"{study.overall.estimate.verdict}; {write_seeds(study, reports / entry.folder, **options)}"
    asked = {name: getattr(entry, name) for name in ("protocol", "metric", "margin", "hypothesis")}
    if isinstance(entry.b, list):
        matrix = compare_many([entry.a, *entry.b], controls=entry.controls, **asked)
        verdicts = ", ".join(e.verdict for e in matrix.overall)
        return f"{verdicts}; {write_matrix(matrix, reports / entry.folder, **options)}"
    comparison = compare_runs(entry.a, entry.b, controls=entry.controls, **asked)
    return f"{comparison.overall.verdict}; {write_report(comparison, reports / entry.folder, **options)}"


def _replication(plan: Plan, reports: Path, written: Collection[str]) -> str:
    """Judge the plan's claims by the reports ``written`` just now; returns the outcome for the user. Raises DataError
    without the file of claims."""
    try:
        claims = _read(Claims, reports / str(plan.claims))
    except FileNotFoundError as error:
        raise DataError(f"{reports / str(plan.claims)} does not exist; the plan names it as its claims") from error
    if lacking := sorted({claim.here.report for claim in claims.claims if claim.here} - set(written)):
        return f"not updated, since {lacking[0]} was not written"
    results = {folder: reports / folder / RESULT for folder in written if (reports / folder / RESULT).exists()}
    read = {folder: json.loads(path.read_text(encoding="utf-8")) for folder, path in results.items()}
    page = reports / "replication.md"
    write_atomic(page, replication.page([judge_claim(claim, read) for claim in claims.claims]))
    return str(page)


def _unlisted(plan: Plan) -> list[str]:
    """Runs of the nearest ``runs/`` folder that the plan does not compare."""
    runs = find_runs_folder()
    listed = {Path(run).name for entry in plan.entries for run in entry.runs}
    return sorted(p.parent.name for p in runs.glob(f"*/{MANIFEST}") if p.parent.name not in listed) if runs else []
