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
from cplab.kernels import machine, stages, tracing
from cplab.kernels import plan as p
from cplab.kernels.drafts import drafts_before, holds, settle, unseen
from cplab.kernels.layout import drafts_of, with_drafts
from cplab.kernels.stamps import stamp, stamp_drafts, stamp_layers

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
def run_drafter_stage(plan: Any, stage: int, layer: int, g: int, m: int, team: int) -> None:
    """Member m's share of one stage of the model that drafts."""
    call_address(plan[p.STAGE_CODE], (plan[p.DRAFTER], stage, layer, g, m, team))


@jit()
def draft_by_model(plan: Any, g: int, made: int, cached: int, m: int, team: int, passed: int) -> int:
    """Drafts of codes g, g + 1, ...: the drafting model's passes, the first over all tokens that it has not seen."""
    area = plan[p.TEAM]
    stamp_drafts(plan, m, g, 0)
    run_stage(plan, stages.TELL, 0, g, m, team)
    passed = barrier(area, team, passed)
    for code in range(g, g + made):
        word = unseen(cached, code)
        run_drafter_stage(plan, stages.INPUT, 0, word, m, team)
        passed = barrier(area, team, passed)
        for layer in range(plan[p.LAYERS]):
            for stage in range(stages.QKV, stages.HEAD):
                run_drafter_stage(plan, stage, layer, word, m, team)
                passed = barrier(area, team, passed)
        run_drafter_stage(plan, stages.HEAD, drafts_of(word), word, m, team)
        passed = barrier(area, team, passed)
        run_drafter_stage(plan, stages.GUESS, g, code, m, team)
        passed = barrier(area, team, passed)
        cached = code + 2
        stamp_drafts(plan, m, g, 1 if code == g else 2)
    return passed


@jit()
def run_frame(plan: Any, m: int, team: int) -> None:
    """Member m's whole frame: every stage of every pass, with a barrier after each."""
    area = plan[p.TEAM]
    passed = 0
    stamp(plan, m, 0)
    g = word = cached = 0
    rejectable = plan[p.REJECTABLE]
    while g < plan[p.PASSES]:
        made, drafts = drafts_before(plan, g, rejectable, m)
        if made > 0 and plan[p.DRAFTER] != 0:
            passed = draft_by_model(plan, g, made, cached, m, team, passed)
            cached = g + made + 1
        elif made > 0:
            following = with_drafts(g, made)
            run_stage(plan, stages.DRAFT, following, word, m, team)
            passed = barrier(area, team, passed)
            run_stage(plan, stages.PROPOSE, 0, following, m, team)
            passed = barrier(area, team, passed)
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
        rejectable -= drafts - accepted
        cached = min(cached, g + 1)
        settle(plan, g - 1, m)
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
def _member_stage(plan: Any, drafter: bool, stage: int, layer: int, g: int, m: int, team: int) -> None:
    mode = machine.get_float_mode()
    machine.set_float_mode(machine.default_float_mode())
    if drafter:
        run_drafter_stage(plan, stage, layer, g, m, team)
    else:
        run_stage(plan, stage, layer, g, m, team)
    machine.set_float_mode(mode)


@jit(parallel=True)
def _launch(plan: Any, drafter: bool, stage: int, layer: int, g: int, team: int) -> None:
    for m in prange(team):
        _member_stage(plan, drafter, stage, layer, g, m, team)


@jit()
def _draft_by_model_apart(plan: Any, g: int, made: int, cached: int, team: int) -> None:
    stamp_drafts(plan, 0, g, 0)
    _launch(plan, False, stages.TELL, 0, g, team)
    for code in range(g, g + made):
        word = unseen(cached, code)
        _launch(plan, True, stages.INPUT, 0, word, team)
        for layer in range(plan[p.LAYERS]):
            for stage in range(stages.QKV, stages.HEAD):
                _launch(plan, True, stage, layer, word, team)
        _launch(plan, True, stages.HEAD, drafts_of(word), word, team)
        _launch(plan, True, stages.GUESS, g, code, team)
        cached = code + 2
        stamp_drafts(plan, 0, g, 1 if code == g else 2)


@jit()
def frame_apart(plan: Any, team: int) -> None:
    """A frame with one parallel region a stage: right under any threading layer, and slower."""
    tracing.start(plan, team)
    stamp(plan, 0, 0)
    g = word = cached = 0
    rejectable = plan[p.REJECTABLE]
    while g < plan[p.PASSES]:
        made, drafts = drafts_before(plan, g, rejectable, 0)
        if made > 0 and plan[p.DRAFTER] != 0:
            _draft_by_model_apart(plan, g, made, cached, team)
            cached = g + made + 1
        elif made > 0:
            following = with_drafts(g, made)
            _launch(plan, False, stages.DRAFT, following, word, team)
            _launch(plan, False, stages.PROPOSE, 0, following, team)
        word = with_drafts(g, drafts)
        stamp_layers(plan, 0, g, 0)
        _launch(plan, False, stages.INPUT, 0, word, team)
        for layer in range(plan[p.LAYERS]):
            for stage in range(stages.QKV, stages.HEAD):
                _launch(plan, False, stage, layer, word, team)
        stamp_layers(plan, 0, g, 1)
        accepted = 0
        going = True
        while going:
            _launch(plan, False, stages.HEAD, accepted, word, team)
            stamp(plan, 0, g + accepted + 1)
            going = holds(plan, g, accepted, drafts, 0)
            accepted += going
        g += accepted + 1
        rejectable -= drafts - accepted
        cached = min(cached, g + 1)
        settle(plan, g - 1, 0)
    _member_stage(plan, False, stages.FINISH, 0, plan[p.PASSES] - 1, 0, team)
    tracing.finish(plan, team)
