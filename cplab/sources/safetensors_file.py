"""One safetensors file, mapped: eight bytes with the header's length, a JSON header, then the tensors back to back.

Read here rather than through the safetensors package, whose numpy side knows no BF16. What that package refuses is
refused here too: bytes that no tensor claims, tensors that overlap, a file shorter or longer than its header says.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.errors import UnreadableModelError
from cplab.formats import FORMATS
from cplab.model import Tensor

#: The format's own limit on its header.
_LARGEST_HEADER = 100_000_000
_LENGTH = struct.Struct("<Q")
_LFS = b"version https://git-lfs"
#: Types that the lab reads, as the formats in which they are kept bit for bit.
_FORMATS = {"BF16": FORMATS["bf16"], "F16": FORMATS["f16"], "F32": FORMATS["f32"]}


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in a safetensors file.

    Attributes:
        file: which file.
        name: its full name there.
        dtype: its type in safetensors' words, such as ``BF16``.
        shape: rows first.
        data: its bytes, mapped.
    """

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]

    def tensor(self, name: str) -> Tensor:
        """The tensor under another name, its bits as they are.

        Raises:
            UnreadableModelError: a type that the lab does not read.
        """
        kind = _FORMATS.get(self.dtype)
        if kind is None:
            raise UnreadableModelError(f"{self.file}: {self.name} is {self.dtype}; {', '.join(_FORMATS)} are read")
        data = self.data
        if data.ctypes.data % kind.storage.itemsize:
            data = data.copy()  # a header of odd length puts every tensor off its natural address
        return Tensor(name, kind, data.view(kind.storage.newbyteorder("<")).reshape(self.shape))


def read_text(path: Path) -> str:
    """Text of a small file beside the weights.

    Raises:
        UnreadableModelError: it cannot be read, or a git-lfs pointer lies in its place.
    """
    try:
        raw = path.read_bytes()
        if raw.startswith(_LFS):
            raise UnreadableModelError(_lfs(path))
        return raw.decode()
    except OSError as error:
        raise UnreadableModelError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UnreadableModelError(f"{path}: not UTF-8 text ({error}); copy it again") from error


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        UnreadableModelError: it is something else.
    """
    return _object(path, read_text(path))


def read_safetensors(path: Path) -> list[Stored]:
    """Every tensor of a file; the file is mapped, nothing is read yet.

    Raises:
        UnreadableModelError: a git-lfs pointer, a half-downloaded or damaged file.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            start = stream.read(max(_LENGTH.size, len(_LFS)))
            if start.startswith(_LFS):
                raise UnreadableModelError(_lfs(path))
            if len(start) < _LENGTH.size:
                raise UnreadableModelError(f"{path}: {size} bytes, no safetensors file; download it again")
            (length,) = _LENGTH.unpack_from(start)
            if length > _LARGEST_HEADER:
                raise UnreadableModelError(f"{path}: no safetensors file (it starts with {start[:8]!r})")
            body = _LENGTH.size + length
            if body > size:
                raise UnreadableModelError(f"{path}: half downloaded: {size:,} bytes, its header alone has {body:,}")
            stream.seek(_LENGTH.size)
            header = _object(path, stream.read(length).decode(errors="replace"))
        mapped = np.memmap(path, np.uint8, "r").view(np.ndarray)
    except OSError as error:
        raise UnreadableModelError(f"{path}: {error.strerror or error}") from error
    header.pop("__metadata__", None)
    found = [_entry(path, name, entry) for name, entry in header.items()]
    end = _tiled(path, found)
    if body + end > size:
        raise UnreadableModelError(f"{path}: half downloaded: {size:,} of {body + end:,} bytes; download it again")
    if body + end < size:
        raise UnreadableModelError(f"{path}: {size - body - end:,} bytes more than its header says; download it again")
    return [Stored(path, e.name, e.dtype, e.shape, mapped[body + e.start : body + e.end]) for e in found]


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def _entry(path: Path, name: str, entry: Any) -> _Entry:
    def whole(values: Any) -> bool:
        return isinstance(values, list) and all(type(v) is int and v >= 0 for v in values)

    if (
        not isinstance(entry, dict)
        or not isinstance(entry.get("dtype"), str)
        or not whole(entry.get("shape"))
        or not whole(entry.get("data_offsets"))
        or len(entry["data_offsets"]) != 2
    ):
        raise UnreadableModelError(f"{path}: damaged header at {name}; download it again")
    made = _Entry(name, entry["dtype"], tuple(entry["shape"]), *entry["data_offsets"])
    kind = _FORMATS.get(made.dtype)
    if kind is not None and made.end - made.start != math.prod(made.shape) * kind.storage.itemsize:
        raise UnreadableModelError(
            f"{path}: {name} has {made.end - made.start} bytes for {made.dtype} {list(made.shape)}; download it again"
        )
    return made


def _tiled(path: Path, entries: list[_Entry]) -> int:
    """Where the last tensor ends, once each is known to begin where the one before it ends."""
    end = 0
    for entry in sorted(entries, key=lambda e: (e.start, e.end)):
        if entry.start != end or entry.end < entry.start:
            raise UnreadableModelError(f"{path}: damaged header: {entry.name} starts at {entry.start}, not {end}")
        end = entry.end
    return end


def _object(path: Path, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableModelError(f"{path}: damaged JSON ({error}); download it again") from error
    if not isinstance(found, dict):
        raise UnreadableModelError(f"{path}: a JSON object is wanted, not {type(found).__name__}")
    return found


def _lfs(path: Path) -> str:
    return f"{path}: a git-lfs pointer, not the file itself; fetch it with `git lfs pull`"
