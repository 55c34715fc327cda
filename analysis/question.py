"""What is asked of which runs: opening them, the headline's metric, and the data sets to compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analysis.errors import DataError, UsageError
from analysis.load import Evaluated, protocols
from analysis.runlog import Run
from analysis.wording import HEADLINES, Estimand


def open_run(run: Run | Path | str, allow_incomplete: bool) -> Run:
    """The run, opened if it is not yet. Raises DataError as :meth:`Run.open` does."""
    return run if isinstance(run, Run) else Run.open(run, allow_incomplete=allow_incomplete)


def headline_of(
    a: Run, b: Run, protocol: str | None, metric: str | None, controls: Sequence[Run] = ()
) -> tuple[str, Estimand]:
    """The protocol and the headline's metric: as asked for, else the first protocol that both runs have, and if there
    is one the controls too.

    Raises UsageError for a metric that is none or not the protocol's, DataError for no common protocol.
    """
    if metric is not None:
        of_metric = {e.key: (p, e) for p, estimands in HEADLINES.items() for e in estimands}
        if metric not in of_metric:
            raise UsageError(f"no metric '{metric}'; there are {', '.join(of_metric)}")
        if protocol not in (None, of_metric[metric][0]):
            raise UsageError(f"metric {metric} belongs to protocol {of_metric[metric][0]}, not {protocol}")
        return of_metric[metric]
    if protocol is None:
        in_a, in_b = protocols(a), protocols(b)
        in_all = (in_a & in_b).intersection(*map(protocols, controls))
        protocol = next((p for p in HEADLINES if p in (in_all or in_a & in_b)), None)
        if protocol is None:
            raise DataError(
                f"{a.address} and {b.address} were evaluated under no common protocol "
                f"({', '.join(sorted(in_a)) or 'none'}; {', '.join(sorted(in_b)) or 'none'}); evaluate both under one"
            )
    return protocol, HEADLINES[protocol][0]


def pick(evaluated: Evaluated, datasets: Sequence[str] | None) -> Evaluated:
    """Only the prompts of these data sets. Raises DataError for one that the run does not have."""
    if not datasets:
        return evaluated
    known = set(evaluated.prompts["dataset"])
    if unknown := sorted(set(datasets) - known):
        raise DataError(
            f"{evaluated.run.address}: no data set {', '.join(unknown)} under protocol '{evaluated.protocol}' "
            f"(there: {', '.join(sorted(known))})"
        )
    return replace(evaluated, prompts=evaluated.prompts[evaluated.prompts["dataset"].isin(datasets)])
