"""What `python -m cplab packing` prints: how far each matrix packs as `bf12`, and what its exponents would allow."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from cplab.commandline import print_whole
from cplab.formats import FORMATS, bf12, bf12_packing
from cplab.kernels.packing import streamed
from cplab.kernels.vectors import BF12_CODE
from cplab.model import Model, Tensor, is_streamed


class Packing(NamedTuple):
    """What packing came to for one tensor.

    Attributes:
        name: checkpoint name.
        weights: how many it has.
        nbytes: in memory, lists of exceptions and padding included.
        exceptions: weights kept apart.
        changed: weights that BF16 rounds, 0 where packing is lossless.
        packed: False where it would not be smaller than plain BF16, and is held so.
        entropy: of its BF16 exponents, bits a weight: with 8 bits of sign and mantissa no code for single weights gets
            below.
        narrower: bits a weight if a row's window had half as many exponents, heads and padding left aside.
    """

    name: str
    weights: int
    nbytes: int
    exceptions: int
    changed: int
    packed: bool
    entropy: float
    narrower: float


def packings(model: Model) -> Iterator[Packing]:
    """Every matrix that passes stream, in checkpoint order."""
    tensors = [tensor for name, tensor in model.tensors.items() if is_streamed(name)]
    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(_packing, tensors)


def exponent_entropy(words: NDArray[Any]) -> float:
    """Bits a weight of the exponents of BF16 words, each taken for itself."""
    counts = np.bincount(((words >> np.uint16(7)) & np.uint16(0xFF)).reshape(-1), minlength=256)
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log2(share)).sum())


def narrower_bits(words: NDArray[Any]) -> float:
    """Bits a weight of ``words [rows, n]`` with `bf12.NARROWER` pairs in a window: a bit less, and more exceptions."""
    _, counts = bf12_packing.windows(words, bf12.NARROWER)
    return 8 * bf12.STEP_BYTES / bf12.STEP - 1 + 8 * bf12.EXCEPTION_BYTES * float(counts.sum()) / words.size


def _packing(tensor: Tensor) -> Packing:
    kind = FORMATS["bf12"]
    words = tensor.packed(kind)
    changed = 0 if tensor.format.name == "bf16" else kind.changed(tensor.f32())
    laid = streamed(kind, words)
    is_packed = laid.code == BF12_CODE
    size = (laid.weights, laid.units.nbytes, laid.exceptions)
    return Packing(tensor.name, *size, changed, is_packed, exponent_entropy(words), narrower_bits(words))


def show(model: Model, console: Console) -> None:
    """Print a line for every matrix, and the whole."""
    table = Table(box=None, pad_edge=False)
    table.add_column("matrix", overflow="fold")
    for heading in ("weights", "bits a weight", "exceptions", "exponent entropy", "half a window", "rounded"):
        table.add_column(heading, justify="right", no_wrap=True)
    found = list(packings(model))
    for one in found:
        bits = f"{8 * one.nbytes / one.weights:.2f}" + ("" if one.packed else " (plain)")
        apart, rounded = f"{one.exceptions / one.weights:.3%}", f"{one.changed:,}" if one.changed else "-"
        looked_at = f"{one.entropy:.2f}", f"{one.narrower:.2f}"
        table.add_row(one.name, f"{one.weights:,}", bits, apart, *looked_at, rounded)
    print_whole(table, console)
    weights, nbytes = sum(one.weights for one in found), sum(one.nbytes for one in found)
    exceptions, changed = sum(one.exceptions for one in found), sum(one.changed for one in found)
    told = f"{weights:,} weights, {8 * nbytes / weights:.2f} bits a weight, {exceptions / weights:.3%} exceptions"
    lossless = f"{changed:,} weights are no BF16 numbers and are rounded" if changed else "nothing is lost"
    console.print(f"{told}; {lossless}", highlight=False, soft_wrap=True)
