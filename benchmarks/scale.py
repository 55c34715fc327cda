"""Comparing runs of many verification steps: time and memory of ``analysis.compare``, report included, beside a bare
DuckDB group-and-join of the same rows.

    python benchmarks/scale.py [--rows 1e5 1e6 1e7 1e8 [1e9]] [--steps 50] [--folder DIR]

Two runs are generated per size, ``--steps`` steps a prompt, and removed again; a size that the disk has no room for is
left out, and said. Each measurement is a process of its own: CPU seconds (user and system) and peak resident memory
as the kernel counts them. Prints the curve and one JSON line.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb

from analysis.errors import Parser, run_command
from analysis.runlog.addresses import MANIFEST
from analysis.runlog.manifest import Evaluation, Manifest, Part, Target
from analysis.runlog.writing import sha256_of, write_atomic

#: Bytes on disk per step row, generously; generated logs take 1.
_ROOM_PER_ROW = 2
SLOTS = 15
EVAL_ID = "0123456789ab"

_BARE = """
import sys, duckdb
db = duckdb.connect()
one = ("select prompt_id, turn, sample, sum(emitted) t, count(*) s from '{}/acceptance.parquet' group by all")
a, b = (one.format(folder) for folder in sys.argv[1:3])
print(db.execute(f"select count(*), sum(b.t) / sum(b.s) - sum(a.t) / sum(a.s) from ({a}) a join ({b}) b "
                 "using (prompt_id, turn, sample)").fetchall())
"""


@dataclass(frozen=True)
class Cost:
    """One process: wall and CPU seconds, peak resident memory."""

    wall_s: float
    cpu_s: float
    peak_mib: float


@dataclass(frozen=True)
class Point:
    """One size: step rows of both runs together."""

    rows: int
    prompts: int
    compare: Cost
    bare: Cost

    @property
    def times_bare(self) -> float:
        return self.compare.cpu_s / self.bare.cpu_s


def generate(folder: Path, prompts: int, steps: int, arm: int) -> None:
    """A run of ``prompts`` prompts in three data sets, ``steps`` steps each; arm 1 accepts a little more."""
    folder.mkdir(parents=True)
    db = duckdb.connect()
    db.execute("set preserve_insertion_order = true")
    key = f"""'{EVAL_ID}' as eval_id, 'generate' as protocol, 'prompt-' || lpad(p::varchar, 9, '0') as prompt_id,
        0::smallint as turn, 0::smallint as sample, 0::float as temperature, 'set ' || (p % 3)::varchar as dataset"""
    # geometric, from a hash of (arm, row): the same on every machine
    draws = f"hash(i * 2 + {arm}) / 18446744073709551616.0 + 1e-12"
    accepted = f"least({SLOTS}, floor(ln({draws}) / ln({0.72 + 0.02 * arm})))::smallint"
    db.execute(f"""copy (
        select {key}, s::int as step, (20 + s)::int as position, {SLOTS}::smallint as drafted,
            {SLOTS}::smallint as eligible, accepted, (accepted + 1)::smallint as emitted,
            case when accepted = {SLOTS} then 'block' else 'mismatch' end as ended
        from (select i // {steps} as p, i % {steps} as s, {accepted} as accepted
              from range({prompts * steps}) t(i))
        ) to '{folder}/acceptance.parquet' (format parquet, compression zstd)""")
    nulls = "null::varchar as study_role, null::varchar as seen"
    db.execute(f"""copy (
        select {key}, prompt_id as cluster_id, null::varchar as category, {nulls}, 20::int as prompt_tokens,
            null::int as output_tokens, {steps}::int as steps, 'length' as finish_reason, null::varchar as output_hash,
            null::int[] as output_ids, null::float as repetition, null::boolean as matches_baseline,
            null::int as first_mismatch, null::float as mismatch_margin
        from range({prompts}) t(p)) to '{folder}/prompts.parquet' (format parquet, compression zstd)""")
    counts = {"acceptance": prompts * steps, "prompts": prompts}
    parts = {
        name: [Part(file=f"{name}.parquet", rows=rows, sha256=sha256_of(folder / f"{name}.parquet"))]
        for name, rows in counts.items()
    }
    evaluation = Evaluation(
        status="complete",
        protocol="generate",
        settings={"protocol": "generate"},
        prompt_set_sha256="0" * 64,
        prompts=prompts,
        block_size=SLOTS + 1,
    )
    manifest = Manifest(
        name=folder.name,
        status="complete",
        created_by="benchmarks/scale.py",
        target=Target(id="generated", sha256="0" * 64),
        evaluations={EVAL_ID: evaluation},
        tables=parts,
    )
    write_atomic(folder / MANIFEST, manifest.to_json())


def measure(command: Sequence[str]) -> Cost:
    """Run to its end and take the kernel's account. Raises RuntimeError if it fails."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    told = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[:4])}: exit {process.returncode}: {told.strip()[-500:]}")
    return Cost(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def point(folder: Path, rows: int, steps: int) -> Point:
    """Generate, measure both, remove."""
    prompts = max(rows // (2 * steps), 1)
    a, b = folder / "one", folder / "two"
    try:
        for arm, run in enumerate((a, b)):
            generate(run, prompts, steps, arm)
        bare = measure([sys.executable, "-c", _BARE, str(a), str(b)])
        out = str(folder / "report")
        compare = measure([sys.executable, "-m", "analysis.compare", str(a), str(b), "--out", out])
    finally:
        for path in (a, b, folder / "report"):
            shutil.rmtree(path, ignore_errors=True)
    return Point(2 * prompts * steps, prompts, compare, bare)


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python benchmarks/scale.py", description="Comparing runs of many verification steps.")
    parser.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6, 1e7, 1e8])
    parser.add_argument("--steps", type=int, default=50, help="verification steps per prompt")
    parser.add_argument("--folder", type=Path, help="where the runs are written (default: a temporary folder)")
    args = parser.parse_args(argv)
    header = ("step rows", "prompts", "compare: wall s", "CPU s", "peak MiB", "bare: CPU s", "peak MiB", "CPU ratio")
    print(" ".join(f"{name:>15}" for name in header), flush=True)
    points, left_out = [], []
    if args.folder:
        args.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for rows in map(int, args.rows):
            if (free := shutil.disk_usage(folder).free) < _ROOM_PER_ROW * rows:
                left_out.append(rows)
                print(f"{rows:>15,} left out: {free / 2**30:.1f} GiB free in {folder}, too little", flush=True)
                continue
            p = point(Path(folder), rows, args.steps)
            points.append(p)
            cells = (f"{p.rows:,}", f"{p.prompts:,}", f"{p.compare.wall_s:.2f}", f"{p.compare.cpu_s:.2f}",
                     f"{p.compare.peak_mib:.0f}", f"{p.bare.cpu_s:.2f}", f"{p.bare.peak_mib:.0f}",
                     f"{p.times_bare:.1f}")  # fmt: skip
            print(" ".join(f"{cell:>15}" for cell in cells), flush=True)
    rows = [asdict(p) | {"times_bare": p.times_bare} for p in points]
    found = {"steps_per_prompt": args.steps, "points": rows, "left_out": left_out}
    print(json.dumps({"benchmark": "scale", "duckdb": duckdb.__version__, **found}))
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
