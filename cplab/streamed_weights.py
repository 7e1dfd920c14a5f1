"""All matrices of a model packed for streaming: one block of memory, in the order in which a pass reads it.

The block lies on huge pages where the system grants them. Beside it stand the tables by which compiled code finds a
matrix or an embedding (see `cplab.kernels.plan`).
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from cplab.errors import BadInputError
from cplab.formats import FORMATS, Format
from cplab.kernels import plan as p
from cplab.kernels import tracing
from cplab.kernels.packing import row_bytes, streamed
from cplab.kernels.quantised_rows import KINDS
from cplab.model import Model, Tensor
from cplab.variant import WeightStream

_ALIGN = 64
_HUGE = 2 << 20
_Bytes = NDArray[np.uint8]
#: Units of what is streamed as one matrix, its columns, its format.
_Part = tuple[list[_Bytes], int, Format]
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
        kinds: every format that a matrix is streamed in.

    Raises:
        BadInputError: matrices that are streamed as one are stored in different formats.
    """

    def __init__(self, model: Model, kind: Format | None) -> None:
        spec = model.spec
        with ThreadPoolExecutor(2) as pool:  # numpy and compiled code let go of Python's lock
            parts = list(pool.map(lambda pack: pack(), _matrices_in_order(model, kind)))
        self._memory, start = huge_block(sum(_round_up(sum(a.nbytes for a in arrays)) for arrays, *_ in parts))
        at = 0
        streams = []
        for arrays, columns, streamed_as in parts:
            first = at
            for raw in (array.reshape(-1) for array in arrays):
                self._memory[at : at + raw.size] = raw
                at += raw.size
            bytes_of = row_bytes(streamed_as, columns)
            streams.append(WeightStream(start + first, (at - first) // max(1, bytes_of), bytes_of))
            at = _round_up(at)
        count = spec.layers * p.MATRICES_PER_LAYER
        self.layer_streams = streams[:count]
        self.projection_stream = streams[count : count + 1] if spec.projected else []
        self.head_streams = streams[count + 1 :]
        self.kinds = list({found.name: found for arrays, _, found in parts if arrays}.values())
        of_parts = zip(streams, parts, strict=True)
        self.matrices = np.array([(s.address, found.code, s.row_bytes) for s, (_, _, found) in of_parts], np.int64)
        self._embeddings = [_readable(model.tensors[f"model.codec_embedding.{g}.weight"]) for g in range(spec.passes)]
        found = [(t.data.ctypes.data, t.format.code, t.data.strides[0]) for t in self._embeddings]
        self.tables = np.array(found, np.int64)

    def part_bytes(self, passes: int) -> NDArray[np.int64]:
        """``[parts]``: bytes that each part of a frame streams (`cplab.kernels.tracing.PARTS`)."""
        found = np.zeros(len(tracing.PARTS), np.int64)
        found[tracing.INPUT] = passes * _bytes_of(self.projection_stream)
        for matrix, part in _PART_OF_MATRIX.items():
            found[part] = passes * _bytes_of(self.layer_streams[matrix :: p.MATRICES_PER_LAYER])
        found[tracing.HEAD] = _bytes_of(self.head_streams)
        return found


def _bytes_of(streams: list[WeightStream]) -> int:
    return sum(stream.rows * stream.row_bytes for stream in streams)


def norms(model: Model) -> NDArray[np.float32]:
    """Norm weights in the order of `plan.NORMS`."""
    names = ("input_layernorm", "self_attn.q_norm", "self_attn.k_norm", "post_attention_layernorm")
    parts = [model.f32(f"model.layers.{n}.{name}.weight") for n in range(model.spec.layers) for name in names]
    return np.concatenate([*parts, model.f32("model.norm.weight")])


def _matrices_in_order(model: Model, kind: Format | None) -> Iterator[Callable[[], _Part]]:
    """What packs each matrix of `plan.MATRICES`: no arrays where a model has no such."""

    def packed(names: tuple[str, ...]) -> _Part:
        tensors = [model.tensors[f"{name}.weight"] for name in names]
        streamed_as = kind or _common(model, tensors)
        columns = tensors[0].shape[1] if tensors else 0
        return [streamed(streamed_as, tensor.packed(streamed_as)) for tensor in tensors], columns, streamed_as

    def together(*names: str) -> Callable[[], _Part]:
        return lambda: packed(names)

    def interleaved(*names: str) -> Callable[[], _Part]:
        """Units of 16 rows, in turn from each."""

        def pack() -> _Part:
            arrays, columns, streamed_as = packed(names)
            return [np.stack(arrays, 1)], columns, streamed_as

        return pack

    for layer in range(model.spec.layers):
        at = f"model.layers.{layer}."
        yield together(*(f"{at}self_attn.{x}_proj" for x in "qkv"))
        yield together(f"{at}self_attn.o_proj")
        yield interleaved(f"{at}mlp.gate_proj", f"{at}mlp.up_proj")
        yield together(f"{at}mlp.down_proj")
    yield together(*(["small_to_mtp_projection"] if model.spec.projected else []))
    for g in range(model.spec.passes):
        yield together(f"lm_head.{g}")


def _common(model: Model, tensors: list[Tensor]) -> Format:
    """The format that tensors of one matrix are stored in; of no tensor, any."""
    found = {tensor.format.name: tensor.format for tensor in tensors}
    if len(found) > 1:
        told = ", ".join(f"{tensor.name} {tensor.format.name}" for tensor in tensors)
        raise BadInputError(f"{model.name}: {told}: what is streamed as one matrix must be stored in one format")
    return next(iter(found.values()), FORMATS["f32"])


def _readable(tensor: Tensor) -> Tensor:
    """A table as kernels look rows up in it: as stored, or as float32 where it is stored in blocks."""
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
