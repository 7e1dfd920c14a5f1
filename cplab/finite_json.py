"""JSON as its standard has it: without NaN and infinities, which Python writes and other readers refuse."""

from __future__ import annotations

import json
from typing import Any


def finite_json(data: Any, indent: int | None = None) -> str:
    """ASCII JSON, with null in the place of a number that is not finite."""
    back = json.loads(json.dumps(data), parse_constant=lambda name: None)
    return json.dumps(back, indent=indent, allow_nan=False)
