"""Identities that the counts of a run must satisfy: rules of single steps, and sums stated by each prompt."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.errors import DataError
from analysis.runlog.counting import counting_of
from analysis.runlog.load import Evaluated, listing, load, of_protocol
from analysis.runlog.reading import Run
from analysis.runlog.step_rules import broken_rules
from analysis.wording import counted


def load_sound(run: Run, protocol: str) -> Evaluated:
    """The run under ``protocol``, as :func:`analysis.runlog.load.load` gives it. Raises DataError as that does, and for
    impossible counts."""
    evaluated = load(run, protocol)
    if broken := list(broken_identities(evaluated)):
        more = f" (and {len(broken) - 1} more; python -m analysis.check {run.address} lists them)" if broken[1:] else ""
        raise DataError(f"{run.address}: impossible counts: {broken[0]}{more}; correct the log, or remove these rows")
    return evaluated


def broken_identities(evaluated: Evaluated) -> Iterator[str]:
    """Rules that the steps violate, and prompts whose own counts disagree with their steps."""
    if evaluated.run.has("acceptance"):
        for broken in broken_rules(evaluated):
            steps = counted(broken.count, "step")
            yield f"{evaluated.protocol}: {steps} with {broken.what}; the first: prompt {broken.first}"
        yield from _disagreements(evaluated)


def _disagreements(evaluated: Evaluated) -> Iterator[str]:
    run, protocol = evaluated.run, evaluated.protocol
    stated = of_protocol(run.read("prompts", ["protocol", "output_tokens", "steps"]), protocol)
    rows = evaluated.prompts.assign(
        output_tokens=stated["output_tokens"].to_numpy(), steps_stated=stated["steps"].to_numpy()
    )
    rows = rows[rows["problem"].isna()]
    wrong = rows[rows["steps_stated"].notna() & (rows["steps_stated"] != rows["steps"])]
    if len(wrong):
        ids = listing(wrong["prompt_id"])
        yield f"{protocol}: {counted(len(wrong), 'prompt')} whose step count differs from the logged steps ({ids})"
    if protocol != "prefix":
        counting = counting_of(run.manifest, protocol)
        outside = counting.outside
        beyond = rows["tokens"] - (rows["output_tokens"] - outside)  # 0, except with a whole last step
        wrong = rows[rows["output_tokens"].notna() & ((beyond < 0) | ((beyond > 0) & (counting.last_step != "whole")))]
        if len(wrong):
            rule = "output_tokens - 1" if outside else "output_tokens"
            yield (
                f"{protocol}: {counted(len(wrong), 'prompt')} whose emitted tokens do not sum to {rule} "
                f"({listing(wrong['prompt_id'])})"
            )
