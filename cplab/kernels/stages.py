"""The stages of a pass, each split over the members of a team by units of 16 rows.

A stage reads what earlier stages wrote and writes only its own share, so between two stages a barrier (or a new
launch) is all that is needed. Cheap things are not split but repeated by every member, which saves a barrier: norms,
and choosing a code from the last pass's logits. Nothing is ever summed across members: a dot product belongs to one
member, so the thread count cannot change a bit.

Per pass: input, then per layer q/k/v, attention, o, gate/up, down, then the head.
"""

from __future__ import annotations

from typing import Any

from numba import carray, types

from cplab.jit import call_address, entry, jit
from cplab.kernels import blocks, layout, tracing
from cplab.kernels import plan as p
from cplab.kernels import vectors as v
from cplab.kernels.attention import attend_stage
from cplab.kernels.layout import ACTIVATION, LOGIT, layer_norms, private, tokens_of, trouble
from cplab.kernels.memory import read_i32, read_i64, write_i32
from cplab.kernels.quantising import quantise

#: Stage numbers, for `run_stage`.
INPUT, QKV, ATTEND, OUT, GATE_UP, DOWN, HEAD, FINISH = range(8)


@jit()
def _quantised(plan: Any, x: int, T: int, count: int, n: int, g: int, m: int) -> int:
    """The panel ``x`` of n columns as records in private space; ``x`` itself where the arithmetic is float32.

    ``count`` tokens belong to each frame.
    """
    if plan[p.OFFSET] == 0:
        return x
    panel = private(plan, m) + plan[p.QUANTS_AT]
    for t in range(T):
        if not quantise(x, T, t, 0, n // 32, panel, plan[p.OFFSET]):
            trouble(plan, g, t // count, ACTIVATION)
    tracing.lap(plan, g, m, tracing.QUANTISE)
    return panel


@jit()
def chosen(plan: Any, b: int, g: int, m: int) -> int:
    """The code to feed back after pass ``g`` of sequence ``b``; member 0 also records the one that was chosen."""
    vocab = plan[p.VOCAB]
    at = b * plan[p.PASSES] + g
    if plan[p.SAMPLED]:
        call_address(plan[p.DRAW_CODE], (plan.ctypes.data, b, g, m))
        code = read_i32(private(plan, m) + plan[p.DRAWING_AT])
    else:
        code = blocks.argmax(plan[p.LOGITS] + 4 * at * vocab, vocab)
    if m == 0:
        write_i32(plan[p.CODES] + 4 * at, code)
        if code < 0:
            trouble(plan, g, b, LOGIT)
    if plan[p.IS_FORCED]:
        return read_i32(plan[p.FORCED] + 4 * at)
    return max(code, 0)


@jit()
def input_stage(plan: Any, g: int, m: int, team: int) -> None:
    """Embed (and project) the pass's new positions, and lay out the residual panel."""
    B = plan[p.BATCH]
    first, count = tokens_of(plan, g)
    new_first, new_count = (0, 2) if g == 0 else (g + 1, 1)
    hidden_blocks = plan[p.HIDDEN] // 16
    low, high = hidden_blocks * m // team, hidden_blocks * (m + 1) // team
    row = 4 * plan[p.HIDDEN]
    for b in range(B):
        fed = 0
        if g > 0:
            fed = chosen(plan, b, g - 1, m)
            tracing.lap(plan, g - 1, m, tracing.CHOOSE)
        for i in range(new_count):
            position = new_first + i
            source, code = _source(plan, b, position, fed)
            if plan[p.PROJECTED]:
                panel = private(plan, m) + (b * new_count + i) * 64
                blocks.decode(code, source, panel, B * new_count * 64, plan[p.TALKER_HIDDEN] // 16)
            else:
                at = plan[p.INPUTS] + (b * plan[p.POSITIONS] + position) * row
                share = source + low * (64 if code == v.F32_CODE else 32)
                blocks.decode(code, share, at + low * 64, 64, high - low)
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
def _source(plan: Any, b: int, position: int, fed: int) -> tuple[int, int]:
    """Address and format code of the raw input vector at a position."""
    row = 4 * plan[p.TALKER_HIDDEN]
    if position == 0:
        return plan[p.HIDDEN_IN] + b * row, v.F32_CODE
    if position == 1:
        return plan[p.CB0_IN] + b * row, v.F32_CODE
    table = plan[p.TABLES] + (position - 2) * 24
    return read_i64(table) + fed * read_i64(table + 16), read_i64(table + 8)


@jit()
def _project(plan: Any, g: int, m: int, low: int, high: int, new_first: int, new_count: int) -> None:
    """``small_to_mtp_projection`` of the raw panel in private space: rows low * 16 .. high * 16 - 1, then the bias."""
    T = plan[p.BATCH] * new_count
    matrix = plan[p.MATRICES] + 24 * p.MATRICES_PER_LAYER * plan[p.LAYERS]
    n = plan[p.TALKER_HIDDEN]
    x = _quantised(plan, private(plan, m), T, new_count, n, g, m)
    y = private(plan, m) + plan[p.SCRATCH_AT]
    for u in range(low, high):
        _rows(plan, matrix, u, n, x, T, y, 64)
        for t in range(T):
            blocks.add(y + t * 64, 64, plan[p.BIAS] + u * 64, 64, 1)
            sequence, i = t // new_count, t % new_count
            at = sequence * plan[p.POSITIONS] + new_first + i
            blocks.copy(y + t * 64, 64, plan[p.INPUTS] + 4 * at * plan[p.HIDDEN] + u * 64, 64, 1)


@jit()
def _rows(plan: Any, matrix: int, u: int, n: int, x: int, T: int, y: int, y_token: int) -> None:
    """Unit u of a matrix times all T tokens of a panel."""
    row_bytes = read_i64(matrix + 16)
    w = read_i64(matrix) + u * 16 * row_bytes
    arguments = (read_i64(matrix + 8), w, row_bytes, n, x, T, y, y_token, plan[p.AHEAD])
    call_address(plan[p.UNIT_CODE], arguments)


@jit()
def _normed(plan: Any, weight: int, g: int, T: int, m: int) -> int:
    """RMSNorm of every token of the residual panel, in private space and ready to be multiplied; its address."""
    eps = blocks.read_f32(plan[p.NUMBERS])
    x = private(plan, m)
    for t in range(T):
        blocks.rms_norm(plan[p.RESIDUAL] + t * 64, T * 64, weight, x + t * 64, T * 64, plan[p.HIDDEN] // 16, eps)
    tracing.lap(plan, g, m, tracing.NORM)
    return _quantised(plan, x, T, tokens_of(plan, g)[1], plan[p.HIDDEN], g, m)


@jit()
def qkv_stage(plan: Any, layer: int, g: int, T: int, m: int, team: int) -> None:
    """q, k and v rows of all tokens, as one matrix."""
    x = _normed(plan, layer_norms(plan, layer), g, T, m)
    matrix = layout.matrix(plan, layer, p.QKV_MATRIX)
    units = (plan[p.HEADS] + 2 * plan[p.KV_HEADS]) * plan[p.HEAD_DIM] // 16
    for u in range(units * m // team, units * (m + 1) // team):
        _rows(plan, matrix, u, plan[p.HIDDEN], x, T, plan[p.QKV] + u * T * 64, 64)
    tracing.lap(plan, g, m, tracing.QKV)


@jit()
def _add_rows(plan: Any, matrix: int, n: int, x: int, T: int, m: int, team: int) -> None:
    """``residual += W @ x`` for this member's rows."""
    units = plan[p.HIDDEN] // 16
    y = private(plan, m) + plan[p.SCRATCH_AT]
    for u in range(units * m // team, units * (m + 1) // team):
        _rows(plan, matrix, u, n, x, T, y, 64)
        blocks.add(plan[p.RESIDUAL] + u * T * 64, 64, y, 64, T)


@jit()
def out_stage(plan: Any, layer: int, g: int, T: int, m: int, team: int) -> None:
    """o_proj and the first residual."""
    x = plan[p.ATTENDED_QUANTS] if plan[p.OFFSET] else plan[p.ATTENDED]
    _add_rows(plan, layout.matrix(plan, layer, p.OUT_MATRIX), plan[p.HEADS] * plan[p.HEAD_DIM], x, T, m, team)
    tracing.lap(plan, g, m, tracing.OUT)


@jit()
def gate_up_stage(plan: Any, layer: int, g: int, T: int, m: int, team: int) -> None:
    """Gate and up rows side by side, and silu(gate) * up, quantised for down_proj by whoever has made it."""
    x = _normed(plan, layer_norms(plan, layer) + 4 * (plan[p.HIDDEN] + 2 * plan[p.HEAD_DIM]), g, T, m)
    matrix = layout.matrix(plan, layer, p.GATE_UP_MATRIX)
    gate = private(plan, m) + plan[p.SCRATCH_AT]
    up = gate + 64 * T
    grain = 2 if plan[p.OFFSET] else 1  # a member makes whole blocks of 32
    count = plan[p.INTERMEDIATE] // (16 * grain)
    low, high = count * m // team, count * (m + 1) // team
    for u in range(low * grain, high * grain):
        _rows(plan, matrix, 2 * u, plan[p.HIDDEN], x, T, gate, 64)
        _rows(plan, matrix, 2 * u + 1, plan[p.HIDDEN], x, T, up, 64)
        blocks.swiglu(gate, up, plan[p.GATED] + u * T * 64, T)
    tracing.lap(plan, g, m, tracing.GATE_UP)
    if plan[p.OFFSET]:
        for t in range(T):
            if not quantise(plan[p.GATED], T, t, low, high, plan[p.GATED_QUANTS], plan[p.OFFSET]):
                trouble(plan, g, t // tokens_of(plan, g)[1], ACTIVATION)
        tracing.lap(plan, g, m, tracing.QUANTISE)


@jit()
def down_stage(plan: Any, layer: int, g: int, T: int, m: int, team: int) -> None:
    """down_proj and the second residual."""
    x = plan[p.GATED_QUANTS] if plan[p.OFFSET] else plan[p.GATED]
    _add_rows(plan, layout.matrix(plan, layer, p.DOWN_MATRIX), plan[p.INTERMEDIATE], x, T, m, team)
    tracing.lap(plan, g, m, tracing.DOWN)


@jit()
def head_stage(plan: Any, g: int, m: int, team: int) -> None:
    """Final norm of each sequence's last token, and head g."""
    _, count = tokens_of(plan, g)
    B, T, vocab = plan[p.BATCH], plan[p.BATCH] * count, plan[p.VOCAB]
    x = private(plan, m)
    weight = layer_norms(plan, plan[p.LAYERS])
    eps = blocks.read_f32(plan[p.NUMBERS])
    for b in range(B):
        last = plan[p.RESIDUAL] + (b * count + count - 1) * 64
        blocks.rms_norm(last, T * 64, weight, x + b * 64, B * 64, plan[p.HIDDEN] // 16, eps)
    tracing.lap(plan, g, m, tracing.NORM)
    x = _quantised(plan, x, B, 1, plan[p.HIDDEN], g, m)
    matrix = plan[p.MATRICES] + 24 * (p.MATRICES_PER_LAYER * plan[p.LAYERS] + 1 + g)
    frame_bytes = 4 * plan[p.PASSES] * vocab
    units = vocab // 16
    for u in range(units * m // team, units * (m + 1) // team):
        _rows(plan, matrix, u, plan[p.HIDDEN], x, B, plan[p.LOGITS] + 4 * g * vocab + u * 64, frame_bytes)
    tracing.lap(plan, g, m, tracing.HEAD)


@entry(types.void(types.CPointer(types.int64), *([types.int64] * 5)))
def run_stage(address: Any, stage: int, layer: int, g: int, m: int, team: int) -> None:
    """Member m's share of one stage of the plan at an address."""
    plan = carray(address, (p.SIZE,))
    T = plan[p.BATCH] * tokens_of(plan, g)[1]
    # What is waited for before an input stage is the pass before.
    tracing.lap(plan, max(g - 1, 0) if stage == INPUT else g, m, tracing.WAIT)
    if stage == INPUT:
        input_stage(plan, g, m, team)
    elif stage == QKV:
        qkv_stage(plan, layer, g, T, m, team)
    elif stage == ATTEND:
        attend_stage(plan, layer, g, m, team)
    elif stage == OUT:
        out_stage(plan, layer, g, T, m, team)
    elif stage == GATE_UP:
        gate_up_stage(plan, layer, g, T, m, team)
    elif stage == DOWN:
        down_stage(plan, layer, g, T, m, team)
    elif stage == HEAD:
        head_stage(plan, g, m, team)
    elif m == 0:
        for b in range(plan[p.BATCH]):
            chosen(plan, b, plan[p.PASSES] - 1, m)
        tracing.lap(plan, g, m, tracing.CHOOSE)
