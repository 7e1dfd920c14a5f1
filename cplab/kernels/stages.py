"""The stages of a pass, each split over the members of a team by units of 16 rows.

A stage reads what earlier stages wrote and writes only its own share, so between two stages a barrier (or a new
launch) is all that is needed. Cheap things are not split but repeated by every member, which saves a barrier: norms,
and choosing a code from the last pass's logits. Nothing is ever summed across members: a dot product belongs to one
member, so the thread count cannot change a bit.

Nothing is computed that nobody reads: in the last layer tokens that give no code have their keys and values made and
go no further. Recomputing a frame of the 0.6B shape, that saves 15 % of the multiply-adds (`bench.frame_work`).

Per pass: input, then per layer q/k/v, attention, o, gate/up, down, then the head. Where ``g`` is a pass and not a code
it is a word of `cplab.kernels.layout`, which may say that drafts come with it.
"""

from __future__ import annotations

from typing import Any

from numba import carray, types

from cplab.jit import entry, jit
from cplab.kernels import blocks, layout, tracing
from cplab.kernels import plan as p
from cplab.kernels import vectors as v
from cplab.kernels.attention import attend_stage
from cplab.kernels.choosing import chosen, fed, guess_stage, tell_stage
from cplab.kernels.heads import draft_stage, head_stage, propose_stage
from cplab.kernels.layout import (
    ACTIVATION,
    code_of,
    first_code,
    going_of,
    layer_norms,
    new_tokens_of,
    offset_of,
    private,
    tokens_of,
    trouble,
)
from cplab.kernels.memory import read_i64
from cplab.kernels.products import multiply_unit, quantised
from cplab.kernels.quantising import quantise

#: Stage numbers, for `run_stage`.
INPUT, QKV, ATTEND, OUT, GATE_UP, DOWN, HEAD, FINISH, DRAFT, PROPOSE, TELL, GUESS = range(12)


@jit()
def input_stage(plan: Any, g: int, m: int, team: int) -> None:
    """Embed (and project) the pass's new positions, and lay out the residual panel."""
    B = plan[p.BATCH]
    first, count = tokens_of(plan, g)
    new_first, new_count = new_tokens_of(g)
    code = first_code(g)
    hidden_blocks = plan[p.HIDDEN] // 16
    low, high = hidden_blocks * m // team, hidden_blocks * (m + 1) // team
    row = 4 * plan[p.HIDDEN]
    for b in range(B):
        known = 0
        if code > 0 and not plan[p.FED]:
            known = chosen(plan, b, code - 1, m)
            tracing.lap(plan, code - 1, m, tracing.CHOOSE)
        for i in range(new_count):
            position = new_first + i
            source, kind = _source(plan, b, position, fed(plan, code, position - 2, known) if position > 1 else 0)
            if plan[p.PROJECTED]:
                panel = private(plan, m) + (b * new_count + i) * 64
                blocks.decode(kind, source, panel, B * new_count * 64, plan[p.TALKER_HIDDEN] // 16)
            else:
                at = plan[p.INPUTS] + (b * plan[p.POSITIONS] + position) * row
                share = source + low * (64 if kind == v.F32_CODE else 32)
                blocks.decode(kind, share, at + low * 64, 64, high - low)
        tracing.lap(plan, g, m, tracing.INPUT)
    if plan[p.PROJECTED]:
        _project(plan, g, m, low, high, new_first, new_count)
    T = B * count
    for b in range(B):
        for i in range(count):
            source = plan[p.INPUTS] + (b * plan[p.POSITIONS] + first + i) * row + low * 64
            target = plan[p.RESIDUAL] + (low * T + b * count + i) * 64
            blocks.copy(source, 64, target, T * 64, high - low)
    tracing.lap(plan, g, m, tracing.INPUT)


@jit()
def _source(plan: Any, b: int, position: int, code: int) -> tuple[int, int]:
    """Address and format code of the raw input vector at a position."""
    row = 4 * plan[p.TALKER_HIDDEN]
    if position == 0:
        return plan[p.HIDDEN_IN] + b * row, v.F32_CODE
    if position == 1:
        return plan[p.CB0_IN] + b * row, v.F32_CODE
    table = plan[p.TABLES] + (position - 2) * 24
    return read_i64(table) + code * read_i64(table + 16), read_i64(table + 8)


@jit()
def _project(plan: Any, g: int, m: int, low: int, high: int, new_first: int, new_count: int) -> None:
    """``small_to_mtp_projection`` of the raw panel in private space: rows low * 16 .. high * 16 - 1, then the bias."""
    T = plan[p.BATCH] * new_count
    matrix = layout.projection(plan)
    n = plan[p.TALKER_HIDDEN]
    x = quantised(plan, matrix, private(plan, m), T, new_count, n, g, m)
    y = private(plan, m) + plan[p.SCRATCH_AT]
    for u in range(low, high):
        multiply_unit(plan, matrix, u, n, x, T, y, 64)
        for t in range(T):
            blocks.add(y + t * 64, 64, plan[p.BIAS] + u * 64, 64, 1)
            sequence, i = t // new_count, t % new_count
            at = sequence * plan[p.POSITIONS] + new_first + i
            blocks.copy(y + t * 64, 64, plan[p.INPUTS] + 4 * at * plan[p.HIDDEN] + u * 64, 64, 1)


@jit()
def _residual(plan: Any, g: int, b: int, going: int) -> int:
    """Address of the first of sequence b's last ``going`` tokens in the residual panel."""
    count = tokens_of(plan, g)[1]
    return plan[p.RESIDUAL] + (b * count + count - going) * 64


@jit()
def _normed(plan: Any, matrix: int, weight: int, g: int, going: int, m: int) -> int:
    """RMSNorm of each sequence's last ``going`` tokens, in private space, as a matrix takes it; its address."""
    T, row_bytes = plan[p.BATCH] * going, plan[p.BATCH] * tokens_of(plan, g)[1] * 64
    eps = blocks.read_f32(plan[p.NUMBERS])
    x = private(plan, m)
    for t in range(T):
        source = _residual(plan, g, t // going, going) + t % going * 64
        blocks.rms_norm(source, row_bytes, weight, x + t * 64, T * 64, plan[p.HIDDEN] // 16, eps)
    tracing.lap(plan, g, m, tracing.NORM)
    return quantised(plan, matrix, x, T, going, plan[p.HIDDEN], g, m)


@jit()
def qkv_stage(plan: Any, layer: int, g: int, m: int, team: int) -> None:
    """q, k and v rows as one matrix: keys and values of all tokens, queries of those that go on."""
    count, going = tokens_of(plan, g)[1], going_of(plan, layer, g)
    queries = plan[p.HEADS] * plan[p.HEAD_DIM] // 16
    units = queries + 2 * plan[p.KV_HEADS] * plan[p.HEAD_DIM] // 16
    if going == count:
        _qkv_rows(plan, layer, g, count, 0, units, m, team)
    else:
        _qkv_rows(plan, layer, g, going, 0, queries, m, team)
        _qkv_rows(plan, layer, g, count, queries, units, m, team)


@jit()
def _qkv_rows(plan: Any, layer: int, g: int, going: int, first: int, end: int, m: int, team: int) -> None:
    """Member m's share of units first .. end - 1, for each sequence's last ``going`` tokens."""
    matrix = layout.matrix(plan, layer, p.QKV_MATRIX)
    x = _normed(plan, matrix, layer_norms(plan, layer), g, going, m)
    unit_bytes = plan[p.BATCH] * tokens_of(plan, g)[1] * 64
    units = end - first
    for u in range(first + units * m // team, first + units * (m + 1) // team):
        multiply_unit(plan, matrix, u, plan[p.HIDDEN], x, plan[p.BATCH] * going, plan[p.QKV] + u * unit_bytes, 64)
    tracing.lap(plan, g, m, tracing.QKV)


@jit()
def _add_rows(plan: Any, matrix: int, n: int, x: int, g: int, going: int, m: int, team: int) -> None:
    """``residual += W @ x`` for this member's rows and each sequence's last ``going`` tokens."""
    units, B = plan[p.HIDDEN] // 16, plan[p.BATCH]
    unit_bytes = B * tokens_of(plan, g)[1] * 64
    y = private(plan, m) + plan[p.SCRATCH_AT]
    for u in range(units * m // team, units * (m + 1) // team):
        multiply_unit(plan, matrix, u, n, x, B * going, y, 64)
        for b in range(B):
            blocks.add(_residual(plan, g, b, going) + u * unit_bytes, 64, y + b * going * 64, 64, going)


@jit()
def out_stage(plan: Any, layer: int, g: int, m: int, team: int) -> None:
    """o_proj and the first residual."""
    matrix, columns = layout.matrix(plan, layer, p.OUT_MATRIX), plan[p.HEADS] * plan[p.HEAD_DIM]
    x = plan[p.ATTENDED_QUANTS] if offset_of(matrix) else plan[p.ATTENDED]
    _add_rows(plan, matrix, columns, x, g, going_of(plan, layer, g), m, team)
    tracing.lap(plan, g, m, tracing.OUT)


@jit()
def gate_up_stage(plan: Any, layer: int, g: int, m: int, team: int) -> None:
    """Gate and up rows side by side, and silu(gate) * up, quantised for down_proj by whoever has made it."""
    going = going_of(plan, layer, g)
    T = plan[p.BATCH] * going
    matrix = layout.matrix(plan, layer, p.GATE_UP_MATRIX)
    x = _normed(plan, matrix, layer_norms(plan, layer) + 4 * (plan[p.HIDDEN] + 2 * plan[p.HEAD_DIM]), g, going, m)
    gate = private(plan, m) + plan[p.SCRATCH_AT]
    up = gate + 64 * T
    offset = offset_of(layout.matrix(plan, layer, p.DOWN_MATRIX))
    grain = 2 if offset else 1  # a member makes whole blocks of 32
    count = plan[p.INTERMEDIATE] // (16 * grain)
    low, high = count * m // team, count * (m + 1) // team
    for u in range(low * grain, high * grain):
        multiply_unit(plan, matrix, 2 * u, plan[p.HIDDEN], x, T, gate, 64)
        multiply_unit(plan, matrix, 2 * u + 1, plan[p.HIDDEN], x, T, up, 64)
        blocks.swiglu(gate, up, plan[p.GATED] + u * T * 64, T)
    tracing.lap(plan, g, m, tracing.GATE_UP)
    if offset:
        left_out = tokens_of(plan, g)[1] - going
        for t in range(T):
            if not quantise(plan[p.GATED], T, t, low, high, plan[p.GATED_QUANTS], offset):
                trouble(plan, code_of(plan, g, left_out + t % going), t // going, ACTIVATION)
        tracing.lap(plan, g, m, tracing.QUANTISE)


@jit()
def down_stage(plan: Any, layer: int, g: int, m: int, team: int) -> None:
    """down_proj and the second residual."""
    matrix = layout.matrix(plan, layer, p.DOWN_MATRIX)
    x = plan[p.GATED_QUANTS] if offset_of(matrix) else plan[p.GATED]
    _add_rows(plan, matrix, plan[p.INTERMEDIATE], x, g, going_of(plan, layer, g), m, team)
    tracing.lap(plan, g, m, tracing.DOWN)


@entry(types.void(types.CPointer(types.int64), *([types.int64] * 5)))
def run_stage(address: Any, stage: int, layer: int, g: int, m: int, team: int) -> None:
    """Member m's share of one stage of the plan at an address.

    For a head ``layer`` counts accepted drafts, for drafts it is the pass that they are for.
    """
    plan = carray(address, (p.SIZE,))
    # What is waited for before an input stage is the pass before.
    tracing.lap(plan, max(first_code(g) - 1, 0) if stage == INPUT else g, m, tracing.WAIT)
    if stage == INPUT:
        input_stage(plan, g, m, team)
    elif stage == QKV:
        qkv_stage(plan, layer, g, m, team)
    elif stage == ATTEND:
        attend_stage(plan, layer, g, m, team)
    elif stage == OUT:
        out_stage(plan, layer, g, m, team)
    elif stage == GATE_UP:
        gate_up_stage(plan, layer, g, m, team)
    elif stage == DOWN:
        down_stage(plan, layer, g, m, team)
    elif stage == HEAD:
        head_stage(plan, layer, g, m, team)
    elif stage == DRAFT:
        draft_stage(plan, layer, g, m, team)
    elif stage == PROPOSE:
        propose_stage(plan, g, m, team)
    elif stage == TELL:
        tell_stage(plan, g, m)
        tracing.lap(plan, max(g - 1, 0), m, tracing.CHOOSE)
    elif stage == GUESS:
        guess_stage(plan, layer, g, m)
        tracing.lap(plan, g, m, tracing.CHOOSE)
    elif m == 0:
        for b in range(plan[p.BATCH]):
            chosen(plan, b, plan[p.PASSES] - 1, m)
        tracing.lap(plan, g, m, tracing.CHOOSE)
