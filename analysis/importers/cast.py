"""CAST's files: pairs of speeds per prompt (``prompt_level``), and per sampling seed (``sampling``), two arms in one.

    {"<setting>": {"target": ..., "domains": {"mtbench": {"dflash_ms": [...], "cast_ms": [...]}}}}

Times are milliseconds per token. Beside ``sampling`` times stand mean accepted lengths, ``dflash_R``, of which the
file does not say whether they are pooled or means over prompts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from analysis.importers.model import Aggregate, Found, Imported, Response, RowError, optional_real, problem, real
from analysis.importers.source import Problem, Source
from analysis.runlog.counting import Counting

NAME = "CAST speeds"
_MS, _LENGTH = "_ms", "_R"


def recognise(source: Source) -> int:
    """1 for a file of settings with domains."""
    return int(any(_lists(domain) for _, _, domain in _domains(source.document)))


def _domains(document: Any) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """(domain's name, its setting, the domain)."""
    for name, setting in document.items() if isinstance(document, dict) else ():
        domains = setting.get("domains") if isinstance(setting, dict) else None
        for domain, value in domains.items() if isinstance(domains, dict) else ():
            if isinstance(value, dict):
                yield (domain if len(document) <= 2 else f"{name}/{domain}"), setting, value


def _lists(domain: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Times by arm."""
    return {k.removesuffix(_MS): v for k, v in domain.items() if k.endswith(_MS) and isinstance(v, list)}


def read(source: Source) -> Found:
    """One run per arm."""
    problems: list[Problem] = []
    responses: dict[str, list[Response]] = {}
    aggregates: dict[str, list[Aggregate]] = {}
    targets = set()
    for domain, setting, value in _domains(source.document):
        times = _lists(value)
        per_seed = isinstance(setting.get("seeds"), list)
        if not per_seed and len({len(values) for values in times.values()}) > 1:
            sizes = ", ".join(f"{arm} {len(values)}" for arm, values in times.items())
            problems.append(Problem(None, f"{domain}: the arms have different numbers of prompts ({sizes})"))
            continue
        if isinstance(setting.get("target"), str):
            targets.add(setting["target"])
        for arm, values in times.items():
            try:
                if per_seed:
                    aggregates.setdefault(arm, []).append(_over_seeds(domain, arm, value, values))
                else:
                    responses.setdefault(arm, []).extend(_prompts(domain, values))
            except RowError as error:
                problems.append(problem(None, error, f"{domain}: "))
    target = targets.pop() if len(targets) == 1 else None
    runs = [
        Imported(
            format=NAME,
            label=arm,
            variant=arm,
            counting=Counting(prefill_token="unknown", last_step="unknown", time="per token"),
            responses=responses.get(arm, []),
            aggregates=aggregates.get(arm, []),
            mode="plain" if arm in ("ar", "baseline", "plain") else "draft",
            target=target,
            unknown=["ids of the prompts: they pair by place", "output tokens and steps of each prompt", "block size"],
        )
        for arm in sorted({*responses, *aggregates})
    ]
    return Found(runs, problems)


def _prompts(domain: str, values: list[Any]) -> list[Response]:
    return [
        Response(
            prompt_id=f"{domain}/{i}",
            line=i + 1,
            dataset=domain,
            seconds=_positive(ms, f"time of prompt {i}") / 1000,
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
