"""Codes of logits, drawn or the largest, and drafts of codes that are not known yet."""

from __future__ import annotations

from typing import Any

from cplab.jit import call_address, jit
from cplab.kernels import blocks
from cplab.kernels import plan as p
from cplab.kernels.layout import LOGIT, private, trouble
from cplab.kernels.memory import read_i32, read_i64, write_i32


@jit()
def choice(plan: Any, b: int, g: int, m: int) -> int:
    """What the logits of code ``g`` of sequence ``b`` say, or draw; -1 where they are not finite."""
    if plan[p.SAMPLED]:
        call_address(plan[p.DRAW_CODE], (plan.ctypes.data, b, g, m))
        return read_i32(private(plan, m) + plan[p.DRAWING_AT])
    vocab = plan[p.VOCAB]
    return blocks.argmax(plan[p.LOGITS] + 4 * (b * plan[p.PASSES] + g) * vocab, vocab)


@jit()
def chosen(plan: Any, b: int, g: int, m: int) -> int:
    """The code to feed back where code ``g`` of sequence ``b`` is known; member 0 also records what was chosen."""
    at = b * plan[p.PASSES] + g
    code = choice(plan, b, g, m)
    if m == 0:
        write_i32(plan[p.CODES] + 4 * at, code)
        if code < 0:
            trouble(plan, g, b, LOGIT)
    if plan[p.IS_FORCED]:
        return read_i32(plan[p.FORCED] + 4 * at)
    return max(code, 0)


@jit()
def draft(plan: Any, g: int, code: int) -> int:
    """What the pass that begins with code ``g`` takes a later code to be."""
    return read_i32(plan[p.DRAFTS] + 4 * (g * plan[p.PASSES] + code))


@jit()
def fed(plan: Any, g: int, code: int, known: int) -> int:
    """The code that the pass that begins with code ``g`` feeds in at its place; ``known`` is the latest known one."""
    if plan[p.FED]:
        return read_i32(plan[p.FED] + 4 * code)
    return known if code < g else draft(plan, g, code)


@jit()
def tell_stage(plan: Any, g: int, m: int) -> None:
    """Feed the model that drafts, before the pass that begins with code ``g``, every code that is known."""
    if m == 0:
        if g > 0:
            chosen(plan, 0, g - 1, m)
        fed_codes = read_i64(plan[p.DRAFTER] + 8 * p.FED)
        source = plan[p.FORCED] if plan[p.IS_FORCED] else plan[p.CODES]
        for code in range(g):
            write_i32(fed_codes + 4 * code, max(read_i32(source + 4 * code), 0))


@jit()
def guess_stage(plan: Any, g: int, code: int, m: int) -> None:
    """In the plan of a model that drafts: its draft of a code for the pass that begins with code ``g``, to be fed next.

    A draft that was handed in is fed as well: what is in the cache must be what is accepted.
    """
    if m == 0:
        at = plan[p.DRAFTS] + 4 * (g * plan[p.PASSES] + code)
        if not plan[p.DRAFTS_GIVEN]:
            write_i32(at, max(choice(plan, 0, code, m), 0))
        write_i32(plan[p.FED] + 4 * code, read_i32(at))
