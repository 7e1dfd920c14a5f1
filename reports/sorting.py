"""What a sortable table sorts by, and the page's only script, which does it.

Without the script a table stays as it is, in the order of the report. The script is let run by its digest alone
(`content_policy`), so that nothing else on a page ever can, and nothing is loaded.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from importlib.resources import files

_NUMBER = re.compile(r"(?:> )?(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")


def sort_key(entry: str, is_text: bool) -> float | str | None:
    """A number, lower-case words, or None for no figure, which sorts last whichever way."""
    if is_text:
        return entry.casefold() if any(map(str.isalnum, entry)) else None
    match = _NUMBER.match(entry)
    return float(match[1]) if match else None


def sort_keys(entries: Sequence[str], are_text: Sequence[bool]) -> str:
    """A row's keys as JSON, for its ``data-sort``."""
    return json.dumps([sort_key(entry, is_text) for entry, is_text in zip(entries, are_text, strict=True)])


def script() -> str:
    """The script as it stands in a page."""
    return files("reports").joinpath("templates/sort.js").read_text(encoding="utf-8")


def content_policy(shown: str) -> str:
    """A content security policy under which a page loads nothing and runs the script ``shown`` only."""
    digest = base64.b64encode(hashlib.sha256(shown.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
