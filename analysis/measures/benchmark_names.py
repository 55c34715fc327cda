"""The benchmarks on which published drafters are measured, by whatever name a log or a prompt file gives them."""

from __future__ import annotations

import re

#: The six of the DFlash and DFlare papers, in the order of their tables.
SIX = ("GSM8K", "MATH-500", "AIME25", "HumanEval", "MBPP", "MT-Bench")

#: Other names of the same prompts, letters and digits only. "math" is not among them: it may be all of MATH, or one
#: category of MT-Bench; nor is "aime", which may be of another year.
_ALIASES = {
    "openaigsm8k": "gsm8k",
    "aime2025": "aime25",
    "openaihumaneval": "humaneval",
    "humanevalplus": "humaneval",
    "sanitizedmbpp": "mbpp",
    "mbppsanitized": "mbpp",
    "mtbenchprompts": "mtbench",
    "lcb": "livecodebench",
}


def spelling(name: str) -> str:
    """A name in lower-case letters and digits, an alias as what it stands for: equal for two spellings of one."""
    letters = re.sub("[^a-z0-9]", "", name.lower())
    return _ALIASES.get(letters, letters)


def benchmark_of(dataset: str) -> str | None:
    """Which of the six a data set is, by its name, with or without an organisation before it (``openai/gsm8k``)."""
    known = {spelling(name): name for name in SIX}
    return known.get(spelling(dataset)) or known.get(spelling(dataset.rsplit("/", 1)[-1]))
