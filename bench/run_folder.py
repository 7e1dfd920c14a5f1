"""The folder that a run leaves behind: ``reports/runs/<machine>/<UTC time>-<commit>[-dirty]/``.

It grows under a name that starts with a dot and gets its own when the run ends, so that whoever lists the folder
never takes half a run for one. Records are on disk as soon as they are appended: an interrupted run keeps what it
measured.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from bench.errors import OutputError
from bench.folder_names import claim, final_name, fresh_sibling, is_hidden, rename_to_free_name
from bench.line_file import LineFile
from bench.plain_json import plain_json
from bench.plan import PLAN_FILE, Plan
from bench.pyperf_suite import write_suite
from bench.records import (
    MACHINE_SCHEMA,
    PROFILE_FILE,
    ROOFLINE_FILE,
    STREAM_RECORDS_FILE,
    STREAMS_FILE,
    CellRecord,
    Profile,
    Roofline,
    StreamRecord,
    Streams,
    Summary,
)
from cplab.cachedir import replacing

RUNS = Path("reports/runs")
"""Where runs go unless told otherwise, under the current folder."""

_PROBE_BYTES = 1 << 18  # about what a run's files take; a full disk shall be noticed before hours of measuring


def run_folder_path(machine: str, started: datetime, commit: str, dirty: bool, runs: Path = RUNS) -> Path:
    """``<runs>/<machine>/20260131T235959Z-abcdef012-dirty``; ``commit`` is ``nogit`` outside a repository.

    Raises:
        ValueError: ``started`` has no time zone.
    """
    if started.tzinfo is None:
        raise ValueError("a run's start needs a time zone")
    return runs / machine / f"{started.astimezone(UTC):%Y%m%dT%H%M%SZ}-{commit}{'-dirty' if dirty else ''}"


class RunFolder:
    """A run's folder while it is written. As a context manager it is finished, or, without records, removed.

    Attributes:
        path: where the files are now; another folder after `finish`.
    """

    def __init__(self, final: Path) -> None:
        """Make the folder under its temporary name, and try it, before anything is measured.

        Args:
            final: the name to get in the end, as from `run_folder_path`.

        Raises:
            OutputError: the folder cannot be made or written.
        """
        self._final = final
        self._records: list[CellRecord] = []
        self._ended = False  # it has its own name already
        self._finished = False
        self.path = final
        self._made = [folder for folder in final.parents if not folder.exists()]
        with self._writing():
            final.parent.mkdir(parents=True, exist_ok=True)
            self.path = fresh_sibling(final)
        try:
            with self._writing():
                _probe(self.path)
                self._open()
        except OutputError:
            _remove(self.path)
            raise

    @classmethod
    def reopened(cls, path: Path, records: list[CellRecord]) -> Self:
        """Take up a folder that another process left, to add to it.

        Args:
            path: hidden, of a process that was killed, or of a run that ended.
            records: what its ``records.jsonl`` holds; half a line behind them is cut off.

        Raises:
            OutputError: it cannot be written, or another process has it.
        """
        self = cls.__new__(cls)
        self._final, self._records, self._made = final_name(path), list(records), []
        self._ended = not is_hidden(path)
        self._finished = False
        self.path = path
        with self._writing():
            self.path = claim(path) if is_hidden(path) else path
            self._open(cut=True)
        return self

    @property
    def records(self) -> list[CellRecord]:
        """What was appended so far."""
        return list(self._records)

    def append(self, record: CellRecord) -> None:
        """Add a line to ``records.jsonl``: the whole line in one write, or nothing.

        Raises:
            OutputError: it cannot be written; the lines before it stay.
        """
        with self._writing():
            self._file.append(plain_json(record.model_dump(mode="json", by_alias=True)))
        self._records.append(record)

    def append_stream(self, record: StreamRecord) -> None:
        """Add a line to ``streams.jsonl``, which is made with the first; raises as `append` does."""
        with self._writing():
            self._streams.append(plain_json(record.model_dump(mode="json", by_alias=True)))

    def write_machine(self, facts: dict[str, Any]) -> None:
        """Write ``machine.json``.

        Raises:
            OutputError: it cannot be written.
        """
        self._replace("machine.json", plain_json({"schema": MACHINE_SCHEMA, **facts}, indent=1))

    def write_plan(self, plan: Plan) -> None:
        """Write ``plan.json``: before anything is measured, and again when the cells are chosen.

        Raises:
            OutputError: it cannot be written.
        """
        self._replace(PLAN_FILE, plain_json(plan.model_dump(mode="json", by_alias=True), indent=1))

    def write_roofline(self, roofline: Roofline) -> None:
        """Write ``roofline.json``.

        Raises:
            OutputError: it cannot be written.
        """
        self._replace(ROOFLINE_FILE, plain_json(roofline.model_dump(mode="json", by_alias=True), indent=1))

    def write_profile(self, profile: Profile) -> None:
        """Write ``profile.json``.

        Raises:
            OutputError: it cannot be written.
        """
        self._replace(PROFILE_FILE, plain_json(profile.model_dump(mode="json", by_alias=True)))

    def write_summary(self, summary: Summary) -> None:
        """Write ``summary.json``.

        Raises:
            OutputError: it cannot be written.
        """
        self._replace("summary.json", plain_json(summary.model_dump(mode="json", by_alias=True), indent=1))

    def write_streams(self, streams: Streams | None) -> None:
        """Write ``streams.json``; no file where the run measured none. Raises OutputError if it cannot be written."""
        if streams is not None:
            self._replace(STREAMS_FILE, plain_json(streams.model_dump(mode="json", by_alias=True), indent=1))

    def write_pyperf(self, records: Iterable[CellRecord] | None = None) -> None:
        """Write ``pyperf.json`` from what was appended, or from ``records``; no file where no cell has samples.

        Raises:
            OutputError: it cannot be written.
        """
        with self._writing():
            write_suite(self._records if records is None else records, self.path / "pyperf.json")

    def finish(self) -> Path:
        """Give the folder its name, with -2, -3, ... behind it where that is taken, and return it.

        Raises:
            OutputError: it cannot be renamed; the results stay under the temporary name, which the message tells.
        """
        if not self._finished:
            with self._writing():
                self._close()
                if not self._ended:
                    self.path = rename_to_free_name(self.path, self._final)
            self._finished = True
        return self.path

    def discard(self) -> None:
        """Remove a folder that holds nothing worth keeping, and the parents made for it; nothing after `finish`."""
        if not self._finished and not self._ended:
            with suppress(OSError):
                self._close()
            _remove(self.path)
            with suppress(OSError):  # one that another run has begun to use stays
                for parent in self._made:
                    parent.rmdir()
            self._finished = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._records:
            self.finish()
        else:
            self.discard()

    def _open(self, *, cut: bool = False) -> None:
        self._file, self._streams = (LineFile(self.path / name) for name in ("records.jsonl", STREAM_RECORDS_FILE))
        self._file.open(cut=cut)

    def _close(self) -> None:
        self._file.close()
        self._streams.close()

    def _replace(self, name: str, content: bytes) -> None:
        with self._writing(), replacing(self.path / name) as temporary:
            temporary.write_bytes(content + b"\n")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """OSError, whatever the file system's reason, becomes one line with what to do about it."""
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            advice = "free some space, or choose" if full else "choose"
            kept = "; the records so far stay there" if self._records else ""
            raise OutputError(
                f"{self.path}: the run cannot be written: {error.strerror or error}{kept}; "
                f"{advice} another folder with --out"
            ) from error


def _probe(folder: Path) -> None:
    probe = folder / ".probe"
    try:
        probe.write_bytes(bytes(_PROBE_BYTES))
    finally:
        probe.unlink(missing_ok=True)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
