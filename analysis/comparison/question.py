"""The inputs of a comparison: opening runs, choosing the headline's metric and the data sets, checking arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

from analysis.errors import DataError, UsageError
from analysis.runlog.evaluations import choose
from analysis.runlog.load import Evaluated, protocols
from analysis.runlog.reading import Run
from analysis.stats.inference import FINEST
from analysis.wording import HEADLINES, METRICS, Estimand


def listed(items: Any) -> list[Any]:
    """Several runs or names as a list; a single one as a list of one."""
    return [items] if isinstance(items, (str, Path, Run)) else list(items)


def margin_of(margin: float | None) -> float | None:
    """The margin. Raises UsageError unless it is a positive, finite number of at least 1 / FINEST."""
    if margin is None:
        return None
    if not (isinstance(margin, Real) and 1 / FINEST <= margin < math.inf):
        raise UsageError(f"the margin must be a finite number of tokens, at least {1 / FINEST:f}, not {margin!r}")
    return float(margin)


def require_coverage(share: float) -> None:
    """Raises UsageError if the share is not between 0 and 1."""
    if not isinstance(share, Real) or not 0 <= share <= 1:
        raise UsageError(f"the minimum coverage must be between 0 and 1, not {share!r}")


def open_run(run: Run | Path | str, allow_incomplete: bool) -> Run:
    """The run, opened if it is not yet. Raises DataError as :meth:`Run.open` does."""
    return run if isinstance(run, Run) else Run.open(run, allow_incomplete=allow_incomplete)


def of_evaluation(groups: Sequence[Sequence[Run]], name: str, protocol: str | None) -> tuple[list[list[Run]], str]:
    """Groups of runs, all under evaluation ``name`` (:func:`analysis.runlog.evaluations.choose`), and its protocol.
    Raises UsageError as that does, and where ``protocol`` is another one."""
    chosen, of_name = choose([run for group in groups for run in group], name)
    if protocol not in (None, of_name):
        raise UsageError(f"evaluation {name} is of protocol '{of_name}', not '{protocol}'; give one of the two")
    runs = iter(chosen)
    return [[next(runs) for _ in group] for group in groups], of_name


def headline_of(
    a: Run, b: Run, protocol: str | None, metric: str | None, controls: Sequence[Run] = ()
) -> tuple[str, Estimand]:
    """The protocol and the headline's metric: as asked for, else the first protocol that both runs have (with that
    metric, if one is given), and if there is one the controls too.

    Raises UsageError for an unknown protocol or metric and for a metric of another protocol, DataError without a
    common protocol.
    """
    if protocol not in (None, *HEADLINES):
        raise UsageError(f"unknown protocol '{protocol}'; choose from {', '.join(HEADLINES)}")
    of_protocol = {p: estimands[0] for p, estimands in HEADLINES.items()}
    if metric is not None:
        if metric not in METRICS:
            raise UsageError(f"no metric '{metric}'; there are {', '.join(METRICS)}")
        of_protocol = {p: e for p, estimands in HEADLINES.items() for e in estimands if e.key == metric}
        if protocol not in (None, *of_protocol):
            raise UsageError(f"metric {metric} belongs to protocol {' or '.join(of_protocol)}, not {protocol}")
    if protocol is None:
        in_a, in_b = protocols(a), protocols(b)
        in_all = (in_a & in_b).intersection(*map(protocols, controls))
        protocol = next((p for p in of_protocol if p in (in_all or in_a & in_b)), None)
        if protocol is None:
            raise DataError(
                f"{a.address} and {b.address} have no evaluation protocol in common "
                f"({', '.join(sorted(in_a)) or 'none'}; {', '.join(sorted(in_b)) or 'none'})"
                "; evaluate both under the same one"
            )
    return protocol, of_protocol[protocol]


def pick(evaluated: Evaluated, datasets: Sequence[str] | None) -> Evaluated:
    """Only the prompts of these data sets. Raises DataError for an unknown data set."""
    if not datasets:
        return evaluated
    known = set(evaluated.prompts["dataset"])
    if unknown := sorted(set(datasets) - known):
        raise DataError(
            f"{evaluated.run.address}: data set {', '.join(unknown)} is unknown under protocol '{evaluated.protocol}' "
            f"(available: {', '.join(sorted(known))})"
        )
    return replace(evaluated, prompts=evaluated.prompts[evaluated.prompts["dataset"].isin(datasets)])
