"""The draft layer in a published ``config.json``: what must hold for it to be the layer that we compute.

Every field that changes the computation is honoured or refused by name, in its older spellings too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from analysis.errors import DataError
from drafters.rope import rope_of

#: Field to the values under which the layer computes what ours does; None stands for a field that is absent.
MUST_BE: dict[str, tuple[Any, ...]] = {
    "model_type": (None, "qwen3"),
    "hidden_act": (None, "silu", "swish"),
    "mlp_bias": (None, False),
    "attn_logit_softcapping": (None, 0),
    "attention_multiplier": (None, 1),
    "embedding_multiplier": (None, 1),
    "residual_multiplier": (None, 1),
}
#: The same, for what a configuration says of the drafter as a whole, at any level.
DRAFTER_MUST_BE: dict[str, tuple[Any, ...]] = {
    "is_causal": (None, False),
    "causal": (None, False),
    "input_embedding_scale": (None, 1),
    "output_multiplier": (None, 1),
    "logits_scaling": (None, 1),
    "final_logit_softcapping": (None, 0),
}


def refuse_others(data: Mapping[str, Any], allowed: Mapping[str, tuple[Any, ...]], where: str) -> None:
    """Raise DataError for the first field with a value under which the drafter computes something else."""
    for name, values in allowed.items():
        if data.get(name) not in values:
            raise DataError(f"{where}: {name} {data[name]!r} is not supported; it must be {values[1]!r} or absent")


def refuse_windows(layers: Mapping[str, Any], where: str) -> None:
    """Raise DataError for draft layers with a sliding window, in any spelling."""
    if kinds := layers.get("layer_types"):  # says all, where it is there
        windowed = any(kind != "full_attention" for kind in kinds)
    else:
        window = layers.get("sliding_window")
        used = layers.get("use_sliding_window", window is not None)
        windowed = bool(used and window) and layers.get("max_window_layers", 0) < layers["num_hidden_layers"]
    if windowed:
        raise DataError(f"{where}: sliding-window draft layers are not supported")


def read_rope(layers: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Rope parameters from ``rope_parameters``, or the older ``rope_scaling``, ``rope_theta`` and
    ``partial_rotary_factor``. Raises DataError where two spellings disagree."""
    found: dict[str, Any] = {}
    for name, value in _spellings(layers):
        if found.setdefault(name, value) != value:
            raise DataError(f"{where}: {name} is {found[name]!r} in one place and {value!r} in another")
    return rope_of(found)


def _spellings(layers: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for section in ("rope_parameters", "rope_scaling"):
        for name, value in (layers.get(section) or {}).items():
            if value is not None:
                yield ("rope_type" if name == "type" else name), value
    for name in ("rope_theta", "partial_rotary_factor"):
        if layers.get(name) is not None:
            yield name, layers[name]


def write_rope(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Rope parameters in the present spelling and in those that older readers know."""
    data: dict[str, Any] = {"rope_parameters": dict(parameters)}
    older = {name: parameters[name] for name in ("rope_theta", "partial_rotary_factor") if name in parameters}
    if parameters["rope_type"] != "default":
        data["rope_scaling"] = {name: value for name, value in parameters.items() if name not in older}
    return data | older
