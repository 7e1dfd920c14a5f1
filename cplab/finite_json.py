"""JSON as its standard has it: what Python writes beside that, other readers refuse a whole file for."""

from __future__ import annotations

import json
from typing import Any


def finite_json(data: Any, indent: int | None = None) -> str:
    """ASCII JSON: null in the place of a number that is not finite, and question marks of what is no text.

    Bytes of a file name may be none; and readers that split lines at U+2028 are not misled by it.
    """
    text = json.dumps(data, ensure_ascii=False).encode("utf-8", "replace")
    back = json.loads(text, parse_constant=lambda name: None)
    return json.dumps(back, indent=indent, allow_nan=False)
