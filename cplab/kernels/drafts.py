"""Drafts of a frame: how many a pass is given, which of them hold, and what a model that drafts has yet to see.

Every member of a team asks these and gets the same answers, so that all go the same way.
"""

from __future__ import annotations

from typing import Any

from cplab.jit import jit
from cplab.kernels import machine, memory, tracing
from cplab.kernels import plan as p
from cplab.kernels.choosing import chosen, draft
from cplab.kernels.layout import with_drafts


@jit()
def drafts_before(plan: Any, g: int, rejectable: int, m: int) -> tuple[int, int]:
    """Drafts that are made before the pass that begins with code ``g``, and that it takes in; member 0 notes both.

    What was wanted (DRAFTED) is cut to as many as may still turn out wrong.
    """
    row = 8 * plan[p.PASSES]
    at = plan[p.DRAFTED] + 8 * g
    made, wanted = memory.read_i64(at), memory.read_i64(at + row)
    taken = min(wanted, rejectable)
    if taken < wanted:
        made = min(made, taken)
    if m == 0:
        memory.write_i64(at + 2 * row, made)
        memory.write_i64(at + 3 * row, taken)
    return made, taken


@jit()
def unseen(cached: int, code: int) -> int:
    """The pass by which a drafting model that has seen so many positions comes to give a code.

    Its tokens are all that stand before that code and that the model has not seen.
    """
    first = max(cached - 1, 0)
    return with_drafts(first, code - first)


@jit()
def holds(plan: Any, g: int, accepted: int, drafts: int, m: int) -> bool:
    """Whether the pass that begins with code ``g`` gives one code more: the next draft is what the known code is."""
    if accepted == drafts:
        return False
    code = g + accepted
    right = chosen(plan, 0, code, m) == draft(plan, g, code)
    tracing.lap(plan, code, m, tracing.CHOOSE)
    return right


@jit()
def settle(plan: Any, code: int, m: int) -> None:
    """Forget what was not finite beyond the last code of a pass: it came of a draft that was wrong.

    What other members have found since then is found by member 0 as well, after this.
    """
    if m == 0:
        found = machine.atomic_read(plan[p.STATUS])
        if found != p.NO_TROUBLE and (found >> 32) > code:
            machine.atomic_swap_if(plan[p.STATUS], found, p.NO_TROUBLE)
