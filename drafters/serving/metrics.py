"""Counters of a server under the names that vLLM gives them, for /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from drafters.model.acceptance import StepCount

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LABELS = ("model_name", "engine")


class Metrics:
    """One server's counters, in a registry of their own.

    A step counts as a draft if tokens were drafted in it; ``accepted`` are draft tokens that stand in the output.
    """

    def __init__(self, model: str, positions: int):
        self.registry = CollectorRegistry()
        labels = {"model_name": model, "engine": "0"}

        def counter(name: str, text: str) -> Counter:
            return Counter(f"vllm:{name}", text, _LABELS, registry=self.registry).labels(**labels)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"vllm:{name}", text, _LABELS, registry=self.registry).labels(**labels)

        self.prompt_tokens = counter("prompt_tokens", "Prompt tokens read.")
        self.generation_tokens = counter("generation_tokens", "Tokens generated.")
        self.running = gauge("num_requests_running", "Requests in the batch.")
        self.waiting = gauge("num_requests_waiting", "Requests that wait for a place.")
        self._drafts = counter("spec_decode_num_drafts", "Steps with drafted tokens.")
        self._draft_tokens = counter("spec_decode_num_draft_tokens", "Drafted tokens.")
        self._accepted = counter("spec_decode_num_accepted_tokens", "Drafted tokens that stand.")
        at = Counter(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "Drafted tokens that stand, by slot.",
            (*_LABELS, "position"),
            registry=self.registry,
        )
        self._accepted_at = [at.labels(**labels, position=str(position)) for position in range(positions)]
        success = Counter(
            "vllm:request_success", "Finished requests.", (*_LABELS, "finished_reason"), registry=self.registry
        )
        self._success = {reason: success.labels(**labels, finished_reason=reason) for reason in ("stop", "length")}

    def step(self, step: StepCount) -> None:
        """Enter one step of one request."""
        if step.drafted:
            self._drafts.inc()
            self._draft_tokens.inc(step.drafted)
            self._accepted.inc(step.accepted)
            for position in self._accepted_at[: step.accepted]:
                position.inc()

    def finished(self, reason: str) -> None:
        """Enter a finished request."""
        self._success[reason].inc()

    def page(self) -> bytes:
        """The counters in the Prometheus text format."""
        return generate_latest(self.registry)
