"""Report on a serving experiment: ``python -m analysis.serving RUN [--baseline ARM] [--bound ttft=1.0]``.

RUN is what ``python -m drafters.throughput`` made. Prints the table of arms and writes a report with figures to
``reports/<RUN>/``. ``--bound`` (``ttft``, ``tpot`` or ``e2e``, in seconds; may be given again) adds goodput: requests
per second within all bounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from analysis.errors import Parser, UsageError, finite, out_folder


def bound(text: str) -> tuple[str, float]:
    """``ttft=1.0`` as a column of request times and seconds. Raises UsageError for anything else."""
    name, sign, value = text.partition("=")
    if not sign or name not in ("ttft", "tpot", "e2e"):
        raise UsageError(f"--bound {text}: expected ttft=SECONDS, tpot=SECONDS or e2e=SECONDS")
    try:
        seconds = finite(value)
    except Exception:
        raise UsageError(f"--bound {text}: '{value}' is not a number") from None
    if seconds <= 0:
        raise UsageError(f"--bound {text}: seconds must be above 0")
    return f"{name}_s", seconds


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python -m analysis.serving", description="Report on a serving experiment.")
    parser.add_argument("run", metavar="RUN", help="run folder, address, or name under runs/")
    parser.add_argument("--baseline", metavar="ARM", help="arm that the others are compared with (default: the first)")
    parser.add_argument("--bound", action="append", default=[], metavar="TIME=S", help="latency bound for goodput")
    parser.add_argument("--out", type=out_folder, metavar="DIR", help="folder of the report (default: reports/<RUN>)")
    parser.add_argument("--allow-incomplete", action="store_true", help="take an experiment that is not finished")
    args = parser.parse_args(argv)
    bounds = dict(map(bound, args.bound))
    from rich.console import Console
    from rich.markdown import Markdown

    from analysis.measures.serving import serving
    from analysis.report.sections.serving import arms, headline
    from analysis.report.writing import write_serving
    from analysis.runlog.addresses import default_reports, resolve
    from analysis.runlog.reading import Run

    found = serving(
        Run.open(resolve(args.run), allow_incomplete=args.allow_incomplete), baseline=args.baseline, bounds=bounds
    )
    console = Console()
    console.print(headline(found), style="bold", highlight=False)
    console.print(Markdown(arms(found)))
    print(write_serving(found, args.out or default_reports() / found.name))
    return 0
