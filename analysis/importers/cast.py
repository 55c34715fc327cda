"""CAST's files: pairs of speeds per prompt (``prompt_level``), and per sampling seed (``sampling``), two arms in one.

    {"<setting>": {"target": ..., "domains": {"mtbench": {"dflash_ms": [...], "cast_ms": [...]}}}}

Times are milliseconds per token. Beside ``sampling`` times stand mean accepted lengths, ``dflash_R``, of which the
file does not say whether they are pooled or means over prompts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.importers.model import Aggregate, Found, Imported, Response, RowError, optional_real, problem, real
from analysis.importers.source import Problem, Source
from analysis.runlog.counting import Counting

NAME = "CAST speeds"
_MS, _LENGTH = "_ms", "_R"


def recognise(source: Source) -> int:
    """1 for a file of settings with domains."""
    return int(any(_lists(domain) for *_, domain in _domains(source.document)))


def _domains(document: Any) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    """(name of a setting, of a domain of it, the setting, the domain)."""
    for name, setting in document.items() if isinstance(document, dict) else ():
        domains = setting.get("domains") if isinstance(setting, dict) else None
        for domain, value in domains.items() if isinstance(domains, dict) else ():
            if isinstance(value, dict):
                yield name, domain, setting, value


def _lists(domain: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Times by arm."""
    return {k.removesuffix(_MS): v for k, v in domain.items() if k.endswith(_MS) and isinstance(v, list)}


def read(source: Source) -> Found:
    """One run per arm; per setting and arm where the settings differ in their target, or share a domain."""
    problems: list[Problem] = []
    found = list(_domains(source.document))
    apart = _are_apart(found)
    arms: dict[str, set[str]] = {}
    for name, _, _, value in found:
        arms.setdefault(name, set()).update(_lists(value))
    runs: dict[tuple[str, str], _Arm] = {}
    used = 0
    for name, domain, setting, value in found:
        times = _lists(value)
        per_seed = isinstance(setting.get("seeds"), list)
        if not per_seed and len({len(values) for values in times.values()}) > 1:
            sizes = ", ".join(f"{arm} {len(values)}" for arm, values in times.items())
            problems.append(Problem(None, f"{name}, {domain}: the arms have different numbers of prompts ({sizes})"))
            continue
        try:
            if lacking := sorted(arms[name] - set(times)):
                raise RowError(f"no times of {', '.join(f'{arm} ({arm}{_MS})' for arm in lacking)}")
            read_of = {arm: _of_domain(domain, arm, value, values, per_seed) for arm, values in times.items()}
        except RowError as error:  # of one arm: the other's would have no partner
            problems.append(problem(None, error, f"{name}, {domain}: "))
            continue
        used += 1
        for arm, (responses, aggregates) in read_of.items():
            of_arm = runs.setdefault((name if apart else "", arm), _Arm())
            if isinstance(setting.get("target"), str):
                of_arm.targets.add(setting["target"])
            of_arm.responses += responses
            of_arm.aggregates += aggregates
    return Found([_run(setting, arm, runs[setting, arm]) for setting, arm in sorted(runs)], problems, used)


def _of_domain(
    domain: str, arm: str, value: Mapping[str, Any], times: list[Any], per_seed: bool
) -> tuple[list[Response], list[Aggregate]]:
    if per_seed:
        return [], [_over_seeds(domain, arm, value, times)]
    return _prompts(domain, arm, times), []


@dataclass
class _Arm:
    """What the settings of a run hold of an arm."""

    responses: list[Response] = field(default_factory=list)
    aggregates: list[Aggregate] = field(default_factory=list)
    targets: set[str] = field(default_factory=set)


def _are_apart(found: Sequence[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]) -> bool:
    """Whether settings are runs of their own: they have several targets, or a domain in common."""
    targets = {str(setting.get("target")) for _, _, setting, _ in found}
    domains = [domain for _, domain, *_ in found]
    return len(targets) > 1 or len(set(domains)) < len(domains)


def _run(setting: str, arm: str, of_arm: _Arm) -> Imported:
    return Imported(
        format=NAME,
        label=f"{setting}/{arm}" if setting else arm,
        variant=f"{setting}/{arm}" if setting else arm,
        counting=Counting(prefill_token="unknown", last_step="unknown", time="per token"),
        responses=of_arm.responses,
        aggregates=of_arm.aggregates,
        mode="plain" if arm in ("ar", "baseline", "plain") else "draft",
        target=next(iter(of_arm.targets)) if len(of_arm.targets) == 1 else None,
        unknown=["ids of the prompts: they pair by place", "output tokens and steps of each prompt", "block size"],
    )


def _prompts(domain: str, arm: str, values: list[Any]) -> list[Response]:
    return [
        Response(
            prompt_id=f"{domain}/{i}",
            line=i + 1,
            dataset=domain,
            seconds=_positive(ms, f"{arm}{_MS}[{i}]") / 1000,
            placed=True,
        )
        for i, ms in enumerate(values)
    ]


def _over_seeds(domain: str, arm: str, value: Mapping[str, Any], times: list[Any]) -> Aggregate:
    if not times:
        raise RowError(f"{arm} has no time")
    mean = sum(_positive(ms, f"{arm}{_MS}") for ms in times) / len(times)
    return Aggregate(
        subset=domain,
        tau=optional_real(value, f"{arm}{_LENGTH}"),
        mean_of="prompts or steps, the file does not say",
        tokens_per_s=1000 / mean,
    )


def _positive(value: Any, what: str) -> float:
    number = real(value, what)
    if not number:
        raise RowError(f"{what} is 0")
    return number
