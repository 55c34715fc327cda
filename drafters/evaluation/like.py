"""The evaluation of another run, to ask the same prompts in the same way."""

from __future__ import annotations

from pydantic import ValidationError

from analysis.errors import DataError, UsageError
from analysis.runlog.evaluations import described, named
from analysis.runlog.manifest import Evaluation
from analysis.runlog.reading import Run
from drafters.prompts.sources import PromptSource


def evaluation_of(run: Run, protocol: str | None = None, name: str | None = None) -> Evaluation:
    """The evaluation ``name`` of a run (a unique beginning will do), or its only one, under ``protocol`` if one is
    given. Raises UsageError, with the names to choose from, where that is not one."""
    found = named(run, name, protocol)
    if len(found) == 1:
        return next(iter(found.values()))
    known = described(found or named(run))
    if found:
        raise UsageError(f"{run.address} holds {len(found)} evaluations; choose one with --evaluation NAME: {known}")
    asked = " ".join(x for x in (f"named {name}" if name else "", f"under {protocol}" if protocol else "") if x)
    raise UsageError(f"{run.address} has no evaluation {asked or 'to repeat'}; it has {known or 'none'}")


def sources_of(run: Run, evaluation: Evaluation) -> list[PromptSource]:
    """The prompt sources of an evaluation. Raises DataError for one that does not record them."""
    recorded = evaluation.settings.get("prompts")
    try:
        return [PromptSource.model_validate(source) for source in recorded or ()] or _none(run)
    except (ValidationError, TypeError) as error:
        raise DataError(f"{run.address}: the prompt sources of its evaluation cannot be read ({error})") from error


def _none(run: Run) -> list[PromptSource]:
    raise DataError(f"{run.address}: its evaluation does not record where the prompts come from; give --prompts")
