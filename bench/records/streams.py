"""Frames of several utterances at once: the types behind ``streams.jsonl`` and ``streams.json``.

They have files of their own, so that ``records.jsonl`` and ``summary.json`` are, for every reader, of single frames.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import ConfigDict, Field, model_validator

from bench.records.files import UnreadableRecordError, read_if_there, read_lines
from bench.records.measured import CellRecord, Frozen, Status
from bench.records.summarised import Interval, Ratio

STREAMS_SCHEMA = "cplab.streams/1"
STREAMS_FILE, STREAM_RECORDS_FILE = "streams.json", "streams.jsonl"


class Rate(Frozen):
    """Frames a second: the median over rounds of per-round medians, and its 95 % bootstrap interval."""

    p50: float
    lo: float
    hi: float


class StreamRecord(Frozen):
    """One line of ``streams.jsonl``: what one worker measured of a cell that got several frames a call.

    Attributes:
        batch: frames a call.
        measured: the record; ``samples_ns`` are of whole calls, ``frame_ids`` has the first frame of each.
    """

    batch: int = Field(ge=2)
    measured: CellRecord


class StreamPoint(Frozen):
    """A cell with so many frames at once, over all its rounds. Without a passed gate every time is None.

    Attributes:
        call_ms: until all frames of a call are there: how long each utterance waits for its frame.
        frame_ms: the same divided by the batch.
        frames_per_s: of all utterances together.
        gain: frames a second beside one at a time, paired by round.
        golden_frames: frames that calls were made of; a call of more has some of them again. None: not recorded.
    """

    variant: str
    threads: int
    batch: int
    exact: bool
    gate: Status
    detail: str = ""
    rounds: int = 0
    calls: int = 0
    call_ms: Interval | None = None
    frame_ms: Interval | None = None
    frames_per_s: Rate | None = None
    gain: Ratio | None = None
    golden_frames: int | None = None
    disturbed: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _no_time_without_a_passed_gate(self) -> Self:
        if self.gate != "pass" and (self.call_ms or self.frame_ms or self.frames_per_s or self.gain):
            raise ValueError(f"{self.variant} x {self.threads} x {self.batch}: times where the gate says {self.gate}")
        return self


class Streams(Frozen):
    """``streams.json``: cell after cell, each with its batches ascending from 1."""

    schema_: str = Field(default=STREAMS_SCHEMA, alias="schema")
    points: list[StreamPoint]

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def read_streams(path: Path) -> Streams | None:
    """Read a ``streams.json``; None where there is none, as in folders of runs that measured single frames only.

    Raises:
        UnreadableRecordError: it cannot be read, or has a schema that this version does not know.
    """
    return read_if_there(path, Streams, STREAMS_SCHEMA)


def read_stream_records(path: Path, *, torn: bool = False) -> list[StreamRecord]:
    """Read ``streams.jsonl``, one record a line; none where there is no such file.

    Args:
        path: the file.
        torn: its writer was killed: a last line without an end is passed over.

    Raises:
        UnreadableRecordError: naming the line that cannot be read.
    """
    try:
        return read_lines(path, StreamRecord, torn=torn)
    except UnreadableRecordError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return []
        raise
