"""The thread team: who runs the stages of a frame.

numba's parallel regions give no promise that their chunks run at the same time: under OMP_THREAD_LIMIT, OMP_DYNAMIC or
tbb one thread may run several, one after another, and a barrier inside would then wait for ever. So a region first
counts its members in. When the last one arrives in time, the whole frame runs in this one region with barriers
between stages; when one of them has waited too long, the region is given up by all, and the frame is run with one
launch a stage, which needs no barrier. One word decides, by compare-and-swap, so that all members agree.

Barriers spin a little and then yield the core on every turn, so that a team larger than the machine still moves.
Every member sets the floating-point mode to the default and restores it: a caller's flush-to-zero changes nothing.
"""

from __future__ import annotations

from typing import Any

from numba import prange

from cplab.jit import call_address, jit
from cplab.kernels import machine, memory, stages, tracing
from cplab.kernels import plan as p
from cplab.kernels.choosing import chosen, draft
from cplab.kernels.layout import with_drafts

#: Words of the TEAM area, each in a cache line of its own: members that arrived, the decision, members waiting at the
#: barrier, barriers passed.
ARRIVED, DECISION, WAITING, PASSED = 0, 64, 128, 192
_WORD = 64
UNDECIDED, TOGETHER, APART = 0, 1, 2

#: How long the first member waits for the last before giving the region up. A thread that has yet to be created, or
#: to be given a core, takes milliseconds.
PATIENCE_NS = 200_000_000
_SPINS = 256


@jit()
def wait_until_changed(word: int, old: int) -> None:
    """Return once the int64 at ``word`` is no longer ``old``."""
    spins = 0
    while machine.atomic_read(word) == old:
        if spins < _SPINS:
            spins += 1
            machine.pause()
        else:
            machine.sched_yield()


@jit()
def barrier(team_area: int, team: int, passed: int) -> int:
    """Wait until all members are here; ``passed`` is how many barriers this member has passed, returned plus one."""
    if team > 1:
        if machine.atomic_add(team_area + WAITING, 1) == team - 1:
            machine.atomic_write(team_area + WAITING, 0)
            machine.atomic_write(team_area + PASSED, passed + 1)
        else:
            wait_until_changed(team_area + PASSED, passed)
    return passed + 1


@jit()
def all_here(plan: Any, team: int, clock_scratch: int) -> bool:
    """Whether every member of the region runs at the same time; all members get the same answer."""
    area = plan[p.TEAM]
    if machine.atomic_add(area + ARRIVED, 1) == team - 1:
        machine.atomic_swap_if(area + DECISION, UNDECIDED, TOGETHER)
    started = machine.now_ns(plan[p.CLOCK], clock_scratch)
    spins = 0
    while machine.atomic_read(area + DECISION) == UNDECIDED:
        spins += 1
        machine.pause()
        if spins > _SPINS:
            machine.sched_yield()
            if machine.now_ns(plan[p.CLOCK], clock_scratch) - started > PATIENCE_NS:
                machine.atomic_swap_if(area + DECISION, UNDECIDED, APART)
    return machine.atomic_read(area + DECISION) == TOGETHER


@jit()
def run_stage(plan: Any, stage: int, layer: int, g: int, m: int, team: int) -> None:
    """Member m's share of one stage (`stages.run_stage`, called by its address)."""
    call_address(plan[p.STAGE_CODE], (plan.ctypes.data, stage, layer, g, m, team))


@jit()
def stamp(plan: Any, m: int, index: int) -> None:
    """Member 0 writes down when ``index`` codes were known (index 0: when the frame began)."""
    if m == 0:
        scratch = plan[p.TEAM] + 4 * _WORD
        memory.write_i64(plan[p.TIMES] + 8 * index, machine.now_ns(plan[p.CLOCK], scratch))


@jit()
def stamp_layers(plan: Any, m: int, g: int, which: int) -> None:
    """Member 0 writes down when the pass that begins with code ``g`` entered (0) and left (1) the layers."""
    if m == 0:
        at = plan[p.LAYER_TIMES] + 8 * (2 * g + which)
        memory.write_i64(at, machine.now_ns(plan[p.CLOCK], plan[p.TEAM] + 4 * _WORD))


@jit()
def drafts_taken(plan: Any, g: int) -> int:
    """How many drafts the pass that begins with code ``g`` takes in."""
    return memory.read_i64(plan[p.DRAFTED] + 8 * (plan[p.PASSES] + g))


@jit()
def drafts_made(plan: Any, g: int) -> int:
    """How many drafts are made before the pass that begins with code ``g``; none after the last code."""
    return memory.read_i64(plan[p.DRAFTED] + 8 * g) if g < plan[p.PASSES] else 0


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


@jit()
def run_frame(plan: Any, m: int, team: int) -> None:
    """Member m's whole frame: every stage of every pass, with a barrier after each."""
    area = plan[p.TEAM]
    passed = 0
    stamp(plan, m, 0)
    g = 0
    while g < plan[p.PASSES]:
        drafts = drafts_taken(plan, g)
        word = with_drafts(g, drafts)
        stamp_layers(plan, m, g, 0)
        run_stage(plan, stages.INPUT, 0, word, m, team)
        passed = barrier(area, team, passed)
        for layer in range(plan[p.LAYERS]):
            for stage in range(stages.QKV, stages.HEAD):
                run_stage(plan, stage, layer, word, m, team)
                passed = barrier(area, team, passed)
        stamp_layers(plan, m, g, 1)
        accepted = 0
        going = True
        while going:
            run_stage(plan, stages.HEAD, accepted, word, m, team)
            passed = barrier(area, team, passed)
            stamp(plan, m, g + accepted + 1)
            going = holds(plan, g, accepted, drafts, m)
            accepted += going
        g += accepted + 1
        settle(plan, g - 1, m)
        if drafts_made(plan, g) > 0:
            run_stage(plan, stages.DRAFT, accepted, word, m, team)
            passed = barrier(area, team, passed)
            run_stage(plan, stages.PROPOSE, 0, g, m, team)
            passed = barrier(area, team, passed)
    run_stage(plan, stages.FINISH, 0, plan[p.PASSES] - 1, m, team)


@jit()
def member(plan: Any, m: int, team: int) -> None:
    """One member of a region: count in, run the frame if all are here, leave the float mode as it was."""
    mode = machine.get_float_mode()
    machine.set_float_mode(machine.default_float_mode())
    if all_here(plan, team, plan[p.TEAM] + (5 + m) * _WORD):
        run_frame(plan, m, team)
    machine.set_float_mode(mode)


@jit()
def frame_alone(plan: Any) -> None:
    """A frame on the calling thread."""
    mode = machine.get_float_mode()
    machine.set_float_mode(machine.default_float_mode())
    tracing.start(plan, 1)
    run_frame(plan, 0, 1)
    tracing.finish(plan, 1)
    machine.set_float_mode(mode)


@jit(parallel=True)
def frame_together(plan: Any, team: int) -> None:
    """A frame in one parallel region. Where DECISION is APART afterwards, nothing was done."""
    tracing.start(plan, team)
    for m in prange(team):
        member(plan, m, team)
    tracing.finish(plan, team)


@jit()
def _member_stage(plan: Any, stage: int, layer: int, g: int, m: int, team: int) -> None:
    mode = machine.get_float_mode()
    machine.set_float_mode(machine.default_float_mode())
    run_stage(plan, stage, layer, g, m, team)
    machine.set_float_mode(mode)


@jit(parallel=True)
def _launch(plan: Any, stage: int, layer: int, g: int, team: int) -> None:
    for m in prange(team):
        _member_stage(plan, stage, layer, g, m, team)


@jit()
def frame_apart(plan: Any, team: int) -> None:
    """A frame with one parallel region a stage: right under any threading layer, and slower."""
    tracing.start(plan, team)
    stamp(plan, 0, 0)
    g = 0
    while g < plan[p.PASSES]:
        drafts = drafts_taken(plan, g)
        word = with_drafts(g, drafts)
        stamp_layers(plan, 0, g, 0)
        _launch(plan, stages.INPUT, 0, word, team)
        for layer in range(plan[p.LAYERS]):
            for stage in range(stages.QKV, stages.HEAD):
                _launch(plan, stage, layer, word, team)
        stamp_layers(plan, 0, g, 1)
        accepted = 0
        going = True
        while going:
            _launch(plan, stages.HEAD, accepted, word, team)
            stamp(plan, 0, g + accepted + 1)
            going = holds(plan, g, accepted, drafts, 0)
            accepted += going
        g += accepted + 1
        settle(plan, g - 1, 0)
        if drafts_made(plan, g) > 0:
            _launch(plan, stages.DRAFT, accepted, word, team)
            _launch(plan, stages.PROPOSE, 0, g, team)
    _member_stage(plan, stages.FINISH, 0, plan[p.PASSES] - 1, 0, team)
    tracing.finish(plan, team)
