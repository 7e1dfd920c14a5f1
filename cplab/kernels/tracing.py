"""Where a frame's time goes: a lap timer for every member of a team.

A member that finishes a part of its work adds the time since its last lap to that part. All clocks start when the team
is launched and stop when it has ended, so that the parts of every member sum to the same whole frame. Without a trace
it costs one test a part.

A pass ends with the choice of its code: the wait for the last logits, and the argmax that the next input stage begins
with, count for the pass that made the logits. Additions to the residual count for the matrix before them, silu for
gate/up, RoPE and the norms of heads for attention, the 1.7B's projection for the input.
"""

from __future__ import annotations

from typing import Any

from cplab.jit import jit
from cplab.kernels import machine, memory
from cplab.kernels import plan as p
from cplab.kernels.layout import first_code

#: The parts, in the order of a pass; waiting is for the slowest member, at a barrier, between launches, and until the
#: team has gathered.
PARTS = ("input", "norm", "quantise", "qkv", "attention", "o", "gate_up", "down", "head", "choose", "wait")
INPUT, NORM, QUANTISE, QKV, ATTENTION, OUT, GATE_UP, DOWN, HEAD, CHOOSE, WAIT = range(len(PARTS))
_COUNT = len(PARTS)


@jit()
def _member_line(plan: Any, m: int) -> int:
    """A cache line of member m's own: two words for the clock, then the time of its last lap."""
    return plan[p.TEAM] + (5 + m) * 64


@jit()
def start(plan: Any, team: int) -> None:
    """The clocks of all members run from here."""
    if plan[p.TRACE]:
        for m in range(team):
            line = _member_line(plan, m)
            memory.write_i64(line + 16, machine.now_ns(plan[p.CLOCK], line))


@jit()
def lap(plan: Any, g: int, m: int, part: int) -> None:
    """What member m did since its last lap, in pass ``g``, was ``part``."""
    if plan[p.TRACE]:
        line = _member_line(plan, m)
        now = machine.now_ns(plan[p.CLOCK], line)
        at = plan[p.TRACE] + 8 * ((m * plan[p.PASSES] + first_code(g)) * _COUNT + part)
        memory.write_i64(at, memory.read_i64(at) + now - memory.read_i64(line + 16))
        memory.write_i64(line + 16, now)


@jit()
def finish(plan: Any, team: int) -> None:
    """The clocks of all members stop here: what came after a member's last lap was waiting."""
    for m in range(team):
        lap(plan, plan[p.PASSES] - 1, m, WAIT)
