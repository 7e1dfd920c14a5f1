"""GGUF's block formats, with a kernel here or without: a matrix rounded to one and decoded again.

Those that the lab has are quantised by it, which is what its export writes. The others are quantised by ggml itself,
out of llama-cpp-python, so that what is judged is what a file of that format really holds.
"""

from __future__ import annotations

import ctypes
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from cplab.errors import BadInputError, UnpackableError
from cplab.formats import FORMATS

Array = NDArray[np.float32]

#: Those that a code predictor might be held in, widest first.
NAMES = ("q8_0", "q6_k", "q5_0", "q4_k", "iq4_nl", "q4_0")
_NEEDED = "llama-cpp-python quantises it and is not installed: pip install 'cplab[llama]'"


def bits_per_weight(name: str) -> float:
    """Bits of a weight, its share of the scales included."""
    block, size = gguf.GGML_QUANT_SIZES[_kind(name)]
    return float(8 * size / block)


def unable(name: str, widths: set[int]) -> str:
    """Why matrices of some widths cannot be had in a format, or ""."""
    block = gguf.GGML_QUANT_SIZES[_kind(name)][0]
    odd = [width for width in sorted(widths) if width % block]
    if odd:
        return f"rows of {odd[0]} weights are not made of whole blocks of {block}"
    if name not in FORMATS and _ggml() is None:
        return _NEEDED
    return ""


def through(name: str, weights: Array) -> Array:
    """``[rows, n]`` as they come back from a format.

    Raises:
        UnpackableError: a weight whose block has a scale beyond float16.
    """
    kind = _kind(name)
    if name in FORMATS:
        return FORMATS[name].unpack(FORMATS[name].pack(weights))
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        back: Array = gguf.quants.dequantize(_by_ggml(kind, weights), kind)
    if not np.isfinite(back).all():
        raise UnpackableError(f"a weight is beyond the float16 scales of {name}")
    return back.reshape(weights.shape)


def _kind(name: str) -> gguf.GGMLQuantizationType:
    """The gguf package's name of a format, whose case is mixed (``Q6_K``, ``IQ4_NL``)."""
    if name not in NAMES:
        raise BadInputError(f"no block format {name!r}; there are {', '.join(NAMES)}")
    return gguf.GGMLQuantizationType[name.upper()]


def _ggml() -> Any:
    """The library of ggml, or None where llama-cpp-python is not installed."""
    try:
        from llama_cpp._ggml import libggml
    except ImportError:
        return None
    return libggml


def _by_ggml(kind: gguf.GGMLQuantizationType, weights: Array) -> NDArray[np.uint8]:
    """``[rows, n]`` quantised by ggml without an importance matrix, ``[rows, bytes]``."""
    library = _ggml()
    if library is None:
        raise BadInputError(f"{kind.name}: {_NEEDED}")
    rows, n = weights.shape
    block, size = gguf.GGML_QUANT_SIZES[kind]
    source = np.ascontiguousarray(weights, np.float32)
    packed = np.zeros((rows, n // block * size), np.uint8)
    quantize = library.ggml_quantize_chunk
    quantize.restype = ctypes.c_size_t
    quantize.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3, ctypes.c_void_p]
    written = quantize(int(kind), source.ctypes.data, packed.ctypes.data, 0, rows, n, None)
    if written != packed.nbytes:
        raise BadInputError(f"{kind.name}: ggml wrote {written} bytes where {packed.nbytes} are wanted")
    return packed
