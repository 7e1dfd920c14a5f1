"""JSON that every parser and every terminal takes."""

from __future__ import annotations

import json
from typing import Any

from cplab.finite_json import finite_json


def plain_json(data: Any, indent: int | None = None) -> bytes:
    """ASCII JSON in which every string is text.

    Readers that split lines at U+2028 are not misled by it, and bytes of a file name that are no text become question
    marks, as strict parsers refuse a whole file for one of them. What is not finite is null.
    """
    text = json.dumps(data, ensure_ascii=False).encode("utf-8", "replace")
    return finite_json(json.loads(text), indent).encode("ascii")
