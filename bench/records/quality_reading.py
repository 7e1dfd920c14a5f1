"""Reading ``quality.json``, with one line of reason where that cannot be."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from bench.records.quality import QUALITY_SCHEMA, Quality
from bench.records.reading import UnreadableRecordError


def read_quality(path: Path) -> Quality:
    """Read what ``bench quality`` wrote.

    Raises:
        UnreadableRecordError: the file is missing, is no JSON, or has a schema that this version does not know.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableRecordError(f"{path}: {error.strerror or error}; a quality.json is wanted") from error
    except ValueError as error:
        raise UnreadableRecordError(f"{path}: not JSON ({error})") from error
    schema = raw.get("schema") if isinstance(raw, dict) else None
    if schema != QUALITY_SCHEMA:
        raise UnreadableRecordError(f"{path}: schema {schema!r}; this version reads {QUALITY_SCHEMA!r}")
    try:
        return Quality.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UnreadableRecordError(f"{path}: {where or 'quality'}: {first['msg']}") from error
