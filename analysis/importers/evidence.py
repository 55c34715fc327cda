"""What a log says of its drafter: an arm is plain decoding only where nothing in it speaks of drafting."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_DRAFTING = re.compile(
    r"(^|_)spec(_|$)|specul|draft|accept|eagle|medusa|(^|_)mtp(_|$)|n_?gram|lookahead|dflash", re.IGNORECASE
)
_NONE = {None, False, "", "none", "None", "null", "-1", -1}


def of_drafting(row: Mapping[str, Any], depth: int = 2) -> str | None:
    """The first field that speaks of drafting, here or in an object within; None if none does. A field that is null,
    zero, empty or ``none`` speaks of nothing."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            if value and _DRAFTING.search(name):
                return name
            if depth and (inner := of_drafting(value, depth - 1)):
                return f"{name}.{inner}"
        elif _DRAFTING.search(name) and (value if isinstance(value, list) else value not in _NONE):
            return name
    return None
