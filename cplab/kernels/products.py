"""Units of a matrix times a panel of tokens, as a matrix takes them."""

from __future__ import annotations

from typing import Any

from cplab.jit import call_address, jit
from cplab.kernels import plan as p
from cplab.kernels import tracing
from cplab.kernels.layout import ACTIVATION, code_of, offset_of, private, tokens_of, trouble
from cplab.kernels.memory import read_i64
from cplab.kernels.quantising import quantise


@jit()
def quantised(plan: Any, matrix: int, x: int, T: int, count: int, n: int, g: int, m: int) -> int:
    """The panel ``x`` of n columns as a matrix takes it: as records in private space, or ``x`` itself in float32.

    The last ``count`` tokens of each frame are in it.
    """
    offset = offset_of(matrix)
    if offset == 0:
        return x
    panel = private(plan, m) + plan[p.QUANTS_AT]
    left_out = tokens_of(plan, g)[1] - count
    for t in range(T):
        if not quantise(x, T, t, 0, n // 32, panel, offset):
            trouble(plan, code_of(plan, g, left_out + t % count), t // count, ACTIVATION)
    tracing.lap(plan, g, m, tracing.QUANTISE)
    return panel


@jit()
def multiply_unit(plan: Any, matrix: int, u: int, n: int, x: int, T: int, y: int, y_token: int) -> None:
    """Unit u of a matrix times all T tokens of a panel."""
    row_bytes = read_i64(matrix + 16)
    w = read_i64(matrix) + u * 16 * row_bytes
    arguments = (read_i64(matrix + 8), w, row_bytes, n, x, T, y, y_token, plan[p.AHEAD])
    call_address(plan[p.UNIT_CODE], arguments)
