"""Which evaluation of a run is meant, where it holds several of one protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from analysis.errors import UsageError
from analysis.runlog.manifest import Evaluation
from analysis.runlog.reading import Run


def named(run: Run, name: str | None = None, protocol: str | None = None) -> dict[str, Evaluation]:
    """The run's evaluations whose key begins with ``name``, under ``protocol``; all of them where neither is given."""
    return {
        key: evaluation
        for key, evaluation in run.manifest.evaluations.items()
        if (protocol is None or evaluation.protocol == protocol) and (name is None or key.startswith(name))
    }


def described(evaluations: Mapping[str, Evaluation]) -> str:
    """Their names with protocol and number of prompts, for a message."""
    return ", ".join(f"{key} ({e.protocol}, {e.prompts} prompts)" for key, e in evaluations.items())


def choose(runs: Sequence[Run], name: str) -> tuple[list[Run], str]:
    """The runs with the evaluation ``name`` (a unique beginning will do) as the only one of its protocol, and that
    protocol.

    A run that lacks it stays as it is if it has at most one evaluation of that protocol, such as an imported log.
    Raises UsageError, with the names to choose from, where no run has it, where several begin like this, and for a run
    that has several others.
    """
    every = {key: e for run in runs for key, e in named(run).items()}
    found = {key: e for key, e in every.items() if key.startswith(name)}
    if not found:
        raise UsageError(f"no run has an evaluation named {name}; there are {described(every) or 'none'}")
    if len(found) > 1:
        raise UsageError(f"several evaluations begin with {name}: {described(found)}; give more letters of the name")
    ((key, evaluation),) = found.items()
    protocol: str = evaluation.protocol
    chosen = []
    for run in runs:
        of_protocol = named(run, protocol=protocol)
        if key not in of_protocol and len(of_protocol) > 1:
            raise UsageError(
                f"{run.address}: has no evaluation {key}, and several others of protocol '{protocol}': "
                f"{described(of_protocol)}; evaluate it under the same settings"
            )
        chosen.append(only(run, key, protocol) if key in of_protocol else run)
    return chosen, protocol


def only(run: Run, key: str, protocol: str) -> Run:
    """The run without its other evaluations of ``protocol``; those of other protocols stay."""
    kept = {k: e for k, e in run.manifest.evaluations.items() if k == key or e.protocol != protocol}
    manifest = run.manifest.model_copy(update={"evaluations": kept})
    return replace(run, manifest=manifest, chosen=(protocol, key))
