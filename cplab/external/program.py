"""A program that speaks the protocol at the end of ``cp_engine.h`` on its standard input and output."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.errors import EngineError
from cplab.spec import Spec

Array = NDArray[np.float32]
Codes = NDArray[np.int32]

_MAGIC = b"CPE1"
_FORCED, _LOGITS = 1, 2
_MOST_TEXT = 4096
_STDERR_LINES = 3
#: A program that has closed its output gets so long to end, so that it can be said how.
_PATIENCE_S = 5.0


class Program:
    """A model loaded by a program.

    Args:
        name: what the user called it, for messages.
        words: the program and its own arguments; the model's file and the thread count come behind them.
        file: the model.
        threads: as many as the user asked for.
        spec: the model's dimensions.

    Attributes:
        takes_forced: it said that it takes forced codes and gives logits.
        described: nothing; a program has no way to say it.

    Raises:
        EngineError: it cannot be started, ended before it was ready, or speaks something else.
    """

    described = ""

    def __init__(self, name: str, words: Sequence[str], file: Path, threads: int, spec: Spec) -> None:
        self._name, self._spec = name, spec
        self._noise = tempfile.TemporaryFile()  # noqa: SIM115 -- it lives as long as the program
        # Through a launcher that has the program end with this process, however that ends (cplab.orphans).
        launcher = [sys.executable, "-m", "cplab.orphans"]
        self._process = subprocess.Popen(
            [*launcher, *words, str(file), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
        )
        magic = self._read(len(_MAGIC), "before it was ready")
        if magic != _MAGIC:
            self.close()
            raise EngineError(
                f"{name}: began with {magic!r} instead of {_MAGIC!r}; python -m bench engine-header prints the protocol"
            )
        self.takes_forced = self._number("before it was ready") == 1

    def run(self, hidden: Array, cb0_embed: Array, forced: Codes | None, *, logits: bool) -> tuple[Codes, Array | None]:
        """Frames ``hidden [B, talker_hidden]`` -> codes ``[B, groups-1]``, and logits where they are wanted.

        Raises:
            EngineError: the program says that it failed, or has ended.
        """
        spec, count = self._spec, len(hidden)
        flags = (_FORCED if forced is not None else 0) | (_LOGITS if logits else 0)
        header = np.array([count, spec.talker_hidden, spec.passes, flags], "<u4")
        parts = [header, hidden.astype("<f4", copy=False), cb0_embed.astype("<f4", copy=False)]
        if forced is not None:
            parts.append(forced.astype("<i4", copy=False))
        self._write(b"".join(part.tobytes() for part in parts))
        status = self._number("during a frame")
        if status:
            said = self._read(min(self._number("during a frame"), _MOST_TEXT), "during a frame")
            text = " ".join(said.decode(errors="replace").split())
            raise EngineError(f"{self._name}: answered {status}{': ' + text if text else ''}")
        codes = self._array("<i4", count, spec.passes)
        return codes, self._array("<f4", count, spec.passes, spec.vocab) if logits else None

    def close(self) -> None:
        """End the program; calling it again does nothing."""
        if self._process.poll() is None:
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):  # what was still to be written has nobody to read it
                    stream.close()
        self._process.wait()
        self._noise.close()

    def _array(self, kind: str, *shape: int) -> NDArray[Any]:
        """Numbers of a little-endian type, in this machine's order and in memory of their own."""
        wanted = np.dtype(kind)
        data = self._read(int(np.prod(shape)) * wanted.itemsize, "during a frame")
        return np.frombuffer(data, wanted).astype(wanted.newbyteorder("=")).reshape(shape)

    def _number(self, when: str) -> int:
        return int.from_bytes(self._read(4, when), "little")

    def _read(self, count: int, when: str) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(count)
        if len(data) < count:
            raise EngineError(f"{self._name}: {self._ended()} {when}{self._told()}")
        return data

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except OSError as error:
            raise EngineError(f"{self._name}: {self._ended()} between frames{self._told()}") from error

    def _ended(self) -> str:
        """How it ended: its output has, so that it is about to where it has not yet."""
        try:
            code = self._process.wait(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            return "closed its output"
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"

    def _told(self) -> str:
        if self._noise.closed:
            return ""
        self._noise.seek(0)
        lines = self._noise.read().decode(errors="replace").strip().splitlines()
        tail = " | ".join(line.strip() for line in lines[-_STDERR_LINES:])
        return f": {tail}" if tail else ""
