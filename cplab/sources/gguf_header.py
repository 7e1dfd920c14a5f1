"""The head of a GGUF file: its keys and where its tensors lie. Nothing of the tensors themselves is read here.

The gguf package's own reader makes a Python object of every token of a tokenizer, seconds for a full file; this one
steps over arrays, and says what is wrong with a damaged file instead of showing numpy's errors.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from cplab.errors import UnreadableModelError

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
#: GGUF's scalar types by their numbers (8 is a string, 9 an array).
_SCALARS = dict(
    zip(
        (0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12),
        map(struct.Struct, ["<B", "<b", "<H", "<h", "<I", "<i", "<f", "<?", "<Q", "<q", "<d"]),
        strict=True,
    )
)
_STRING, _ARRAY = 8, 9
_VERSIONS = (2, 3)
_MOST_DIMENSIONS = 4
_DEEPEST = 4


class _DamagedError(Exception):
    """The bytes are no GGUF; becomes an UnreadableModelError with the file's name."""


@dataclass(frozen=True, slots=True)
class Array:
    """A key that holds an array; what is in it is not kept."""

    count: int

    def __str__(self) -> str:
        return f"an array of {self.count} values"


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A key whose text is not UTF-8; an error only where it is asked for."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor as it lies in a file.

    Attributes:
        file: which file.
        name: its name there.
        kind: its type, a ``gguf.GGMLQuantizationType``.
        shape: rows first, as in the checkpoint (GGUF writes the fastest dimension first).
        offset: of its first byte in the file.
        nbytes: bytes it takes.
    """

    file: Path
    name: str
    kind: Any
    shape: tuple[int, ...]
    offset: int
    nbytes: int

    def bytes_of(self, data: NDArray[np.uint8], part: int | None, parts: int) -> NDArray[np.uint8]:
        """Its bytes out of the mapped file, or those of one of ``parts`` equal pieces along the first axis."""
        if part is None:
            return data[self.offset : self.offset + self.nbytes]
        each = self.nbytes // parts
        return data[self.offset + part * each : self.offset + (part + 1) * each]


@dataclass(frozen=True, slots=True)
class Header:
    """Keys and tensors of one file."""

    path: Path
    keys: dict[str, Any]
    tensors: dict[str, StoredTensor]


def read_header(path: Path) -> Header:
    """The head of a file, checked: every tensor lies inside the file, no name or key comes twice.

    Raises:
        UnreadableModelError: the file is missing, not GGUF, of the other byte order, damaged, or cut short.
    """
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
            if magic != b"GGUF":
                hint = "a git-lfs pointer, not the file itself" if magic == b"vers" else "not a GGUF file"
                raise UnreadableModelError(f"{path}: {hint} (it starts with {magic!r})")
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _parse(path, data)
    except OSError as error:
        raise UnreadableModelError(f"{path}: {error.strerror or error}") from error
    except (_DamagedError, struct.error, OverflowError) as error:
        what = error if isinstance(error, _DamagedError) else "it ends too early"
        raise UnreadableModelError(f"{path}: damaged or cut short ({what}); copy it again") from error


def _parse(path: Path, data: mmap.mmap) -> Header:
    (version,) = _U32.unpack_from(data, 4)
    if version & 0xFFFF == 0:
        raise UnreadableModelError(f"{path}: written in the other byte order; convert it first")
    if version not in _VERSIONS:
        raise UnreadableModelError(f"{path}: GGUF version {version}; this version reads 2 and 3")
    (tensor_count,), (key_count,) = _U64.unpack_from(data, 8), _U64.unpack_from(data, 16)
    at = 24
    keys: dict[str, Any] = {}
    for _ in range(key_count):
        key, at = _name(data, at)
        (kind,) = _U32.unpack_from(data, at)
        value, at = _value(data, at + 4, kind)
        if key in keys:
            raise _DamagedError(f"key {key} comes twice")
        keys[key] = value
    found = []
    for _ in range(tensor_count):
        name, at = _name(data, at)
        (dimensions,) = _U32.unpack_from(data, at)
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            raise _DamagedError(f"{name} has {dimensions} dimensions")
        *sizes, kind, offset = struct.unpack_from(f"<{dimensions}QIQ", data, at + 4)
        at += 4 + 8 * dimensions + 12
        found.append((name, tuple(reversed(sizes)), kind, offset))
    return Header(path, keys, _tensors(path, found, _data_start(keys, at), len(data)))


def _data_start(keys: dict[str, Any], at: int) -> int:
    alignment = keys.get("general.alignment", gguf.GGUF_DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise _DamagedError(f"general.alignment is {alignment}")
    return -(-at // alignment) * alignment


def _tensors(
    path: Path, found: list[tuple[str, tuple[int, ...], int, int]], start: int, size: int
) -> dict[str, StoredTensor]:
    tensors: dict[str, StoredTensor] = {}
    for name, shape, number, offset in found:
        try:
            kind = gguf.GGMLQuantizationType(number)
            block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        except (ValueError, KeyError) as error:
            raise _DamagedError(f"{name} has type {number}, which the gguf package does not know") from error
        if shape[-1] % block:
            raise _DamagedError(f"{name} has rows of {shape[-1]}, which blocks of {block} do not fill")
        nbytes = prod(shape) // block * block_bytes
        if name in tensors:
            raise _DamagedError(f"{name} comes twice")
        if start + offset + nbytes > size:
            raise _DamagedError(f"{name} would end at byte {start + offset + nbytes:,}, the file at {size:,}")
        tensors[name] = StoredTensor(path, name, kind, shape, start + offset, nbytes)
    return tensors


def _text(data: mmap.mmap, at: int) -> tuple[bytes, int]:
    (length,) = _U64.unpack_from(data, at)
    end = at + 8 + length
    if end > len(data):
        raise _DamagedError("a text runs beyond the end")
    return data[at + 8 : end], end


def _name(data: mmap.mmap, at: int) -> tuple[str, int]:
    text, at = _text(data, at)
    try:
        return text.decode(), at
    except UnicodeDecodeError as error:
        raise _DamagedError(f"the name {text[:40]!r} is not UTF-8") from error


def _value(data: mmap.mmap, at: int, kind: int, depth: int = 0) -> tuple[Any, int]:
    """The value at an offset, and the offset behind it; an array is stepped over."""
    if kind == _STRING:
        text, at = _text(data, at)
        try:
            return text.decode(), at
        except UnicodeDecodeError:
            return Undecodable(), at
    if kind != _ARRAY:
        scalar = _SCALARS.get(kind)
        if scalar is None:
            raise _DamagedError(f"a key has type {kind}, which GGUF does not have")
        return scalar.unpack_from(data, at)[0], at + scalar.size
    (inner,), (count,) = _U32.unpack_from(data, at), _U64.unpack_from(data, at + 4)
    at += 12
    if inner in _SCALARS:
        at += count * _SCALARS[inner].size
    elif inner == _STRING:
        for _ in range(count):
            at += 8 + _U64.unpack_from(data, at)[0]
    elif depth < _DEEPEST:
        for _ in range(count):
            _, at = _value(data, at, inner, depth + 1)
    else:
        raise _DamagedError("arrays of arrays without end")
    if at > len(data):
        raise _DamagedError("an array runs beyond the end")
    return Array(count), at
