"""All matrices of a model packed for streaming: one block of memory, in the order in which a pass reads it.

The block lies on huge pages where the system grants them. Beside it stand the tables by which compiled code finds a
matrix or an embedding (see `cplab.kernels.plan`).
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.errors import BadInputError
from cplab.formats import FORMATS, Format
from cplab.kernels import plan as p
from cplab.kernels import tracing
from cplab.kernels.bf12_units import MOST_COLUMNS
from cplab.kernels.packing import Streamed, streamed
from cplab.kernels.quantised_lines import KINDS
from cplab.kernels.tiles import UNIT
from cplab.kernels.vectors import BF12_CODE
from cplab.model import Model, Tensor, is_streamed
from cplab.variant import WeightStream

_ALIGN = 64
_HUGE = 2 << 20
_Bytes = NDArray[np.uint8]
#: Which part of a frame streams each matrix of a layer.
_PART_OF_MATRIX = {
    p.QKV_MATRIX: tracing.QKV,
    p.OUT_MATRIX: tracing.OUT,
    p.GATE_UP_MATRIX: tracing.GATE_UP,
    p.DOWN_MATRIX: tracing.DOWN,
}


class StreamedWeights:
    """Packed matrices and the tables that lead to them.

    Args:
        model: the weights.
        kind: the format that matrices are streamed in; None for each in its own. Embeddings stay as stored.

    Attributes:
        note: of packed BF16, what packing came to, in one line; else "".
        kinds: every format that a matrix is streamed in.

    Raises:
        BadInputError: matrices that are streamed as one are stored in different formats.
    """

    def __init__(self, model: Model, kind: Format | None) -> None:
        spec = model.spec
        with ThreadPoolExecutor(2) as pool:  # numpy and compiled code let go of Python's lock
            parts = list(pool.map(lambda pack: pack(), _matrices_in_order(model, kind)))
        self._memory, start = huge_block(sum(_round_up(part.units.nbytes) for part in parts))
        at = 0
        streams = []
        for part in parts:
            self._memory[at : at + part.units.nbytes] = part.units.reshape(-1)
            streams.append(WeightStream(start + at, len(part.units) * UNIT, part.row_bytes))
            at = _round_up(at + part.units.nbytes)
        count = spec.layers * p.MATRICES_PER_LAYER
        self.note = _packing_note(kind, [part for part in parts if part.weights])
        stored = {t.format.name: t.format for name, t in model.tensors.items() if is_streamed(name)}
        self.kinds = list(stored.values()) if kind is None else [kind]
        self.layer_streams = streams[:count]
        self.projection_stream = streams[count : count + 1] if spec.projected else []
        self.head_streams = streams[count + 1 :]
        of_parts = zip(streams, parts, strict=True)
        self.matrices = np.array([(s.address, part.code, s.row_bytes) for s, part in of_parts], np.int64)
        self._embeddings = [_readable(model.tensors[f"model.codec_embedding.{g}.weight"]) for g in range(spec.passes)]
        found = [(t.data.ctypes.data, t.format.code, t.data.strides[0]) for t in self._embeddings]
        self.tables = np.array(found, np.int64)

    @property
    def pass_streams(self) -> list[WeightStream]:
        """What a pass reads before any head."""
        return [*self.projection_stream, *self.layer_streams]

    @property
    def pass_bytes(self) -> int:
        """Bytes of `pass_streams`."""
        return _bytes_of(self.pass_streams)

    @property
    def head_share(self) -> float:
        """Bytes of a head beside `pass_bytes`."""
        return _bytes_of(self.head_streams) / len(self.head_streams) / self.pass_bytes

    def part_bytes(self, passes: int) -> NDArray[np.int64]:
        """``[parts]``: bytes that each part of a frame streams (`cplab.kernels.tracing.PARTS`)."""
        found = np.zeros(len(tracing.PARTS), np.int64)
        found[tracing.INPUT] = passes * _bytes_of(self.projection_stream)
        for matrix, part in _PART_OF_MATRIX.items():
            found[part] = passes * _bytes_of(self.layer_streams[matrix :: p.MATRICES_PER_LAYER])
        found[tracing.HEAD] = _bytes_of(self.head_streams)
        return found


def _packing_note(kind: Format | None, parts: list[Streamed]) -> str:
    """What packing BF16 further came to, over all matrices."""
    if kind is None or kind.code != BF12_CODE:
        return ""
    plain = sum(part.code != BF12_CODE for part in parts)
    weights = sum(part.weights for part in parts)
    bits, apart = 8 * sum(part.units.nbytes for part in parts) / weights, sum(part.exceptions for part in parts)
    told = f"BF16 packed to {bits:.2f} bits a weight, {apart / weights:.3%} of the weights kept apart as exceptions"
    why = f"would not shrink, or have more than {MOST_COLUMNS} columns,"
    return f"{told}; {plain} of {len(parts)} matrices {why} and are plain BF16" if plain else told


def _bytes_of(streams: list[WeightStream]) -> int:
    return sum(stream.rows * stream.row_bytes for stream in streams)


def norms(model: Model) -> NDArray[np.float32]:
    """Norm weights in the order of `plan.NORMS`."""
    names = ("input_layernorm", "self_attn.q_norm", "self_attn.k_norm", "post_attention_layernorm")
    parts = [model.f32(f"model.layers.{n}.{name}.weight") for n in range(model.spec.layers) for name in names]
    return np.concatenate([*parts, model.f32("model.norm.weight")])


def _matrices_in_order(model: Model, kind: Format | None) -> Iterator[Callable[[], Streamed]]:
    """What lays out each matrix of `plan.MATRICES`; without rows where a model has no such."""

    def packed(names: tuple[str, ...]) -> tuple[list[NDArray[Any]], Format]:
        tensors = [model.tensors[f"{name}.weight"] for name in names]
        held = kind or _common(model, tensors)
        return [tensor.packed(held) for tensor in tensors], held

    def together(*names: str) -> Callable[[], Streamed]:
        def pack() -> Streamed:
            arrays, held = packed(names)
            return streamed(held, np.concatenate(arrays))

        return pack

    def interleaved(*names: str) -> Callable[[], Streamed]:
        """Units of 16 rows, in turn from each."""

        def pack() -> Streamed:
            arrays, held = packed(names)
            units = [rows.reshape(len(rows) // UNIT, UNIT, -1) for rows in arrays]
            return streamed(held, np.stack(units, 1).reshape(-1, units[0].shape[-1]))

        return pack

    for layer in range(model.spec.layers):
        at = f"model.layers.{layer}."
        yield together(*(f"{at}self_attn.{x}_proj" for x in "qkv"))
        yield together(f"{at}self_attn.o_proj")
        yield interleaved(f"{at}mlp.gate_proj", f"{at}mlp.up_proj")
        yield together(f"{at}mlp.down_proj")
    if model.spec.projected:
        yield together("small_to_mtp_projection")
    else:
        yield lambda: Streamed(FORMATS["f32"].code, 0, np.empty((0, UNIT), np.uint8))
    for g in range(model.spec.passes):
        yield together(f"lm_head.{g}")


def _common(model: Model, tensors: list[Tensor]) -> Format:
    """The format that tensors of one matrix are stored in."""
    found = {tensor.format.name: tensor.format for tensor in tensors}
    if len(found) > 1:
        told = ", ".join(f"{tensor.name} {tensor.format.name}" for tensor in tensors)
        raise BadInputError(f"{model.name}: {told}: what is streamed as one matrix must be stored in one format")
    return tensors[0].format


def _readable(tensor: Tensor) -> Tensor:
    """A table as kernels look rows up in it: as stored, or as float32 where it is stored in blocks."""
    if tensor.format.code == BF12_CODE:  # BF16 words, until a matrix of them is laid out
        return Tensor(tensor.name, FORMATS["bf16"], tensor.data)
    if tensor.format.code not in KINDS:
        return tensor
    return Tensor(tensor.name, FORMATS["f32"], tensor.f32())


def _round_up(size: int) -> int:
    return (size + _ALIGN - 1) // _ALIGN * _ALIGN


def huge_block(size: int) -> tuple[_Bytes, int]:
    """Memory on huge pages where the system grants them (Linux, ``madvise``), and its address."""
    block = mmap.mmap(-1, size + _HUGE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages: slower, never wrong
            block.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(block, np.uint8)
    skip = -whole.ctypes.data % _HUGE
    memory = whole[skip : skip + size]
    return memory, memory.ctypes.data
