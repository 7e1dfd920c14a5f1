"""What a check of the doctor returns, and how it reads facts. Facts are plain data; a fact not told is None."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

Grade = Literal["good", "risky", "bad"]
Facts = Mapping[str, Any]
Verdict = tuple[Grade, str, str]  # grade, what was found, one line of advice ("" where there is none)
Check = Callable[[Facts], Verdict | None]  # None: the machine does not tell

GB = 1_000_000_000


def fact(facts: Facts, path: str) -> Any:
    """The fact at ``"group.name"``, None where the machine or an older record does not have it."""
    group, _, name = path.partition(".")
    inner = facts.get(group)
    return inner.get(name) if isinstance(inner, Mapping) else None


def by_limit(share: float, risky_above: float, bad_above: float) -> Grade:
    """Good up to the first limit, bad above the second."""
    return "bad" if share > bad_above else "risky" if share > risky_above else "good"
