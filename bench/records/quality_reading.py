"""Reading ``quality.json`` and what belongs to it, with one line of reason where that cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.records.files import UnreadableRecordError, validated
from bench.records.quality import QUALITY_SCHEMA, Quality
from bench.records.recipe import RECIPE_SCHEMA, SENSITIVITY_SCHEMA, RecipeFound, Sensitivity


def read_quality(path: Path) -> Quality:
    """Read what ``bench quality`` wrote.

    Raises:
        UnreadableRecordError: the file is missing, is no JSON, or has a schema that this version does not know.
    """
    return validated(path, _parsed(path, "a quality.json"), Quality, QUALITY_SCHEMA)


def read_sensitivity(path: Path) -> Sensitivity:
    """Read what ``bench quality --sensitivity`` wrote; errors as of `read_quality`."""
    return validated(path, _parsed(path, "a sensitivity.json"), Sensitivity, SENSITIVITY_SCHEMA)


def read_found_recipe(path: Path) -> RecipeFound:
    """Read what ``bench recipe --json`` wrote; errors as of `read_quality`."""
    return validated(path, _parsed(path, "what bench recipe --json wrote"), RecipeFound, RECIPE_SCHEMA)


def _parsed(path: Path, wanted: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableRecordError(f"{path}: {error.strerror or error}; {wanted} is wanted") from error
    except ValueError as error:
        raise UnreadableRecordError(f"{path}: not JSON ({error})") from error
