"""Check that several runs are trainings of the same arm: same recipe, corpus, steps and target, different seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from analysis.cautions import Caution, caution
from analysis.errors import DataError
from analysis.measures.fairness import cautions_of, compare_arms
from analysis.runlog.manifest import Manifest
from analysis.runlog.reading import Run
from analysis.wording import one_line

#: Rows of the fairness table that depend on the seed.
_BY_SEED = ("seeds", "data-order", "init")
#: Settings that name a training, not its recipe.
_NAMES = ("name", "label", "seeds")


def seeds_of(run: Run) -> tuple[tuple[str, int], ...]:
    """The seeds that the run recorded, by name."""
    training = run.manifest.training
    return tuple(sorted(training.seeds.items())) if training else ()


def seed_name(run: Run) -> str:
    """``init 1, data 1``, or ``1`` if all seeds are equal; the run's name if it recorded none."""
    seeds = dict(seeds_of(run))
    if len(set(seeds.values())) == 1:
        return str(next(iter(seeds.values())))
    return ", ".join(f"{name} {seed}" for name, seed in seeds.items()) or run.name


def untrained(run: Run) -> bool:
    """Whether no seed is involved: the manifest records a complete training without seeds."""
    training = run.manifest.training
    return training is not None and training.status == "complete" and not training.seeds


def require_one_arm(runs: Sequence[Run]) -> None:
    """Raises DataError, naming two runs, if they are not different trainings of the same arm: a part of the recipe is
    recorded in both and differs, or both are the same training."""
    for place, run in enumerate(runs):
        for what, value in _SAME:
            if (where := _difference(value(runs[0].manifest), value(run.manifest))) is not None:
                raise DataError(
                    f"{runs[0].address} and {run.address} are not trainings of the same arm: their {what} differ "
                    f"({where}); each side of --vs requires runs of the same recipe"
                )
        for earlier in runs[:place]:
            if (same := _copies(earlier, run)) is not None:
                raise DataError(
                    f"{earlier.address} and {run.address} are runs of the same arm with the same {same}; give each "
                    "training once"
                )


def _copies(a: Run, b: Run) -> str | None:
    """The evidence that two runs are the same training; None without evidence."""
    if seeds_of(a) and seeds_of(a) == seeds_of(b):
        return f"seeds ({seed_name(a)})"
    weights = [run.manifest.drafter.checkpoint_sha256 if run.manifest.drafter else None for run in (a, b)]
    if weights[0] is not None and weights[0] == weights[1]:
        return "weights"
    return "address" if a.address == b.address else None


def cautions_of_arm(side: str, runs: Sequence[Run]) -> tuple[Caution, ...]:
    """A caution about what the runs of an arm do not record and what was therefore not checked."""
    unknown = [what for what, value in _SAME if any(value(run.manifest) is None for run in runs)]
    return (caution("unknown-in-arm", side=side, what=", ".join(unknown)),) if len(runs) > 1 and unknown else ()


def cautions_between(a: Sequence[Run], b: Sequence[Run], protocol: str, *, paired: bool) -> tuple[Caution, ...]:
    """Differences between the arms beside the drafter, each once, by :mod:`analysis.measures.fairness`: seed by seed if
    the arms have the same number of runs, else every run of the longer arm against the first of the other. For arms
    that are not ``paired``, rows that depend on the seed are skipped."""
    count = max(len(a), len(b))
    cautions: list[Caution] = []
    for first, second in zip(_filled(a, count), _filled(b, count), strict=True):
        rows = compare_arms(first, second, protocol)
        cautions += cautions_of([row for row in rows if paired or row.key not in _BY_SEED])
    kept = {c.code: c for c in reversed(cautions)}
    return tuple(kept[code] for code in dict.fromkeys(c.code for c in cautions))


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
    """The first value that both record and that differs, with both values; None without one. A setting that only one of
    them records is not known to differ."""
    if a is None or b is None or a == b:
        return None
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        inner = (_difference(a[key], b[key], f"{under}.{key}" if under else str(key)) for key in a if key in b)
        return next((difference for difference in inner if difference is not None), None)
    return f"{under} {_brief(a)} against {_brief(b)}".strip()


def _brief(value: object) -> str:
    text = one_line(value)
    return text if len(text) <= 60 else text[:59] + "…"
