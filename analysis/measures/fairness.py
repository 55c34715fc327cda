"""Fairness of a comparison: which conditions were equal in both arms, which differed, and which are not known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from analysis.cautions import Caution, caution
from analysis.errors import DataError
from analysis.runlog.manifest import Drafter, Evaluation, Manifest, Target
from analysis.runlog.reading import Run
from analysis.wording import one_line

Status = Literal["ok", "differs", "unknown"]
#: Settings that name an arm; the drafter's configuration and the seeds have rows of their own.
_OF_THE_ARM = ("name", "label", "drafter", "seeds")


@dataclass(frozen=True)
class FairnessRow:
    """A condition that should be equal: its value in each arm (None: not known) and its status."""

    key: str
    label: str
    a: str | None
    b: str | None
    status: Status


def same_target(a: Target | None, b: Target | None) -> bool | None:
    """Whether two runs used the same target: by the hash of its weights, else by id; None if not known."""
    if a is None or b is None:
        return None
    if a.sha256 and b.sha256:
        return a.sha256 == b.sha256
    return a.id == b.id


def require_same_target(a: Run, b: Run, *, strict: bool = False) -> None:
    """Raises DataError if the targets are known and different, and under ``strict`` if one is not known."""
    first, second = a.manifest.target, b.manifest.target
    same = same_target(first, second)
    if same is False and first and second:
        raise DataError(
            f"{a.address} and {b.address} have different targets ({_target(first)}; {_target(second)}): accepted "
            "lengths of different targets cannot be compared; evaluate both drafters with the same target"
        )
    if same is None and strict:
        unknown = a.address if first is None else b.address
        raise DataError(f"{unknown}: the target is unknown, which --strict rejects; record it in run.json")


def compare_arms(a: Run, b: Run, protocol: str) -> tuple[FairnessRow, ...]:
    """The fairness table of two runs under one protocol."""
    rows = [_row(key, label, value(a.manifest), value(b.manifest)) for key, label, value in _SCALARS]
    first, second = _evaluations(a.manifest, protocol), _evaluations(b.manifest, protocol)
    rows += [_row(key, label, value(first), value(second)) for key, label, value in _EVALUATED]
    rows.append(_settings_row("evaluation-settings", "evaluation settings", _settings(first), _settings(second)))
    training_a, training_b = (_training_settings(run.manifest) for run in (a, b))
    rows.append(_settings_row("training-settings", "training settings", training_a, training_b))
    return tuple(rows)


def cautions_of(rows: Sequence[FairnessRow]) -> tuple[Caution, ...]:
    """A caution per condition that differs, named by its key, and one for all conditions that are not known."""
    differing = [
        caution("differs", named=row.key, what=row.label, a=row.a, b=row.b) for row in rows if row.status == "differs"
    ]
    unknown = [row.label for row in rows if row.status == "unknown"]
    return (*differing, caution("unknown", what=", ".join(unknown))) if unknown else tuple(differing)


@dataclass(frozen=True)
class ArmDifference:
    """A difference by design: a drafter setting or a parameter count, with its value in each arm."""

    what: str
    a: str
    b: str


def design_differences(a: Manifest, b: Manifest) -> tuple[ArmDifference, ...]:
    """Settings of the drafters that differ, then parameter counts that differ, item by item."""
    if a.drafter is None or b.drafter is None:
        return ()
    differences = [ArmDifference(*d) for d in _differences(a.drafter.config, b.drafter.config)]
    for item in dict.fromkeys([*a.drafter.parameters, *b.drafter.parameters]):
        counts = [m.parameters.get(item, 0) for m in (a.drafter, b.drafter)]
        if counts[0] != counts[1]:
            differences.append(ArmDifference(f"{item} parameters", f"{counts[0]:,}", f"{counts[1]:,}"))
    return tuple(differences)


def _short(digest: str | None) -> str | None:
    return digest[:12] if digest else None


def _target(target: Target) -> str:
    return f"{target.id}, sha256 {_short(target.sha256)}" if target.sha256 else target.id


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _parameters(drafter: Drafter) -> str | None:
    count = drafter.parameters.get("trainable", drafter.parameters.get("total"))
    return None if count is None else f"{count:,}"


def _seeds(seeds: Mapping[str, int]) -> str | None:
    return ", ".join(f"{name} {seed}" for name, seed in sorted(seeds.items())) or None


_SCALARS: tuple[tuple[str, str, Callable[[Manifest], str | None]], ...] = (
    ("target", "target", lambda m: m.target.id if m.target else None),
    ("target-weights", "target weights (sha256)", lambda m: _short(m.target.sha256) if m.target else None),
    ("chat-template", "chat template (sha256)", lambda m: _short(m.target.chat_template_sha256) if m.target else None),
    ("corpus", "training corpus (sha256)", lambda m: _short(m.training.corpus_sha256) if m.training else None),
    ("data-order", "data consumed, in order (hash)", lambda m: _short(m.training.data_hash) if m.training else None),
    ("steps", "optimizer steps", lambda m: _text(m.training.steps) if m.training else None),
    ("precision", "training precision", lambda m: m.training.precision if m.training else None),
    ("seeds", "seeds", lambda m: _seeds(m.training.seeds) if m.training else None),
    ("init", "initial shared weights (sha256)", lambda m: _short(m.drafter.init_sha256) if m.drafter else None),
    ("parameters", "trainable parameters", lambda m: _parameters(m.drafter) if m.drafter else None),
)

_EVALUATED: tuple[tuple[str, str, Callable[[Mapping[str, Evaluation]], str | None]], ...] = (
    ("prompts", "evaluation prompts (hash)", lambda es: _joined(_short(e.prompt_set_sha256) for e in es.values())),
    ("block-size", "block size", lambda es: _joined(_text(e.block_size) for e in es.values())),
)


def _joined(values: Iterable[str | None]) -> str | None:
    return ", ".join(sorted({v for v in values if v})) or None


def _evaluations(manifest: Manifest, protocol: str) -> dict[str, Evaluation]:
    return {eval_id: e for eval_id, e in manifest.evaluations.items() if e.protocol == protocol}


def _settings(evaluations: Mapping[str, Evaluation]) -> Mapping[str, Any] | None:
    settings = {eval_id: e.settings for eval_id, e in evaluations.items()}
    return next(iter(settings.values())) if len(settings) == 1 else settings or None


def _training_settings(manifest: Manifest) -> dict[str, Any] | None:
    if manifest.training is None:
        return None
    return {key: value for key, value in manifest.training.settings.items() if key not in _OF_THE_ARM}


def _row(key: str, label: str, a: str | None, b: str | None) -> FairnessRow:
    status: Status = "unknown" if a is None or b is None else "ok" if a == b else "differs"
    return FairnessRow(key, label, a, b, status)


def _settings_row(key: str, label: str, a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> FairnessRow:
    """``equal`` for equal settings, else the fields that differ."""
    if a is None or b is None:
        return FairnessRow(key, label, None if a is None else "known", None if b is None else "known", "unknown")
    differences = _differences(a, b)
    if not differences:
        return FairnessRow(key, label, "equal", "equal", "ok")
    left = ", ".join(f"{what} {value}" for what, value, _ in differences)
    right = ", ".join(f"{what} {value}" for what, _, value in differences)
    return FairnessRow(key, label, left, right, "differs")


def _words(value: Any) -> str:
    """A setting as words: no reader should have to know Python."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(item)}" for key, item in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(f"({_words(item)})" if isinstance(item, Mapping) else _words(item) for item in value) or "none"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else "none" if value is None else str(value)


def _differences(a: Mapping[str, Any], b: Mapping[str, Any], under: str = "") -> list[tuple[str, str, str]]:
    """Fields that differ: (dotted name, value in a, value in b); a dash for a missing field."""
    differences = []
    for key in [*a, *(k for k in b if k not in a)]:
        left, right = a.get(key, "—"), b.get(key, "—")
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            differences += _differences(left, right, f"{under}{key}.")
        elif left != right:
            differences.append((f"{under}{key}", _brief(left), _brief(right)))
    return differences


def _brief(value: Any) -> str:
    text = one_line(_words(value))
    return text if len(text) <= 60 else text[:59] + "…"
