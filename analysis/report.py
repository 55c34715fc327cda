"""Reports on disk: one folder per comparison, and ``python -m analysis.report`` for all that a plan lists.

The plan, ``reports/plan.yaml``:

    comparisons:
      - {a: study-dflash, b: study-dynadflash, name: title, question: what it is to answer}

``name`` and ``question`` are optional. Each entry becomes ``<folder of the plan>/<A>-vs-<B>/``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from analysis import figures, plots, render
from analysis.comparison import Comparison, compare_runs
from analysis.errors import DataError, Parser, UsageError, run_command
from analysis.result import to_json
from analysis.runlog import MANIFEST, find_runs_folder, read_manifest, resolve, write_atomic

LOST = "lost-pairs.csv"


def write_report(
    comparison: Comparison, folder: Path, *, title: str | None = None, question: str | None = None
) -> Path:
    """Write ``report.md``, ``result.json`` and the figures with their CSV files; returns the path of report.md.

    The report is written last. Figures that an earlier report had and this one has not are removed; files of other
    names are left alone. Raises UsageError if the folder cannot be written.
    """
    drawn = plots.draw_all(comparison)
    files: dict[str, bytes | str] = {}
    for plot in drawn:
        files[f"figures/{plot.name}.png"] = figures.png(plot.figure)
        files[f"figures/{plot.name}.svg"] = figures.svg(plot.figure)
        files[f"figures/{plot.name}.csv"] = figures.csv(plot.data)
    if len(comparison.pairs.lost):
        files[LOST] = figures.csv(comparison.pairs.lost)
    files["result.json"] = to_json(comparison, title=title, question=question)
    files["report.md"] = render.report(comparison, drawn, title=title, question=question)
    ours = [LOST, *(f"figures/{name}.{kind}" for name in plots.NAMES for kind in ("png", "svg", "csv"))]
    try:
        for name, data in files.items():
            write_atomic(folder / name, data)
        for name in set(ours) - set(files):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write the report to {folder}: {error.strerror}; choose another folder") from error
    return folder / "report.md"


class PlanEntry(BaseModel):
    """One comparison of the plan."""

    model_config = ConfigDict(extra="forbid")

    a: str
    b: str
    name: str | None = None
    question: str | None = None


class Plan(BaseModel):
    """``reports/plan.yaml``."""

    model_config = ConfigDict(extra="forbid")

    comparisons: list[PlanEntry]


def read_plan(path: Path) -> Plan:
    """Raises UsageError if there is none, DataError naming the field at fault."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        return Plan.model_validate(data)
    except FileNotFoundError as error:
        raise UsageError(
            f"no plan {path}; write one, such as 'comparisons: [{{a: RUN, b: RUN}}]', "
            "or use python -m analysis.compare RUN_A RUN_B"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not YAML ({error})") from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the file"
        raise DataError(f"{path}: {field}: {first['msg']}") from error


def default_plan() -> Path:
    """``reports/plan.yaml`` beside the nearest ``runs/`` folder, else in the working directory."""
    return default_reports() / "plan.yaml"


def default_reports() -> Path:
    """The ``reports/`` folder beside the nearest ``runs/`` folder, else of the working directory."""
    runs = find_runs_folder()
    root = runs.parent if runs else Path.cwd()
    return Path(os.path.relpath(root / "reports"))


def folder_name(comparison: Comparison) -> str:
    """``<A>-vs-<B>``, of the runs' folder names."""
    return f"{comparison.a.name}-vs-{comparison.b.name}"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the reports that the plan lists; name what was left out."""
    parser = Parser(prog="python -m analysis.report", description="Write the reports that a plan lists.")
    parser.add_argument("plan", nargs="?", type=Path, help="YAML file (default: reports/plan.yaml)")
    path: Path = parser.parse_args(argv).plan or default_plan()
    plan = read_plan(path)
    failures = []
    for number, entry in enumerate(plan.comparisons, start=1):
        try:
            outcome = _write(entry, path.parent)
        except DataError as error:
            outcome = f"left out: {error}"
            failures.append(f"{entry.a} vs {entry.b}: {error}")
        print(f"[{number}/{len(plan.comparisons)}] {entry.a} vs {entry.b}: {outcome}", flush=True)
    if unlisted := _unlisted(plan):
        print(f"not in the plan, left out: {', '.join(unlisted)}")
    if failures:
        raise DataError(f"{len(failures)} of {len(plan.comparisons)} comparisons failed; the first: {failures[0]}")
    return 0


def _write(entry: PlanEntry, reports: Path) -> str:
    """Write one comparison of the plan, unless a run of it is unfinished; what to tell the user."""
    for run in (entry.a, entry.b):
        status = read_manifest(resolve(run)).status
        if status != "complete":
            return f"left out: {run} is {status}, not complete"
    comparison = compare_runs(entry.a, entry.b)
    report = write_report(comparison, reports / folder_name(comparison), title=entry.name, question=entry.question)
    return f"{comparison.overall.verdict}; {report}"


def _unlisted(plan: Plan) -> list[str]:
    """Runs of the nearest ``runs/`` folder that the plan does not compare."""
    runs = find_runs_folder()
    listed = {Path(run).name for entry in plan.comparisons for run in (entry.a, entry.b)}
    return sorted(p.parent.name for p in runs.glob(f"*/{MANIFEST}") if p.parent.name not in listed) if runs else []


if __name__ == "__main__":
    raise SystemExit(run_command(main))
