"""Who reads an exported drafter as it is meant, and who would serve another model without a word.

What each reader does with a checkpoint was read in its source (vLLM 0.32, SGLang 0.5, dflash 0.1.0, speculators).
"""

from __future__ import annotations

from analysis.errors import DataError
from drafters.axes import DrafterConfig
from drafters.checkpoints.family import DFLASH2, SPECULATORS, family_of
from drafters.checkpoints.layouts import PLAIN, Layout, architecture

#: Readers of each layout.
READERS: dict[Layout, tuple[str, ...]] = {
    "zlab": ("vllm", "sglang", "dflash"),
    "speculators": ("vllm", "speculators"),
    "angelslim": ("angelslim",),
}


_PLUGIN = "; it requires draftlab's plugin for this architecture: install draftlab beside it"
_REQUIRES = {PLAIN: "", DFLASH2: "; the candidate selector runs in its V2 model runner alone, on GPUs"}


def objection(reader: str, layout: Layout, config: DrafterConfig) -> str | None:
    """Why ``reader`` must not be given this drafter in this layout; None if it reads it as meant."""
    if reader not in READERS[layout]:
        return f"it does not read the {layout} layout"
    name, family = architecture(config), family_of(config)
    if reader == "vllm":
        added = (config.mixing, config.selection, config.confidence) != ("none", "argmax", "none")
        published = name == DFLASH2 or (layout == "speculators" and family is not None)
        if added and not published:
            cure = "; --format speculators is" if family == "dspark" else ""
            return f"{name} is not an architecture that it or draftlab's plugin knows{cure}"
    if reader in ("sglang", "dflash"):
        if name != PLAIN:
            return f"it skips tensors that it does not know, and would run a {name} as another drafter"
        if config.draft_vocab is not None:
            return "it takes the target's whole head and drops d2t: every draft would be another token (--full-head)"
    return None


def check_reader(reader: str, layout: Layout, config: DrafterConfig) -> None:
    """Raise DataError with the reason if ``reader`` must not be given this drafter."""
    if (why := objection(reader, layout, config)) is not None:
        raise DataError(f"not for {reader}: {why}")


def unsafe_readers(layout: Layout, config: DrafterConfig) -> dict[str, str]:
    """Readers of the layout that must not be given this drafter, each with the reason."""
    found = {reader: objection(reader, layout, config) for reader in READERS[layout]}
    return {reader: why for reader, why in found.items() if why is not None}


def readme(layout: Layout, config: DrafterConfig, target: str | None) -> str:
    """README.md of an export: what it is, who reads it and how, who must not."""
    name, family = architecture(config), family_of(config)
    published = SPECULATORS[family] if layout == "speculators" and family else name
    verifier = target or "the target"
    words = [
        f"# A block-diffusion drafter for {verifier}",
        "",
        f"`{layout}` layout, {published}, {config.num_layers} layers, block of {config.block_size}, target layers "
        f"{', '.join(map(str, config.target_layer_ids))} (0-based), mask token {config.mask_token_id}"
        + (f", draft vocabulary of {len(config.draft_vocab):,} tokens." if config.draft_vocab else "."),
        "",
    ]
    unsafe = unsafe_readers(layout, config)
    method = "dspark" if family == "dspark" else "dflash"
    speculation = f'{{"method": "{method}", "model": "DIR", "num_speculative_tokens": {config.block_size - 1}}}'
    how = {
        "vllm": f"`python -m vllm.entrypoints.openai.api_server --model TARGET --speculative-config '{speculation}'`"
        + _REQUIRES.get(name, _PLUGIN if family is None else ""),
        "sglang": "`python -m sglang.launch_server --model-path TARGET --speculative-algorithm DFLASH "
        "--speculative-draft-model-path DIR`",
        "dflash": '`from dflash.model import DFlashDraftModel; DFlashDraftModel.from_pretrained("DIR")` (a '
        "transformers model: safetensors, no remote code)",
        "speculators": '`from speculators import SpeculatorModel; SpeculatorModel.from_pretrained("DIR")`',
        "angelslim": "`tools/dflash_benchmark.py --draft-arch dflare`, with DIR as the draft model",
    }
    words += [f"* {reader}: {how[reader]}" for reader in READERS[layout] if reader not in unsafe]
    words += [f"* **Not for {reader}**: {why}." for reader, why in unsafe.items()]
    words += ["* draftlab: `python -m drafters.serve DIR --target TARGET`"]
    return "\n".join([*words, ""])
