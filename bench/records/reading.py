"""Reading ``summary.json`` and ``records.jsonl``, with one line of reason where that cannot be."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from bench.records.measured import CellRecord
from bench.records.summarised import SWEEP_SCHEMA, Summary


class UnreadableRecordError(ValueError):
    """A file that should hold records does not, or was written by a newer version of the lab."""


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
    schema = raw.get("schema") if isinstance(raw, dict) else None
    if schema != SWEEP_SCHEMA:
        raise UnreadableRecordError(f"{path}: schema {schema!r}; this version reads {SWEEP_SCHEMA!r}")
    try:
        return Summary.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UnreadableRecordError(f"{path}: {where or 'summary'}: {first['msg']}") from error


def read_records(path: Path, *, torn: bool = False) -> list[CellRecord]:
    """Read ``records.jsonl``, one record a line.

    Args:
        path: the file.
        torn: its writer was killed: a last line without an end is passed over.

    Raises:
        UnreadableRecordError: naming the line that cannot be read.
    """
    records = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except OSError as error:
        raise UnreadableRecordError(f"{path}: {error.strerror or error}") from error
    if torn and lines and not lines[-1].endswith("\n"):
        lines.pop()
    for number, line in enumerate(lines, start=1):
        try:
            records.append(CellRecord.model_validate_json(line))
        except ValidationError as error:
            raise UnreadableRecordError(f"{path}, line {number}: {error.errors()[0]['msg']}") from error
    return records
