"""vLLM's entry point ``vllm.general_plugins``: our drafter architectures become known to the engine.

Registered by name and imported when used, so that this module costs nothing where no such drafter is served.
"""

from __future__ import annotations

#: Architectures of our exports (drafters.checkpoints.layouts.architecture) that vLLM does not know itself.
ARCHITECTURES = tuple(
    f"DFlash{fusion}{kv}DraftModel"
    for fusion in ("", "Gated", "Layerwise", "LayerwiseGated")
    for kv in ("", "SeparateKV")
    if fusion or kv
)


def register() -> None:
    """Called by every process of vLLM."""
    from vllm import ModelRegistry

    known = ModelRegistry.get_supported_archs()
    for name in ARCHITECTURES:
        if name not in known:
            ModelRegistry.register_model(name, "drafters.serving.vllm_models:FusionDrafter")
