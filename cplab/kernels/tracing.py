"""Where a frame's time goes: a lap timer for every member of a team.

A member that finishes a part of its work adds the time since its last lap to that part, so that the parts of a member
sum to its whole frame. Without a trace it costs one test a part.
"""

from __future__ import annotations

from typing import Any

from cplab.jit import jit
from cplab.kernels import machine, memory
from cplab.kernels import plan as p

#: The parts, in the order of a pass; waiting is for the slowest member, at a barrier or between launches.
PARTS = ("input", "norm", "quantise", "qkv", "attention", "o", "gate_up", "down", "head", "choose", "wait")
INPUT, NORM, QUANTISE, QKV, ATTENTION, OUT, GATE_UP, DOWN, HEAD, CHOOSE, WAIT = range(len(PARTS))
_COUNT = len(PARTS)


@jit()
def _member_line(plan: Any, m: int) -> int:
    """A cache line of member m's own: two words for the clock, then the time of its last lap."""
    return plan[p.TEAM] + (5 + m) * 64


@jit()
def start(plan: Any, m: int) -> None:
    """Member m's clock runs from here."""
    if plan[p.TRACE]:
        line = _member_line(plan, m)
        memory.write_i64(line + 16, machine.now_ns(plan[p.CLOCK], line))


@jit()
def lap(plan: Any, g: int, m: int, part: int) -> None:
    """What member m did since its last lap, in pass ``g``, was ``part``."""
    if plan[p.TRACE]:
        line = _member_line(plan, m)
        now = machine.now_ns(plan[p.CLOCK], line)
        at = plan[p.TRACE] + 8 * ((m * plan[p.PASSES] + g) * _COUNT + part)
        memory.write_i64(at, memory.read_i64(at) + now - memory.read_i64(line + 16))
        memory.write_i64(line + 16, now)
