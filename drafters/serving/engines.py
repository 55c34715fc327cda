"""How each engine is started: command templates, and what is put into them.

Flags as documented by vLLM 0.32 (``--speculative-config``), SGLang 0.5 (``--speculative-algorithm DFLASH``) and
llama.cpp's server; an arm's ``options`` are appended, its ``command`` replaces the template.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from drafters.serving.plan import ArmPlan
from drafters.serving.process import ServerError

TEMPLATES: dict[str, tuple[str, ...]] = {
    "draftlab": ("{python}", "-m", "drafters.serve", "{model}", "--host", "{host}", "--port", "{port}",
                 "--name", "{name}", "--max-batch", "{concurrency}"),
    # the `vllm` console command looks for a distribution called vllm, which the CPU build is not
    "vllm": ("{python}", "-m", "vllm.entrypoints.openai.api_server", "--model", "{model}", "--host", "{host}",
             "--port", "{port}", "--served-model-name", "{name}", "--max-num-seqs", "{concurrency}"),
    "sglang": ("{python}", "-m", "sglang.launch_server", "--model-path", "{model}", "--host", "{host}",
               "--port", "{port}", "--served-model-name", "{name}", "--max-running-requests", "{concurrency}",
               "--enable-metrics"),
    "llama.cpp": ("llama-server", "-m", "{model}", "--host", "{host}", "--port", "{port}", "--alias", "{name}",
                  "--parallel", "{concurrency}", "--metrics"),
}  # fmt: skip
ENVIRONMENT: dict[str, dict[str, str]] = {
    "vllm": {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"},
}
VLLM_PYTHON = ".venv-vllm/bin/python"  # made by `make serve-env`


@dataclass(frozen=True)
class Place:
    """Where a server is to listen, and for how many requests at once."""

    host: str
    port: int
    concurrency: int


def command(arm: ArmPlan, name: str, place: Place, model: str, drafter: str | None) -> list[str]:
    """The arm's command line. ``model`` and ``drafter``: what the engine is to load.

    Raises ServerError without an environment for vLLM.
    """
    python = arm.python or (VLLM_PYTHON if arm.engine == "vllm" else sys.executable)
    if python == VLLM_PYTHON and arm.command is None and not Path(python).exists():
        raise ServerError(f"no {python}; `make serve-env` makes it, or name an interpreter with vLLM as python")
    words = {
        "python": python,
        "model": model,
        "drafter": drafter or "",
        "host": place.host,
        "port": str(place.port),
        "name": name,
        "concurrency": str(place.concurrency),
    }
    parts = arm.command if arm.command is not None else (*TEMPLATES[arm.engine], *_drafting(arm, drafter))
    return [_fill(part, words) for part in (*parts, *arm.options)]


def _fill(part: str, words: dict[str, str]) -> str:
    """``part`` with its placeholders replaced; other braces, those of JSON, stay."""
    for name, value in words.items():
        part = part.replace(f"{{{name}}}", value)
    return part


def _drafting(arm: ArmPlan, drafter: str | None) -> Sequence[str]:
    if arm.engine == "draftlab":
        flags = {"own": [], "both": ["--with-lookup"]}.get(arm.proposer, [f"--{arm.proposer}"])
        flags += [] if arm.block_size is None else ["--block-size", str(arm.block_size)]
        return [*flags, *(["--confidence", str(arm.confidence)] if arm.confidence else [])]
    if drafter is None:
        return ()
    if arm.engine == "vllm":
        size = {} if arm.block_size is None else {"num_speculative_tokens": arm.block_size - 1}
        return "--speculative-config", json.dumps({"method": "dflash", "model": drafter, **size})
    if arm.engine == "sglang":
        return "--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", drafter
    return "--model-draft", drafter
