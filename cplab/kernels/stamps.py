"""When things happened in a frame, written down by member 0 of a team."""

from __future__ import annotations

from typing import Any

from cplab.jit import jit
from cplab.kernels import machine, memory
from cplab.kernels import plan as p

#: Where the clock may write, in the TEAM area: what `cplab.kernels.team` has no word in.
_SCRATCH_AT = 4 * 64


@jit()
def stamp(plan: Any, m: int, index: int) -> None:
    """Member 0 writes down when ``index`` codes were known (index 0: when the frame began)."""
    if m == 0:
        scratch = plan[p.TEAM] + _SCRATCH_AT
        memory.write_i64(plan[p.TIMES] + 8 * index, machine.now_ns(plan[p.CLOCK], scratch))


@jit()
def stamp_layers(plan: Any, m: int, g: int, which: int) -> None:
    """Member 0 writes down when the pass that begins with code ``g`` entered (0) and left (1) the layers."""
    if m == 0:
        at = plan[p.LAYER_TIMES] + 8 * (2 * g + which)
        memory.write_i64(at, machine.now_ns(plan[p.CLOCK], plan[p.TEAM] + _SCRATCH_AT))


@jit()
def stamp_drafts(plan: Any, m: int, g: int, which: int) -> None:
    """Member 0 writes down when drafting by a model for the pass that begins with code ``g`` came so far."""
    if m == 0:
        at = plan[p.DRAFT_TIMES] + 8 * (3 * g + which)
        memory.write_i64(at, machine.now_ns(plan[p.CLOCK], plan[p.TEAM] + _SCRATCH_AT))
