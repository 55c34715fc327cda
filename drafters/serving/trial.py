"""One arm's turn: a fresh server, and a trial for every level of concurrency."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.measures.throughput import DONE
from drafters.serving.client import Ask, Load, put_load
from drafters.serving.counters import Counts, scrape
from drafters.serving.engines import ENVIRONMENT, Place, command
from drafters.serving.plan import ArmPlan, ServingPlan, Visit
from drafters.serving.process import Child, Report, ServerError, free_port, running, served_model, wait_healthy

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Loaded:
    """An arm ready to be started: what its engine is to load."""

    plan: ArmPlan
    model: str
    drafter: str | None


@dataclass(frozen=True)
class Trial:
    """Rows of the throughput and the requests table."""

    row: dict[str, Any]
    requests: list[dict[str, Any]]


@dataclass(frozen=True)
class Bench:
    """What all trials share: the plan, the prompts as token ids with their names, and where server logs go."""

    plan: ServingPlan
    prompts: Sequence[Sequence[int]]
    prompt_ids: Sequence[str]
    logs: Path
    report: Report

    def visit(self, visit: Visit, arm: Loaded, done: Callable[[int], bool], keep: Callable[[Trial], None]) -> None:
        """Run the trials of one turn that are not ``done``, and ``keep`` each as soon as it has ended.

        A server that dies is started again for the next level.
        """
        numbers = {visit.first + i: level for i, level in enumerate(self.plan.concurrency)}
        left = [number for number in numbers if not done(number)]
        while left:
            try:
                with self._server(visit, arm, left[0]) as (url, model, child):
                    while left:
                        self.report(f"{visit.arm}, block {visit.block + 1}: {numbers[left[0]]} at once")
                        trial = self._measure(visit, arm, left[0], numbers[left[0]], url, model, child)
                        keep(trial)
                        left.pop(0)
                        if trial.row["status"] != DONE:
                            break  # the next level gets a fresh server
            except ServerError as error:
                keep(self._failed(visit, arm, left[0], numbers[left[0]], str(error)))
                left.pop(0)

    @contextmanager
    def _server(self, visit: Visit, arm: Loaded, number: int) -> Iterator[tuple[str, str, Child | None]]:
        """Address, model name and process of the arm's server."""
        if arm.plan.url is not None:
            url = arm.plan.url.rstrip("/").removesuffix("/v1")
            wait_healthy(url, self.plan.start_timeout_s, self.report)
            yield url, arm.plan.model or served_model(url), None
            return
        place = Place(HOST, self.plan.port or free_port(), max(self.plan.concurrency))
        line = command(arm.plan, visit.arm, place, arm.model, arm.drafter)
        env = {**ENVIRONMENT.get(arm.plan.engine, {}), **arm.plan.env}
        url = f"http://{HOST}:{place.port}"
        log = self.logs / f"{number:04d}-{visit.arm}.log"
        with running(line, env, log, url, self.plan.start_timeout_s, self.report) as child:
            yield url, visit.arm, child

    def _measure(
        self, visit: Visit, arm: Loaded, number: int, level: int, url: str, model: str, child: Child | None
    ) -> Trial:
        plan = self.plan
        ask = Ask(
            model, plan.max_tokens, plan.temperature, plan.ignore_eos, plan.seed, timeout_s=plan.request_timeout_s
        )
        if plan.warm_up:
            # the measured prompts backwards: no beginning that an engine's prefix cache could keep for them
            backwards = [self.prompts[i % len(self.prompts)][::-1] for i in range(plan.warm_up)]
            warm = put_load(url, backwards, ask, level)
            if bad := [answer.status for answer in warm.answers if not answer.ok]:
                return self._failed(visit, arm, number, level, self._blame(f"warm-up: {bad[0]}", child))
        before = scrape(url)
        load = put_load(url, self.prompts, ask, level)
        reasons = Counter(answer.status for answer in load.answers if not answer.ok)
        if reasons:
            text = "; ".join(f"{count} of {len(load.answers)} requests: {why}" for why, count in reasons.most_common(2))
            return self._failed(visit, arm, number, level, self._blame(text, child), load)
        after = scrape(url)
        # an engine may show its counters only once they have counted something
        counts = None if after is None else after.since(before or Counts())
        return self._finished(visit, arm, number, level, load, counts)

    def _blame(self, text: str, child: Child | None) -> str:
        death = child.wait_death(1.0) if child is not None else None
        return text if death is None else f"died while serving ({death}); {text}"

    def _row(
        self, visit: Visit, arm: Loaded, number: int, level: int, status: str, reason: str | None
    ) -> dict[str, Any]:
        return {
            "trial": number,
            "block": visit.block,
            "order": visit.order,
            "arm": visit.arm,
            "engine": arm.plan.engine,
            "status": status,
            "reason": reason,
            "concurrency": level,
            "requests": len(self.prompts),
        }

    def _failed(
        self, visit: Visit, arm: Loaded, number: int, level: int, reason: str, load: Load | None = None
    ) -> Trial:
        self.report(f"{visit.arm}, block {visit.block + 1}, {level} at once: failed: {reason}")
        return Trial(self._row(visit, arm, number, level, "failed", reason), self._requests(number, load))

    def _finished(self, visit: Visit, arm: Loaded, number: int, level: int, load: Load, counts: Counts | None) -> Trial:
        tokens = sum(answer.output_tokens or 0 for answer in load.answers)
        hashes = "".join(answer.output_hash or "" for answer in load.answers)
        row = self._row(visit, arm, number, level, DONE, None) | {
            "output_tokens": tokens,
            "duration_s": load.duration_s,
            "tokens_per_s": tokens / load.duration_s,
            "output_hash": hashlib.sha256(hashes.encode()).hexdigest()[:16],
        }
        if counts is not None:
            row |= {
                "drafts": counts.drafts,
                "draft_tokens": counts.draft_tokens,
                "accepted": counts.accepted,
                "accepted_at": list(counts.accepted_at),
            }
        return Trial(row, self._requests(number, load))

    def _requests(self, number: int, load: Load | None) -> list[dict[str, Any]]:
        return [
            {
                "trial": number,
                "request": answer.prompt,
                "prompt_id": self.prompt_ids[answer.prompt],
                "status": answer.status,
                "ttft_s": answer.ttft_s,
                "e2e_s": answer.e2e_s,
                "output_tokens": answer.output_tokens,
                "output_hash": answer.output_hash,
            }
            for answer in (load.answers if load is not None else ())
        ]
