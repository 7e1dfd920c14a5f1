"""Attention over the KV cache, split over the members of a team by key/value heads."""

from __future__ import annotations

from typing import Any

from cplab.jit import jit
from cplab.kernels import blocks, layout, tracing
from cplab.kernels import plan as p
from cplab.kernels.layout import ACTIVATION, code_of, going_of, layer_norms, offset_of, private, tokens_of, trouble
from cplab.kernels.quantising import quantise


@jit()
def attend_stage(plan: Any, layer: int, g: int, m: int, team: int) -> None:
    """Per key/value head: norm and rotate the new keys into the cache, then every query head that shares it."""
    first, count = tokens_of(plan, g)
    going = going_of(plan, layer, g)
    B, kv_heads = plan[p.BATCH], plan[p.KV_HEADS]
    shared = plan[p.HEADS] // kv_heads
    items = B * kv_heads
    for item in range(items * m // team, items * (m + 1) // team):
        b, kv_head = item // kv_heads, item % kv_heads
        for i in range(count):
            _cache_position(plan, layer, b, kv_head, first + i, b * count + i, B * count)
        for head in range(kv_head * shared, (kv_head + 1) * shared):
            for i in range(going):
                position = first + count - going + i
                _attend_head(plan, layer, b, kv_head, head, position, b * going + i, B * count, B * going, m)
    tracing.lap(plan, g, m, tracing.ATTENTION)
    offset = offset_of(layout.matrix(plan, layer, p.OUT_MATRIX))
    if offset:
        _quantise_attended(plan, g, going, offset, m, team)


@jit()
def _quantise_attended(plan: Any, g: int, going: int, offset: int, m: int, team: int) -> None:
    """What this member's heads attended to, as quantised activations of o_proj."""
    _, count = tokens_of(plan, g)
    B, kv_heads = plan[p.BATCH], plan[p.KV_HEADS]
    group = plan[p.HEADS] // kv_heads * plan[p.HEAD_DIM] // 32  # blocks of the heads that share a key/value head
    items = B * kv_heads
    for item in range(items * m // team, items * (m + 1) // team):
        b, low = item // kv_heads, item % kv_heads * group
        for t in range(b * going, (b + 1) * going):
            panel = plan[p.ATTENDED_QUANTS]
            if not quantise(plan[p.ATTENDED], B * going, t, low, low + group, panel, offset):
                trouble(plan, code_of(plan, g, count - going + t % going), b, ACTIVATION)
    tracing.lap(plan, g, m, tracing.QUANTISE)


@jit()
def _cache_address(plan: Any, layer: int, b: int, kv_head: int) -> int:
    """Offset in bytes of a head's rows in KEYS and VALUES."""
    head = (layer * plan[p.BATCH] + b) * plan[p.KV_HEADS] + kv_head
    return 4 * head * plan[p.POSITIONS] * plan[p.HEAD_DIM]


@jit()
def _norm_and_rotate(plan: Any, x: int, T: int, weight: int, position: int, y: int) -> None:
    """Per-head RMSNorm and RoPE of one head of a panel, into contiguous ``y``."""
    d = plan[p.HEAD_DIM]
    blocks.rms_norm(x, T * 64, weight, y, 64, d // 16, blocks.read_f32(plan[p.NUMBERS]))
    cos = plan[p.ROPE] + 2 * position * d
    blocks.rotate(y, cos, cos + 2 * plan[p.POSITIONS] * d, d // 32)


@jit()
def _cache_position(plan: Any, layer: int, b: int, kv_head: int, position: int, t: int, T: int) -> None:
    d = plan[p.HEAD_DIM]
    key = plan[p.QKV] + 4 * (plan[p.HEADS] + kv_head) * d * T + t * 64
    value = key + 4 * plan[p.KV_HEADS] * d * T
    row = _cache_address(plan, layer, b, kv_head) + 4 * position * d
    weight = layer_norms(plan, layer) + 4 * (plan[p.HIDDEN] + d)
    _norm_and_rotate(plan, key, T, weight, position, plan[p.KEYS] + row)
    blocks.copy(value, T * 64, plan[p.VALUES] + row, 64, d // 16)


@jit()
def _attend_head(
    plan: Any, layer: int, b: int, kv_head: int, head: int, position: int, t: int, T: int, going: int, m: int
) -> None:
    """A query head at a position: token ``t`` of the ``going`` ones whose queries lie in a panel of T tokens."""
    d = plan[p.HEAD_DIM]
    query = private(plan, m)
    scores = query + 4 * d
    start = 4 * head * d * T + t * 64
    _norm_and_rotate(plan, plan[p.QKV] + start, T, layer_norms(plan, layer) + 4 * plan[p.HIDDEN], position, query)
    visible = position + 1
    rows = _cache_address(plan, layer, b, kv_head)
    scale = blocks.read_f32(plan[p.NUMBERS] + 4)
    largest = blocks.dot(query, 64, plan[p.KEYS] + rows, 64, d // 16) * scale
    blocks.write_f32(scores, largest)
    for j in range(1, visible):
        score = blocks.dot(query, 64, plan[p.KEYS] + rows + 4 * j * d, 64, d // 16) * scale
        blocks.write_f32(scores + 4 * j, score)
        largest = score if score > largest else largest
    blocks.exp_minus(scores, (visible + 15) // 16, largest)
    total = blocks.read_f32(scores)
    for j in range(1, visible):
        total = total + blocks.read_f32(scores + 4 * j)
    for j in range(visible):
        blocks.write_f32(scores + 4 * j, blocks.read_f32(scores + 4 * j) / total)
    attended = plan[p.ATTENDED] + 4 * head * d * going + t * 64
    blocks.weighted_sum(scores, visible, plan[p.VALUES] + rows, 4 * d, attended, going * 64, d // 16)
