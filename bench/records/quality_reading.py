"""Reading ``quality.json``, with one line of reason where that cannot be."""

from __future__ import annotations

import json
from pathlib import Path

from bench.records.files import UnreadableRecordError, validated
from bench.records.quality import QUALITY_SCHEMA, Quality


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
    return validated(path, raw, Quality, QUALITY_SCHEMA)
