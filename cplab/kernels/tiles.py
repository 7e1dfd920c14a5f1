"""Tiles: which rows and tokens share registers, and the loops around them that every format has in common.

A unit is 16 rows. Its dot products are cut three ways: tokens into tiles of 8, 4, 2 and 1, as registers allow; columns
into chunks short enough for the tile's activations to stay in the first-level cache while all 16 rows go by; rows into
groups of as many as registers hold. Within a tile R x N accumulators live in registers, one for each dot product (the
canonical order allows one only); between chunks they wait on the stack. At the end the 16 rows of a token are added up
side by side.

The rows of a group lie as far apart as a unit lets them, rows 0, 4, 8 and 12 together, then 1, 5, 9 and 13: so each of
R streams goes on from row to row. Rows of 1 or 2 KiB side by side would be streams that take turns within one page, and
hardware prefetchers, which follow one stream in a page, lose them.

How many accumulators fit is the target's and the format's: a vector of 16 float32 is one register of AVX-512, two of
AVX2, four of SSE and NEON, and decoding wants some too. A tile that does not fit spills, and a spill in the inner loop
costs more than the wider tile gains; a test reads the assembly of every one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from numba.core import cgutils

from cplab.jit import has_feature
from cplab.kernels import vectors as v

#: Rows of a unit: the grain in which matrices are split over threads. 16 rows of one token are one cache line of y.
UNIT = v.LANES

#: Bytes of a panel that a chunk of columns may span: it stays in a first-level cache beside the weights that go by.
#: What counts is the panel's whole width, not the tile's: a tile that skips tokens uses only some sets of the cache.
_CHUNK_BYTES = 16384

#: (tokens, rows) of the tiles, widest first.
Shapes = tuple[tuple[int, int], ...]


class Unit(NamedTuple):
    """What a kernel is told of 16 rows and their activations; every field is an int64 of the emitted code.

    Attributes:
        w: address of the unit's weights.
        row_bytes: bytes that a row takes.
        n: columns, a multiple of 32.
        x: address of the panel of activations.
        T: tokens in the panel.
        y: address of row 0 of token 0; rows are 4 bytes apart.
        y_token: bytes from a token to the next in y.
        ahead: prefetch distance, bytes.
    """

    w: Any
    row_bytes: Any
    n: Any
    x: Any
    T: Any
    y: Any
    y_token: Any
    ahead: Any


class Tile(NamedTuple):
    """One tile at compile time.

    Attributes:
        rows: rows held at once.
        tokens: tokens held at once.
        row: index of the first row within the unit (emitted int64).
        apart: from each of its rows to the next.
        token: index of the first token (emitted int64).
        ahead: how far ahead its weights are asked for, bytes (emitted int64); 0 where it is another tile's turn.
        accumulators: ``[rows][tokens]`` stack slots that become registers.
    """

    rows: int
    tokens: int
    row: Any
    apart: int
    token: Any
    ahead: Any
    accumulators: list[list[Any]]

    def row_at(self, builder: Any, r: int) -> Any:
        """Index of row ``r`` of the tile within the unit."""
        return builder.add(self.row, v.i64(r * self.apart))

    def accumulate(self, builder: Any, r: int, t: int, a: Any, b: Any) -> None:
        """``accumulator = a * b + accumulator``, rounded once."""
        slot = self.accumulators[r][t]
        builder.store(v.fma(builder, a, b, builder.load(slot)), slot)


#: Emits the products of one tile over the steps ``first`` .. ``last - 1``.
EmitSteps = Callable[[Any, Unit, Tile, Any, Any], None]
#: Emits what a tile of so many tokens (compile time), from a token on, needs of the steps ``first`` .. ``last - 1``.
BeginChunk = Callable[[Any, Unit, int, Any, Any, Any], None]


def register_vectors(builder: Any) -> int:
    """How many vectors of 16 float32 the registers of the target hold: 32 (AVX-512), 8 (AVX2, NEON) or 4 (SSE)."""
    x86 = v.is_x86(builder)
    if x86 and has_feature("avx512f"):
        return 32
    return 8 if not x86 or has_feature("avx") else 4


def emit_unit(
    builder: Any,
    unit: Unit,
    shapes: Shapes,
    steps: Any,
    step_bytes: tuple[int, int],
    lane_of: list[int],
    emit: EmitSteps,
    prepare: EmitSteps | None = None,
    begin: BeginChunk | None = None,
) -> None:
    """Emit ``y[t][r] = dot(W[r], x[t])`` for 16 rows and any number of tokens.

    Args:
        builder: where to.
        unit: the operands.
        shapes: the tiles to cut it into; the last has one token.
        steps: how many steps the columns make (emitted int64).
        step_bytes: bytes of weights that one row, and of activations that one token takes in a step.
        lane_of: where in a vector the canonical lane j stands.
        emit: what a tile does in a step.
        prepare: what is to be done before, while no sum is in a register; it reads rows whole, in their first chunk.
        begin: what is to be done once in a chunk, before any of the 16 rows.
    """
    token = cgutils.alloca_once_value(builder, v.i64(0))
    cut = _cut(builder, unit, steps, step_bytes, prepare is not None)
    for tokens, rows in shapes:
        with _while_left(builder, token, unit.T, tokens) as (first, turn):
            room = _emit_tokens(builder, unit, cut, (tokens, rows), first, turn, emit, prepare, begin)
            _reduce(builder, unit, room, tokens, first, lane_of)


class _Cut(NamedTuple):
    """How columns are cut into chunks; int64 of the emitted code but for the last two.

    Attributes:
        steps: steps in a row.
        chunk: steps in a chunk; the last may be shorter.
        chunks: how many there are.
        step_bytes: bytes of weights that a row takes in a step.
        reads_whole: rows are read whole in their first chunk.
    """

    steps: Any
    chunk: Any
    chunks: Any
    step_bytes: int
    reads_whole: bool


def most_steps(of_activations: int) -> int:
    """How many steps a chunk has at most, where a token's activations take so many bytes in one."""
    return max(1, _CHUNK_BYTES // of_activations)


def _cut(builder: Any, unit: Unit, steps: Any, step_bytes: tuple[int, int], reads_whole: bool) -> _Cut:
    """As few chunks as the first-level cache allows, of much the same length."""

    def split(a: Any, b: Any) -> Any:
        return builder.udiv(builder.add(a, builder.sub(b, v.i64(1))), b)

    of_weights, of_activations = step_bytes
    fit = builder.udiv(v.i64(_CHUNK_BYTES), builder.mul(unit.T, v.i64(of_activations)))
    fit = builder.select(builder.icmp_signed("<", fit, v.i64(1)), v.i64(1), fit)
    chunk = v.opaque(builder, split(steps, split(steps, fit)))
    return _Cut(steps, chunk, v.opaque(builder, split(steps, chunk)), of_weights, reads_whole)


def _least_left(tokens: int) -> int:
    """How many tokens must be left for a tile of so many.

    One fewer than it holds will do where it can begin a token earlier: a token that two tiles compute gets the same
    bits from both, and that is cheaper than a narrow tile for what is left (7 tokens are 4 and 4, not 4, 2 and 1).
    """
    return tokens - 1 if tokens > 2 else tokens


def _ahead(builder: Any, unit: Unit, cut: _Cut, rows: int, group: Any, part: Any, tokens: int, token: Any) -> Any:
    """How far from where it reads a group of rows asks for weights, in a tile that begins with ``token``; 0 for not.

    A single tile asks for its own streams. Of several, the first reads a unit's weights from memory and the others out
    of the cache: so each asks for a share of the next unit's, by its tokens, and memory is busy all the time. Shares
    are scattered over the groups, not cut in pieces: memory answers evenly or not at all.
    """
    groups = UNIT // rows
    scattered = builder.and_(builder.mul(group, v.i64(5)), v.i64(groups - 1))
    place = builder.udiv(builder.mul(scattered, unit.T), v.i64(groups))
    mine = builder.and_(
        builder.icmp_signed(">=", place, token), builder.icmp_signed("<", place, builder.add(token, v.i64(tokens)))
    )
    next_unit = builder.select(mine, builder.shl(unit.row_bytes, v.i64(4)), v.i64(0))
    own = _ahead_in_turn(builder, unit, cut, rows, group, part)
    return builder.select(builder.icmp_signed("<=", unit.T, v.i64(tokens)), own, next_unit)


def _ahead_in_turn(builder: Any, unit: Unit, cut: _Cut, rows: int, group: Any, part: Any) -> Any:
    """The distance to the weights whose turn comes after about ``unit.ahead`` bytes.

    What follows a chunk of a group of rows is the same chunk of the next group, whose rows come right after this one's;
    after the last group the next chunk of the first, and after the last chunk the next unit. What is read whole in its
    first chunk has its turn in the next unit; and where that is the only chunk, the next group is being read already.

    So a distance counts in whole groups, from the next one on to the next unit.
    """
    next_unit = builder.shl(unit.row_bytes, v.i64(4))
    groups = v.i64(UNIT // rows)
    chunk_bytes = builder.mul(cut.chunk, v.i64(cut.step_bytes))
    turns = builder.udiv(unit.ahead, builder.mul(chunk_bytes, v.i64(rows)))
    least = v.i64(2 if cut.reads_whole else 1)
    turns = builder.select(builder.icmp_signed("<", turns, least), least, turns)
    turns = builder.select(builder.icmp_signed("<", turns, groups), turns, groups)
    later = builder.add(group, turns)
    wraps = builder.icmp_signed(">=", later, groups)
    to_row = builder.select(wraps, builder.sub(turns, groups), turns)
    last = builder.icmp_signed("==", part, builder.sub(cut.chunks, v.i64(1)))
    to_next_unit = builder.sub(next_unit, builder.mul(part, chunk_bytes))
    to_column = builder.select(wraps, builder.select(last, to_next_unit, chunk_bytes), v.i64(0))
    row = builder.mul(cut.steps, v.i64(cut.step_bytes))
    distance = builder.add(builder.mul(to_row, row), to_column)
    if not cut.reads_whole:
        return distance
    return builder.select(builder.icmp_signed("==", cut.chunks, v.i64(1)), distance, next_unit)


@contextmanager
def _while_left(builder: Any, at: Any, count: Any, tokens: int) -> Iterator[tuple[Any, Any]]:
    """Emit a loop that takes ``tokens`` at a time, from ``at`` on, while enough are left below ``count``.

    Yields the first token of the tile, and of those the first that no tile had before.
    """
    check, body, done = (builder.append_basic_block(f"tokens{tokens}.{name}") for name in ("check", "body", "done"))
    builder.branch(check)
    builder.position_at_end(check)
    next_token = builder.load(at)
    latest = builder.sub(count, v.i64(tokens))
    left = builder.sub(count, next_token)
    enough = builder.icmp_signed(">=", left, v.i64(_least_left(tokens)))
    builder.cbranch(builder.and_(enough, builder.icmp_signed(">=", latest, v.i64(0))), body, done)
    builder.position_at_end(body)
    first = builder.select(builder.icmp_signed("<", next_token, latest), next_token, latest)
    yield first, next_token
    builder.store(builder.add(first, v.i64(tokens)), at)
    builder.branch(check)
    builder.position_at_end(done)


def _waiting_room(builder: Any, tokens: int) -> Any:
    """Stack space for the accumulators ``[16][tokens]`` of a unit; its address."""
    with builder.goto_entry_block():
        room = builder.alloca(v.VECTOR, UNIT * tokens, name=f"accumulators{tokens}")
        room.align = v.CACHE_LINE
    return builder.ptrtoint(room, v.I64)


def _emit_tokens(
    builder: Any,
    unit: Unit,
    cut: _Cut,
    shape: tuple[int, int],
    token: Any,
    turn: Any,
    emit: EmitSteps,
    prepare: EmitSteps | None,
    begin: BeginChunk | None,
) -> Any:
    """All 16 rows of one tile of tokens, chunk by chunk; the address of their sums, ``[16][tokens]`` vectors."""
    tokens, rows = shape
    room = _waiting_room(builder, tokens)
    with builder.goto_entry_block():
        slots = [[cgutils.alloca_once(builder, v.VECTOR) for _ in range(tokens)] for _ in range(rows)]
    with v.counted(builder, cut.chunks) as part:
        first = builder.mul(part, cut.chunk)
        end = builder.add(first, cut.chunk)
        last = builder.select(builder.icmp_signed("<", end, cut.steps), end, cut.steps)
        if begin is not None:
            begin(builder, unit, tokens, token, first, last)
        with v.counted(builder, v.i64(UNIT // rows)) as group:
            ahead = _ahead(builder, unit, cut, rows, group, part, tokens, turn)
            tile = Tile(rows, tokens, group, UNIT // rows, token, ahead, slots)
            if prepare is not None:
                prepare(builder, unit, tile, first, last)
            each = []
            for r, of_row in enumerate(slots):
                own = builder.add(room, builder.mul(tile.row_at(builder, r), v.i64(64 * tokens)))
                each += [(slot, builder.add(own, v.i64(64 * t))) for t, slot in enumerate(of_row)]
            with builder.if_else(builder.icmp_signed("==", part, v.i64(0))) as (from_zero, go_on):
                with from_zero:
                    for slot, _ in each:
                        builder.store(v.splat(0.0), slot)
                with go_on:
                    for slot, at in each:
                        builder.store(v.load(builder, at, align=v.CACHE_LINE), slot)
            emit(builder, unit, tile, first, last)
            for slot, at in each:
                v.store(builder, builder.load(slot), at, v.CACHE_LINE)
    return room


def _reduce(builder: Any, unit: Unit, room: Any, tokens: int, token: Any, lane_of: list[int]) -> None:
    """Add up the lanes of 16 rows at a time, and write one cache line of y a token."""
    out = builder.add(unit.y, builder.mul(unit.y_token, token))
    with v.counted(builder, v.i64(tokens)) as t:
        own = builder.add(room, builder.shl(t, v.i64(6)))
        sums = [v.load(builder, builder.add(own, v.i64(64 * tokens * r)), align=v.CACHE_LINE) for r in range(UNIT)]
        v.store(builder, v.tree_sums(builder, sums, lane_of), builder.add(out, builder.mul(unit.y_token, t)))
