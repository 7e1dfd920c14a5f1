"""Reading ``summary.json`` and ``records.jsonl``, with one line of reason where that cannot be."""

from __future__ import annotations

import json
from pathlib import Path

from bench.records.files import UnreadableRecordError, read_lines, validated
from bench.records.measured import CellRecord
from bench.records.summarised import SWEEP_SCHEMA, Summary


def read_summary(path: Path) -> Summary:
    """Read a ``summary.json``.

    Raises:
        UnreadableRecordError: the file is missing, is no JSON, or has a schema that this version does not know.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableRecordError(f"{path}: {error.strerror or error}; is this a run folder?") from error
    except ValueError as error:
        raise UnreadableRecordError(f"{path}: not JSON ({error}); the run did not end cleanly") from error
    return validated(path, raw, Summary, SWEEP_SCHEMA)


def read_records(path: Path, *, torn: bool = False) -> list[CellRecord]:
    """Read ``records.jsonl``, one record a line.

    Args:
        path: the file.
        torn: its writer was killed: a last line without an end is passed over.

    Raises:
        UnreadableRecordError: naming the line that cannot be read.
    """
    return read_lines(path, CellRecord, torn=torn)
