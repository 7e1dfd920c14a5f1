"""Where a sweep's time went, and a line about it where that was more than its budget."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

SETUP, TALKER, GATES, ROOFLINE = "models and kernels", "the talker's trial", "gates", "the roofline"
ROUNDS, AGAIN, PROFILE, SOAK = "rounds", "cells above their roof, again", "the profile", "the soak"
BEFORE = "before it was gone on with"


class Spent:
    """Seconds by what they were spent on, in the order in which that began.

    Args:
        seconds: known already.
    """

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds = dict(seconds)

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Within, time is spent on something; an error ends it like anything else."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[what] = self.seconds.get(what, 0.0) + time.monotonic() - began

    def note(self, budget_s: float | None, least_rounds: int) -> str:
        """What to say of a budget that was exceeded, or "": a soak has its own seconds, and counts for none of it.

        Args:
            budget_s: the budget; None for no limit.
            least_rounds: done whatever they take.
        """
        counted = {what: seconds for what, seconds in self.seconds.items() if what != SOAK}
        total = sum(counted.values())
        if budget_s is None or total <= budget_s:
            return ""
        parts = ", ".join(f"{seconds:.0f} s {what}" for what, seconds in counted.items() if seconds >= 0.5)
        return (
            f"the time budget of {budget_s:g} s was exceeded: {total:.0f} s, of which {parts}; it is for gates and "
            f"rounds, and {_rounds(least_rounds)} done whatever they take"
        )


def forecast(budget_s: float | None, elapsed_s: float, needed_s: float, cells: int, least_rounds: int) -> str:
    """What to say before the rounds where they cannot be within the budget, or "".

    Args:
        budget_s: the budget; None for no limit.
        elapsed_s: gone already.
        needed_s: what the least rounds take.
        cells: in each of them.
        least_rounds: how many those are.
    """
    if budget_s is None or elapsed_s + needed_s <= budget_s:
        return ""
    return (
        f"this will take about {elapsed_s + needed_s:.0f} s, more than the time budget of {budget_s:g} s: "
        f"{_rounds(least_rounds)} done of {cells} {'cell' if cells == 1 else 'cells'}"
    )


def _rounds(count: int) -> str:
    return "1 round is" if count == 1 else f"{count} rounds are"
