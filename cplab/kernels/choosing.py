"""Codes of logits, drawn or the largest, and drafts of codes that are not known yet."""

from __future__ import annotations

from typing import Any

from cplab.jit import call_address, jit
from cplab.kernels import blocks
from cplab.kernels import plan as p
from cplab.kernels.layout import LOGIT, private, trouble
from cplab.kernels.memory import read_i32, write_i32


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
