"""The stages after the layers: the head of each code that a pass gives, and drafts by later heads.

A stage is split over the members of a team as those of `cplab.kernels.stages` are.
"""

from __future__ import annotations

from typing import Any

from cplab.jit import jit
from cplab.kernels import blocks, layout, tracing
from cplab.kernels import plan as p
from cplab.kernels.choosing import choice
from cplab.kernels.layout import drafts_of, first_code, layer_norms, private, token_of, tokens_of
from cplab.kernels.memory import write_i32
from cplab.kernels.products import multiply_unit, quantised


@jit()
def _last_normed(plan: Any, g: int, code: int, m: int) -> int:
    """Final norm of each sequence's token that gives a code, as a panel in private space; its address."""
    _, count = tokens_of(plan, g)
    B, T = plan[p.BATCH], plan[p.BATCH] * count
    x = private(plan, m)
    weight = layer_norms(plan, plan[p.LAYERS])
    eps = blocks.read_f32(plan[p.NUMBERS])
    for b in range(B):
        last = plan[p.RESIDUAL] + (b * count + token_of(plan, g, code)) * 64
        blocks.rms_norm(last, T * 64, weight, x + b * 64, B * 64, plan[p.HIDDEN] // 16, eps)
    tracing.lap(plan, code, m, tracing.NORM)
    return x


@jit()
def _head_rows(plan: Any, code: int, x: int, m: int, team: int) -> None:
    """Member m's logits of a code, of a panel of B tokens."""
    vocab = plan[p.VOCAB]
    matrix = layout.head(plan, code)
    frame_bytes = 4 * plan[p.PASSES] * vocab
    units = vocab // 16
    for u in range(units * m // team, units * (m + 1) // team):
        multiply_unit(
            plan, matrix, u, plan[p.HIDDEN], x, plan[p.BATCH], plan[p.LOGITS] + 4 * code * vocab + u * 64, frame_bytes
        )


@jit()
def head_stage(plan: Any, accepted: int, g: int, m: int, team: int) -> None:
    """The head of the code that a pass gives after so many accepted drafts, on that code's own token."""
    code = first_code(g) + accepted
    x = _last_normed(plan, g, code, m)
    x = quantised(plan, layout.head(plan, code), x, plan[p.BATCH], 1, plan[p.HIDDEN], code, m)
    _head_rows(plan, code, x, m, team)
    tracing.lap(plan, code, m, tracing.HEAD)


@jit()
def draft_stage(plan: Any, following: int, g: int, m: int, team: int) -> None:
    """Logits of drafts: later heads on the hidden state that the last code came from, each with its offset.

    They lie where those codes' own logits will be written. ``following`` is a word: the pass that they are made for,
    and their number.
    """
    made = drafts_of(following)
    following = first_code(following)
    code = following - 1
    hidden_bytes = 4 * plan[p.HIDDEN]
    for depth in range(made):
        x = _last_normed(plan, g, code, m)
        if depth < plan[p.OFFSET_DEPTHS]:
            offset = plan[p.OFFSETS] + (following * plan[p.OFFSET_DEPTHS] + depth) * hidden_bytes
            blocks.add(x, 64, offset, 64, plan[p.HIDDEN] // 16)
        x = quantised(plan, layout.head(plan, following + depth), x, 1, 1, plan[p.HIDDEN], code, m)
        _head_rows(plan, following + depth, x, m, team)
    tracing.lap(plan, code, m, tracing.HEAD)


@jit()
def propose_stage(plan: Any, g: int, m: int, team: int) -> None:
    """Drafts, as many as the word of a pass says, from their logits; members take them in turn."""
    if plan[p.DRAFTS_GIVEN]:
        return
    made = drafts_of(g)
    g = first_code(g)
    for code in range(g + m, g + made, team):
        guess = max(choice(plan, 0, code, m), 0)
        write_i32(plan[p.DRAFTS] + 4 * (g * plan[p.PASSES] + code), guess)
    tracing.lap(plan, g - 1, m, tracing.CHOOSE)
