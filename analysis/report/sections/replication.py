"""The page that says what of the published results was reproduced here."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.measures.claims import PEAK, UTILISATION, Found, Status
from analysis.report.markdown import escape, table
from analysis.wording import counted, interval, number, signed


def page(found: Sequence[Found]) -> str:
    """The whole page."""
    counts = ", ".join(f"{sum(f.status == status for f in found)} {status}" for status in Status)
    papers = dict.fromkeys(f.claim.paper for f in found)
    parts = [
        "# Replication",
        "",
        f"Of {counted(len(found), 'published claim')}: {counts}.",
        "",
        "The published results are of Qwen3-8B and other large targets on GPUs. The runs of this repository are of a "
        "target of 135M parameters, on two CPU cores. A claim is reproduced if its estimate here has the claimed "
        "verdict, not reproduced if it has another definite verdict, and undecided otherwise.",
        "",
        table(["paper", "claim", "here"], [(f.claim.paper, f.claim.claim, f.status) for f in found]),
    ]
    for paper in papers:
        parts += ["", f"## {escape(paper)}"]
        for f in found:
            if f.claim.paper == paper:
                parts += ["", f"### {escape(f.claim.claim)}", "", *_details(f)]
    return "\n".join([*parts, "", "## GPU hours", "", _formula(), ""])


def _details(f: Found) -> list[str]:
    claim = f.claim
    lines = [f"* Published: {escape(claim.published)}", f"* Here: **{f.status}**{_here(f)}"]
    if claim.reads:
        lines.append(f"* Differences: {escape(claim.reads)}")
    hours = claim.training.gpu_hours if claim.training else None
    cost = "" if hours is None else f" (about {number(hours, 0)} H100 hours of training)"
    return [*lines, f"* At full scale{cost}: `{claim.command}`"]


def _here(f: Found) -> str:
    if f.estimate is None or f.claim.here is None:
        return ""
    e, where = f.estimate, f.claim.here
    subset = f" on {escape(where.dataset)}" if where.dataset else ""
    return (
        f". [The report]({where.report}/report.md){subset} has {signed(e['estimate'])} "
        f"({interval(e['lo'], e['hi'])}), {e['verdict']}"
    )


def _formula() -> str:
    return (
        "Hours = runs x examples x (2 x target parameters x tokens + 6 x drafter parameters x anchors x block size) / "
        f"({PEAK / 1e12:.0f} x 10^12 operations a second x {UTILISATION:g} x 3600): the target reads every answer "
        "once, and the drafter runs forwards and backwards over every block. Evaluation and the target's own answers "
        "come on top. This is an estimate, not a measurement."
    )
