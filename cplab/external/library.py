"""A shared library with the functions of ``cp_engine.h``, called through ctypes."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.errors import EngineError
from cplab.spec import Spec

Array = NDArray[np.float32]
Codes = NDArray[np.int32]

#: What no engine writes: buffers are filled with it before a call, and end in some more of it.
_UNWRITTEN = -0x5A5A5A5A
_GUARD = 16


class Library:
    """A model loaded by a library.

    Args:
        name: what the user called it, for messages.
        path: the library.
        file: the model.
        threads: as many as the user asked for.
        spec: the model's dimensions.

    Attributes:
        takes_forced: it has ``cp_predict_logits``.
        described: what it says of itself, or "".

    Raises:
        EngineError: it cannot be loaded, lacks a function, or refuses the model.
    """

    def __init__(self, name: str, path: str, file: Path, threads: int, spec: Spec) -> None:
        self._handle: int | None = None
        self._name, self._spec = name, spec
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise EngineError(f"{name}: cannot be loaded: {error}") from error
        pointer, i32 = ctypes.c_void_p, ctypes.c_int
        self._load = self._wanted("cp_load", pointer, ctypes.c_char_p, i32)
        self._predict = self._wanted("cp_predict", i32, *[pointer] * 4)
        self._logits = self._optional("cp_predict_logits", i32, *[pointer] * 6)
        self._free = self._optional("cp_free", None, pointer)
        self._error = self._optional("cp_error", ctypes.c_char_p, pointer)
        describe = self._optional("cp_describe", ctypes.c_char_p, pointer)
        self._handle = self._load(str(file).encode(), threads)
        if not self._handle:
            raise EngineError(f"{name}: cp_load returned NULL for {file}{self._told()}")
        self.takes_forced = self._logits is not None
        self.described = _text(describe(self._handle)) if describe else ""
        self._codes = np.empty(spec.passes + _GUARD, np.int32)
        self._rows = np.empty(spec.passes * spec.vocab + _GUARD if self._logits else 0, np.float32)

    def run(self, hidden: Array, cb0_embed: Array, forced: Codes | None, *, logits: bool) -> tuple[Codes, Array | None]:
        """Frames ``hidden [B, talker_hidden]`` -> codes ``[B, groups-1]``, and logits where they are wanted.

        Raises:
            EngineError: the library says that it failed, or wrote beyond its buffers.
        """
        spec = self._spec
        codes = np.empty((len(hidden), spec.passes), np.int32)
        rows = np.empty((len(hidden), spec.passes, spec.vocab), np.float32) if logits else None
        for b in range(len(hidden)):
            self._frame(hidden[b], cb0_embed[b], None if forced is None else forced[b], logits)
            codes[b] = self._codes[: spec.passes]
            if rows is not None:
                rows[b] = self._rows[:-_GUARD].reshape(spec.passes, spec.vocab)
        return codes, rows

    def close(self) -> None:
        """Give the model back; calling it again does nothing."""
        handle, self._handle = self._handle, None
        if handle and self._free:
            self._free(handle)

    def _frame(self, hidden: Array, cb0: Array, forced: Codes | None, logits: bool) -> None:
        self._codes.fill(_UNWRITTEN)
        inputs = (self._handle, hidden.ctypes.data, cb0.ctypes.data)
        if logits and self._logits:
            self._rows.view(np.int32).fill(_UNWRITTEN)
            name, given = "cp_predict_logits", None if forced is None else forced.ctypes.data
            status = self._logits(*inputs, given, self._codes.ctypes.data, self._rows.ctypes.data)
        else:
            name = "cp_predict"
            status = self._predict(*inputs, self._codes.ctypes.data)
        if status != 0:
            raise EngineError(f"{self._name}: {name} returned {status}{self._told()}")
        if (self._codes[self._spec.passes :] != _UNWRITTEN).any():
            raise EngineError(f"{self._name}: {name} wrote more than the {self._spec.passes} codes CB1, CB2, ...")
        if logits and (self._rows[-_GUARD:].view(np.int32) != _UNWRITTEN).any():
            raise EngineError(f"{self._name}: {name} wrote more than {self._spec.passes} x {self._spec.vocab} logits")

    def _wanted(self, name: str, result: Any, *arguments: Any) -> Any:
        found = self._optional(name, result, *arguments)
        if found is None:
            raise EngineError(
                f"{self._name}: has no function {name}; python -m bench engine-header prints what is wanted "
                '(in C++ it stands in extern "C")'
            )
        return found

    def _optional(self, name: str, result: Any, *arguments: Any) -> Any:
        found = getattr(self._library, name, None)
        if found is not None:
            found.restype, found.argtypes = result, arguments
        return found

    def _told(self) -> str:
        said = _text(self._error(self._handle)) if self._error else ""
        return f": {said}" if said else ""


def _text(said: bytes | None) -> str:
    return " ".join((said or b"").decode(errors="replace").split())
