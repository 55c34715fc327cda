"""Whether several runs are trainings of one arm: the same recipe, corpus, steps and target, other seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from analysis.errors import DataError
from analysis.measures.fairness import cautions_of, compare_arms
from analysis.runlog.manifest import Manifest
from analysis.runlog.reading import Run
from analysis.wording import Caution, caution, one_line

#: Rows of the fairness table that seeds decide.
_BY_SEED = ("seeds", "data-order", "init")
#: Settings that name a training, not its recipe.
_NAMES = ("name", "label", "seeds")


def seeds_of(run: Run) -> tuple[tuple[str, int], ...]:
    """The seeds that the run recorded, by name."""
    training = run.manifest.training
    return tuple(sorted(training.seeds.items())) if training else ()


def seed_name(run: Run) -> str:
    """``init 1, data 1`` or, where all are one number, ``1``; the run's name if it recorded none."""
    seeds = dict(seeds_of(run))
    if len(set(seeds.values())) == 1:
        return str(next(iter(seeds.values())))
    return ", ".join(f"{name} {seed}" for name, seed in seeds.items()) or run.name


def untrained(run: Run) -> bool:
    """Whether the manifest says that no seed enters: it records how the drafter was made, without seeds."""
    training = run.manifest.training
    return training is not None and training.status == "complete" and not training.seeds


def require_one_arm(runs: Sequence[Run]) -> None:
    """Raises DataError, naming two runs, if they are not trainings of one arm: something of the recipe is recorded in
    both and differs, or they are of one training."""
    for place, run in enumerate(runs):
        for what, value in _SAME:
            if (where := _difference(value(runs[0].manifest), value(run.manifest))) is not None:
                raise DataError(
                    f"{runs[0].address} and {run.address} are not trainings of one arm: their {what} differ ({where}); "
                    "give runs of one recipe to each side of --vs"
                )
        for earlier in runs[:place]:
            if (same := _copies(earlier, run)) is not None:
                raise DataError(
                    f"{earlier.address} and {run.address} are runs of one arm with the same {same}; give each training "
                    "once"
                )


def _copies(a: Run, b: Run) -> str | None:
    """What shows that two runs are of one training; None if nothing does."""
    if seeds_of(a) and seeds_of(a) == seeds_of(b):
        return f"seeds ({seed_name(a)})"
    weights = [run.manifest.drafter.checkpoint_sha256 if run.manifest.drafter else None for run in (a, b)]
    if weights[0] is not None and weights[0] == weights[1]:
        return "weights"
    return "address" if a.address == b.address else None


def cautions_of_arm(side: str, runs: Sequence[Run]) -> tuple[Caution, ...]:
    """What the runs of one arm do not record, so that it could not be checked."""
    unknown = [what for what, value in _SAME if any(value(run.manifest) is None for run in runs)]
    return (caution("unknown-in-arm", side=side, what=", ".join(unknown)),) if len(runs) > 1 and unknown else ()


def cautions_between(a: Sequence[Run], b: Sequence[Run], protocol: str, *, paired: bool) -> tuple[Caution, ...]:
    """How the arms differ beside the drafter, each thing once, by :mod:`analysis.measures.fairness`: seed by seed for
    arms of as many runs, else every run of the longer arm against the first of the other. Arms that are not ``paired``
    have other seeds, and what follows from those."""
    count = max(len(a), len(b))
    found: list[Caution] = []
    for first, second in zip(_filled(a, count), _filled(b, count), strict=True):
        rows = compare_arms(first, second, protocol)
        found += cautions_of([row for row in rows if paired or row.key not in _BY_SEED])
    kept = {c.code: c for c in reversed(found)}
    return tuple(kept[code] for code in dict.fromkeys(c.code for c in found))


def _filled(runs: Sequence[Run], count: int) -> list[Run]:
    return list(runs) if len(runs) == count else [runs[0]] * count


def _recipe(manifest: Manifest) -> Mapping[str, Any] | None:
    if manifest.training is None:
        return None
    return {key: value for key, value in manifest.training.settings.items() if key not in _NAMES}


def _of_training(name: str) -> Callable[[Manifest], Any]:
    return lambda manifest: getattr(manifest.training, name, None)


_SAME: tuple[tuple[str, Callable[[Manifest], Any]], ...] = (
    ("drafter's configurations", lambda m: m.drafter.config if m.drafter else None),
    ("training corpora (sha256)", _of_training("corpus_sha256")),
    ("optimizer steps", _of_training("steps")),
    ("training precisions", _of_training("precision")),
    ("training settings", _recipe),
)


def _difference(a: object, b: object, under: str = "") -> str | None:
    """The first thing that both record and that differs, with both values; None if there is none. A setting that only
    one of them records is not known to differ."""
    if a is None or b is None or a == b:
        return None
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        inner = (_difference(a[key], b[key], f"{under}.{key}" if under else str(key)) for key in a if key in b)
        return next((found for found in inner if found is not None), None)
    return f"{under} {_brief(a)} against {_brief(b)}".strip()


def _brief(value: object) -> str:
    text = one_line(value)
    return text if len(text) <= 60 else text[:59] + "…"
