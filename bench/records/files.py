"""Files of records: JSON of a known schema, and JSON lines, with one line of reason where they cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

Kind = TypeVar("Kind", bound=BaseModel)


class UnreadableRecordError(ValueError):
    """A file that should hold records does not, or was written by a newer version of the lab."""


def validated(path: Path, raw: Any, kind: type[Kind], schema: str) -> Kind:
    """What a file's JSON says, as a record type.

    Raises:
        UnreadableRecordError: it has a schema that this version does not know, or something in it is wrong.
    """
    found = raw.get("schema") if isinstance(raw, dict) else None
    if found != schema:
        raise UnreadableRecordError(f"{path}: schema {found!r}; this version reads {schema!r}")
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UnreadableRecordError(f"{path}: {where or kind.__name__.lower()}: {first['msg']}") from error


def read_if_there(path: Path, kind: type[Kind], schema: str) -> Kind | None:
    """Read a file that not every run folder has; None where there is none.

    Raises:
        UnreadableRecordError: it cannot be read, or as `validated`.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UnreadableRecordError(f"{path}: {error}") from error
    return validated(path, raw, kind, schema)


def read_lines(path: Path, kind: type[Kind], *, torn: bool = False) -> list[Kind]:
    """Read a file of one record a line.

    Args:
        path: the file.
        kind: of record.
        torn: its writer was killed: a last line without an end is passed over.

    Raises:
        UnreadableRecordError: naming the line that cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except OSError as error:
        raise UnreadableRecordError(f"{path}: {error.strerror or error}") from error
    if torn and lines and not lines[-1].endswith("\n"):
        lines.pop()
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(kind.model_validate_json(line))
        except ValidationError as error:
            raise UnreadableRecordError(f"{path}, line {number}: {error.errors()[0]['msg']}") from error
    return records
