"""JSON that every parser and every terminal takes."""

from __future__ import annotations

from typing import Any

from cplab.finite_json import finite_json


def plain_json(data: Any, indent: int | None = None) -> bytes:
    """What `finite_json` makes, as the bytes of a record's file."""
    return finite_json(data, indent).encode("ascii")
