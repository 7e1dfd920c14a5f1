"""A file that grows line by line and is whole after every line, whatever becomes of the process that writes it."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO


class LineFile:
    """Appends lines, each in one write, or nothing of it. The file is made with the first line.

    Args:
        path: the file.

    Attributes:
        raw: the file itself, unbuffered, once it is there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.raw: BinaryIO | None = None

    def open(self, *, cut: bool = False) -> None:
        """Make the file, or take it up again.

        Args:
            cut: half a line at its end, of a writer that was killed, is cut off.

        Raises:
            OSError: it cannot be written.
        """
        # Unbuffered: one line is one write, and what was appended survives this process.
        self.raw = self._path.open("ab", buffering=0)
        if cut and self.raw is not None:
            self.raw.truncate(self._path.read_bytes().rfind(b"\n") + 1)

    def append(self, line: bytes) -> None:
        """Add a line and its end.

        Raises:
            OSError: it cannot be written; the lines before it stay.
        """
        if self.raw is None:
            self.open(cut=self._path.exists())
        assert self.raw is not None
        line += b"\n"
        before = self.raw.seek(0, os.SEEK_END)
        try:
            if self.raw.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            with suppress(OSError):
                self.raw.truncate(before)  # half a line would make the whole file unreadable
            raise

    def close(self) -> None:
        """Close it; its path may change then."""
        if self.raw is not None:
            self.raw.close()
            self.raw = None
