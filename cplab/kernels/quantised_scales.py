"""Scales of block-quantised weights: where they lie in a unit, and how they come to stand beside the sums they scale.

A step is 64 columns, two blocks of activations, sixteen groups of four products. The law gives groups 0..7 (the first
block) to lanes 0..7 and groups 8..15 to lanes 8..15; here the two blocks stand in turn, group 0, 8, 1, 9, ..., in
weights and activations alike, because then a lane's scale is one half of a pair, and a pair is spread over a vector by
one broadcast, where halves of a vector would take a shuffle. Which lane stands where does not change what is added to
what: `tiles` is told the places.

A unit begins with a cache line of scales for each step:

* where 32 weights share one, ``[16 rows][2 blocks]`` F16;
* where 16 do, ``[2][16 rows][2 blocks]`` int8, the scale of the first 16 weights of each block, then of the second 16;
  what they are multiplied by comes after all of these, ``[lines][16 rows]`` F16, since a line is a superblock. The
  first half of a vector is then scaled by one pair and the second half by another.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from cplab.kernels import vectors as v
from cplab.kernels.quantised_lines import BLOCK, Quantised
from cplab.kernels.tiles import Unit

#: Bytes of a record of activations, and where its corrections and scales start.
RECORD_BYTES, CORRECTIONS, SCALES = 192, 64, 128
#: Where the canonical lane j stands.
LANE_OF = [2 * j for j in range(8)] + [2 * j + 1 for j in range(8)]

_HALVES = ir.VectorType(v.I16, v.LANES)
_SUPERSCALES = 2 * v.LANES
#: Two pairs over the halves of a vector.
_BY_HALVES = [0, 1] * 4 + [2, 3] * 4


def scale_bytes(kind: Quantised, line: int = 1) -> int:
    """Bytes of the scales of 16 rows that a line takes."""
    return line * (kind.line_steps * v.CACHE_LINE + (_SUPERSCALES if kind.scaled < BLOCK else 0))


class Scales:
    """Scales of a unit's rows.

    Args:
        builder: where to emit.
        kind: the format.
        unit: the operands.
        lines: lines in a row (emitted int64).
        most_lines: lines in a chunk of columns, at most.
    """

    def __init__(self, builder: Any, kind: Quantised, unit: Unit, lines: Any, most_lines: int) -> None:
        self._kind, self._unit = kind, unit
        self._superscales = builder.add(unit.w, builder.mul(lines, v.i64(kind.line_steps * v.CACHE_LINE)))
        #: Vectors that the pairs of 16 rows in a step take.
        self._vectors = 2 * BLOCK // kind.scaled
        with builder.goto_entry_block():
            room = builder.alloca(v.VECTOR, self._vectors * most_lines * kind.line_steps, name="scales")
            room.align = v.CACHE_LINE
        self._room = builder.ptrtoint(room, v.I64)

    # A lone token's are multiplied by its own for a whole chunk before any row is. A scale is widened, spread and
    # multiplied for no more than 32 products, which in the loop over a row is work that compares with the products'
    # own. Scales of a step lie side by side in memory: one vector takes eight rows' pairs here, and the loop is left
    # with loads that spread what they load.

    def multiply(self, builder: Any, token: Any, first: Any, last: Any) -> None:
        """Make a lone token's ready, of the lines ``first`` .. ``last - 1``."""
        many = self._kind.line_steps
        with v.counted(builder, last, start=first) as line:
            of_superblock = self._of_superblock(builder, line)
            for part in range(many):
                step = builder.add(builder.mul(line, v.i64(many)), v.i64(part))
                of_token = self.of_token(builder, self._record(builder, token, step))
                stored = builder.add(self._unit.w, builder.shl(step, v.i64(6)))
                v.prefetch(builder, builder.add(stored, builder.shl(self._unit.row_bytes, v.i64(4))))
                at = self._at(builder, builder.mul(first, v.i64(many)), step)
                for index in range(self._vectors):
                    scales = self._of_eight_rows(builder, stored, index, of_superblock)
                    v.store(builder, builder.fmul(scales, of_token), builder.add(at, v.i64(64 * index)), v.CACHE_LINE)

    def ready(self, builder: Any, first_step: Any, step: Any, row: Any) -> Any:
        """A row's of a step, of those that `multiply` made of a chunk that begins with ``first_step``."""
        at = builder.add(self._at(builder, first_step, step), builder.shl(row, v.i64(3)))
        if self._kind.scaled == BLOCK:
            return _float_pair(builder, at)
        first, second = (v.load(builder, builder.add(at, v.i64(128 * half)), _PAIR) for half in range(2))
        return v.shuffle(builder, first, second, _BY_HALVES)

    def of_row(self, builder: Any, step: Any, line: Any, row: Any) -> Any:
        """A row's of a step and its line, by themselves, for several tokens."""
        at = builder.add(self._unit.w, builder.shl(step, v.i64(6)))
        if self._kind.scaled == BLOCK:
            both = v.load(builder, builder.add(at, builder.shl(row, v.i64(2))), v.I32)
            return v.widen_f16(builder, builder.bitcast(v.spread(builder, both, 8), _HALVES))
        at = builder.add(at, builder.shl(row, v.i64(1)))
        bytes_of = ir.VectorType(v.I8, 2)
        first, second = (v.load(builder, builder.add(at, v.i64(32 * half)), bytes_of, 1) for half in range(2))
        integers = builder.sext(v.shuffle(builder, first, second, _BY_HALVES), v.INTS)
        d = builder.add(self._superscale_at(builder, line), builder.shl(row, v.i64(1)))
        d = v.widen_f16(builder, v.spread(builder, v.load(builder, d, v.I16, 2)))
        return builder.fmul(d, builder.sitofp(integers, v.VECTOR))

    def ask(self, builder: Any, step: Any, row: Any) -> None:
        """Ask for those that the next unit's row and step have."""
        size = 2 if self._kind.scaled == BLOCK else 1
        at = builder.add(builder.add(self._unit.w, builder.shl(row, v.i64(size))), builder.shl(step, v.i64(6)))
        v.prefetch(builder, builder.add(at, builder.shl(self._unit.row_bytes, v.i64(4))))

    @staticmethod
    def of_token(builder: Any, record: Any) -> Any:
        """Those of a record of activations."""
        return _float_pair(builder, builder.add(record, v.i64(SCALES)))

    def _of_superblock(self, builder: Any, line: Any) -> list[Any]:
        """What 16 rows' scales in a line are multiplied by, each twice: two vectors of eight rows; none for a pair."""
        if self._kind.scaled == BLOCK:
            return []
        raw = v.load(builder, self._superscale_at(builder, line), _HALVES, 2)
        twice = [[row for each in range(first, first + 8) for row in (each, each)] for first in (0, 8)]
        return [v.widen_f16(builder, v.shuffle(builder, raw, raw, rows)) for rows in twice]

    def _of_eight_rows(self, builder: Any, stored: Any, index: int, of_superblock: list[Any]) -> Any:
        """The pairs of eight rows in a step whose scales are at ``stored``."""
        if self._kind.scaled == BLOCK:
            raw = v.load(builder, builder.add(stored, v.i64(32 * index)), _HALVES)
            return v.widen_f16(builder, raw)
        raw = v.load(builder, builder.add(stored, v.i64(16 * index)), ir.VectorType(v.I8, v.LANES), 1)
        return builder.fmul(builder.sitofp(builder.sext(raw, v.INTS), v.VECTOR), of_superblock[index % 2])

    def _superscale_at(self, builder: Any, line: Any) -> Any:
        return builder.add(self._superscales, builder.mul(line, v.i64(_SUPERSCALES)))

    def _record(self, builder: Any, token: Any, step: Any) -> Any:
        own = builder.add(self._unit.x, builder.mul(token, v.i64(RECORD_BYTES)))
        return builder.add(own, builder.mul(step, builder.mul(self._unit.T, v.i64(RECORD_BYTES))))

    def _at(self, builder: Any, first_step: Any, step: Any) -> Any:
        return builder.add(self._room, builder.mul(builder.sub(step, first_step), v.i64(64 * self._vectors)))


_PAIR = ir.VectorType(v.FLOAT, 2)


def _float_pair(builder: Any, address: Any) -> Any:
    """Two float32, in turn over 16 lanes."""
    two = v.load(builder, address, _PAIR)
    return v.shuffle(builder, two, two, [0, 1] * 8)
