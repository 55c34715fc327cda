"""Parameters of rotary position embeddings: which rotations a drafter can have (drafters.model.rotary makes them).

A drafter rotates as its target does: the same base, scaling and rotated part of each head. Scalings whose
frequencies depend on the length of the text (``dynamic``, ``longrope``) are refused, since a context key is rotated
once and kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TYPES = ("default", "linear", "yarn", "llama3")
_FIELDS = {
    *("rope_type", "rope_theta", "partial_rotary_factor", "factor", "original_max_position_embeddings"),
    *("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),  # yarn
    *("low_freq_factor", "high_freq_factor"),  # llama3
}
# of models that see images: on text all sections have the same position, and the rotation is the ordinary one
_NOTHING_ON_TEXT = {"mrope_section", "mrope_interleaved"}


def rope_of(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Rope parameters in the present spelling, those of full attention where a model has several."""
    found = dict(parameters or {})
    if isinstance(found.get("full_attention"), Mapping):
        found = dict(found["full_attention"])
    kind = found.pop("type", None)  # older spelling
    found["rope_type"] = found.get("rope_type") or kind or "default"
    found.setdefault("rope_theta", 1e6)
    return {name: value for name, value in found.items() if value is not None and name not in _NOTHING_ON_TEXT}


def check_rope(parameters: Mapping[str, Any], head_dim: int) -> None:
    """Raise ValueError for a rotation that a drafter cannot have."""
    if (kind := parameters["rope_type"]) not in TYPES:
        raise ValueError(f"rope_type {kind} is not supported; supported: {', '.join(TYPES)}")
    if unknown := sorted(parameters.keys() - _FIELDS):
        raise ValueError(f"rope parameter {unknown[0]} is not supported")
    rotated = head_dim * parameters.get("partial_rotary_factor", 1.0)
    if not 2 <= rotated <= head_dim or int(rotated) % 2:
        raise ValueError(
            f"partial_rotary_factor {parameters['partial_rotary_factor']} rotates {rotated:g} of {head_dim} dimensions "
            f"of a head; an even number from 2 to {head_dim} is possible"
        )
