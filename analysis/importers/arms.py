"""The arms of a table: columns that say by which method, drafter or target a row was made.

Two rows of one prompt are two runs of it only if nothing else tells them apart. A column that is known to name an arm
(``method``, ``model``, ``target``, ...) makes a run of each of its values; any other column that tells rows of one
prompt apart is named, and the table is refused until the user says what it is.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from analysis.importers.model import Imported, Response, RowError
from analysis.importers.source import Row

#: Columns whose values are targets, and all that name an arm wherever they differ.
TARGETS = ("target", "target_model", "target_model_id", "target_model_name", "base_model")
ARMS = (
    *("arm", "method", "model", "model_id", "model_name", "drafter", "drafter_id", "draft_model", "draft_model_id"),
    *("variant", "algorithm", "algo", "speculative_algorithm", "spec_method", "condition", *TARGETS),
)
#: Settings that name an arm where they tell rows of one prompt apart: a drafter may also choose them prompt by prompt.
SETTINGS = (
    *("k", "gamma", "num_speculative_tokens", "num_spec_tokens", "num_draft_tokens", "draft_length", "block_size"),
    *("temperature", "topk", "top_k", "threshold", "mode", "config"),
)
#: Columns that number generations of one prompt by one arm.
_SAMPLES = ("seed", "sample", "repetition", "repeat", "trial", "run", "rep")
_MOST_ARMS = 50

Arm = tuple[tuple[str, str], ...]


#: Before the name of a column that a table's reader knows to name the arm.
PREFIX = "arm:"


def is_arm(column: str) -> bool:
    """Whether a column of this name says which arm a row is of."""
    return column.startswith(PREFIX) or column.lower() in ARMS


def arm_of(values: Mapping[str, Any], columns: Iterable[str]) -> Arm:
    """(column, value) of the columns that a row has."""
    return tuple((name.removeprefix(PREFIX), _text(values[name])) for name in columns if values.get(name) is not None)


def arms_of(
    rows: Sequence[Row], identity: Callable[[Row], Hashable | None], others: Callable[[Row], Mapping[str, Any]]
) -> list[Arm]:
    """The arm of each row. ``identity``: its prompt, turn and sample, None for a row that has none; ``others``: its
    columns that are not read for anything else.

    Raises RowError where another column tells rows of one prompt apart, and nothing says what it means.
    """
    values = [{name: v for name, v in others(row).items() if isinstance(v, str | int | float)} for row in rows]
    named = [name for name in dict.fromkeys(name for row in values for name in row) if is_arm(name)]
    arms = [arm_of(row, named) for row in values]
    groups: dict[Hashable, list[int]] = {}
    for place, row in enumerate(rows):
        if (key := identity(row)) is not None:
            groups.setdefault((arms[place], key), []).append(place)
    repeated = [places for places in groups.values() if len(places) > 1]
    if not repeated:
        return arms
    candidates = [name for name in _few_valued(values) if not is_arm(name)]
    apart: list[tuple[str, ...]] = [(name,) for name in candidates if _tell_apart((name,), values, repeated)]
    if not apart:
        pairs = itertools.combinations(candidates[:20], 2)
        apart = [(*names,) for names in pairs if _tell_apart(names, values, repeated)]
    settings = [names for names in apart if all(name.lower() in SETTINGS for name in names)]
    if len(settings) == 1 and len(apart) == 1:
        return [(*arm, *arm_of(row, settings[0])) for arm, row in zip(arms, values, strict=True)]
    if apart:
        first = repeated[0]
        columns = " or ".join(" and ".join(names) for names in apart[:5])
        sample = next((names[0] for names in apart if names[0].lower() in _SAMPLES), None)
        how = f"--map sample={sample}" if sample else f"--map arm={apart[0][0]}"
        raise RowError(
            f"{len(repeated):,} prompts have several rows (the first on lines {rows[first[0]].line} and "
            f"{rows[first[1]].line}), which {columns} tells apart: {how} says what it is (sample: a repetition; arm: a "
            "method), or give one file for each"
        )
    return arms


def by_arm(run: Imported) -> list[Imported]:
    """The run, or one run per arm where columns tell arms apart."""
    arms = list(dict.fromkeys(tuple(r.arm) for r in run.responses))
    seen: dict[str, set[str | None]] = {}
    for arm in arms:
        for name in {name for other in arms for name, _ in other}:
            seen.setdefault(name, set()).add(dict(arm).get(name))
    differ = [name for name in dict.fromkeys(name for arm in arms for name, _ in arm) if len(seen[name]) > 1]
    if not differ:
        return [replace(run, **_target(run, dict(arms[0]) if arms else {}))]
    of_arm: dict[str, list[Response]] = {}
    first: dict[str, dict[str, str]] = {}
    for r in run.responses:
        name = "/".join(dict(r.arm).get(column, "none") for column in differ)
        some = of_arm.setdefault(name, [])
        # a place in the file is the place of no prompt: the arms' rows are numbered each for themselves
        some.append(replace(r, prompt_id=_numbered(r, len(some) + 1)) if r.placed else r)
        first.setdefault(name, dict(r.arm))
    note = f"one file of {len(of_arm)} arms, by its column{'s'[: len(differ) > 1]} {', '.join(differ)}"
    return [
        replace(run, label=name, variant=name, responses=some, notes=[*run.notes, note], **_target(run, first[name]))
        for name, some in of_arm.items()
    ]


def _numbered(response: Response, number: int) -> str:
    before, _, _ = response.prompt_id.rpartition(" ")
    return f"{before} {number}"


def _target(run: Imported, arm: Mapping[str, str]) -> dict[str, Any]:
    """The target that a column names."""
    named = next((value for name, value in arm.items() if name.lower() in TARGETS), run.target)
    return {"target": named, "unknown": [what for what in run.unknown if what != "target" or named is None]}


def _few_valued(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Columns with more than one value, but few: neither an outcome nor a name of the row."""
    distinct: dict[str, set[Any]] = {}
    for row in rows:
        for name, value in row.items():
            if len(found := distinct.setdefault(name, set())) <= _MOST_ARMS:
                found.add(value)
    return [name for name, found in distinct.items() if 1 < len(found) <= min(_MOST_ARMS, len(rows) / 2)]


def _tell_apart(names: Sequence[str], rows: Sequence[Mapping[str, Any]], groups: Sequence[Sequence[int]]) -> bool:
    """Whether no two rows of a group have the same values, and the values of groups are the same ones."""
    found: Counter[tuple[Any, ...]] = Counter()
    for places in groups:
        of_group = {tuple(rows[place].get(name) for name in names) for place in places}
        if len(of_group) < len(places):
            return False
        found.update(of_group)
    return len(found) <= 2 * max(map(len, groups))


def _text(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text.encode("utf-8", errors="replace").decode()
