"""The curve of speculation as a record: ``speculation.json`` in a folder, that of a run whose report then shows it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.machine import facts
from bench.plain_json import plain_json
from bench.records import (
    SPECULATION_FILE,
    CurvePoint,
    Interval,
    Speculation,
    SpeculationCurve,
    UnreadableRecordError,
    read_speculation,
)
from cplab import __version__
from cplab.cachedir import replacing, require_writable
from cplab.errors import CplabError
from cplab.model import Model


def require_place(folder: Path) -> None:
    """Ask before anything is measured whether a curve can be kept there.

    Raises:
        CplabError: the folder cannot be written, or holds a ``speculation.json`` that this version cannot read.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CplabError(f"{folder}: cannot be made: {error.strerror or error}; choose another place") from error
    require_writable(folder / SPECULATION_FILE)
    _kept(folder)


def keep_curve(
    folder: Path,
    model: Model,
    variant: str,
    plain: str,
    threads: int,
    rounds: int,
    plain_ms: Interval,
    points: Sequence[CurvePoint],
) -> Path:
    """Write a curve into a folder, beside those of other variants and thread counts there.

    Args:
        folder: a run's, or any other.
        model: the weights.
        variant: whose curve it is.
        plain: what it was timed beside.
        threads: team size.
        rounds: interleaved rounds.
        plain_ms: milliseconds of a plain frame.
        points: the curve.

    Raises:
        CplabError: the file there cannot be read.
        OSError: it cannot be written.
    """
    machine = facts(Path.cwd())
    curve = SpeculationCurve(
        variant=variant,
        plain=plain,
        threads=threads,
        model=model.name,
        digest=model.digest(),
        synthetic=model.synthetic,
        cpu=machine["cpu"]["model"] or "",
        started_utc=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        commit=machine["git"]["commit"],
        dirty=machine["git"]["dirty"],
        tool_version=__version__,
        command=" ".join(["python -m bench", *sys.argv[1:]]),
        rounds=rounds,
        plain_ms=plain_ms,
        points=list(points),
    )
    path = folder / SPECULATION_FILE
    with replacing(path) as temporary:
        found = _kept(folder).with_curve(curve)
        temporary.write_bytes(plain_json(found.model_dump(mode="json", by_alias=True), indent=1) + b"\n")
    return path


def _kept(folder: Path) -> Speculation:
    try:
        return read_speculation(folder / SPECULATION_FILE) or Speculation(curves=[])
    except UnreadableRecordError as error:
        raise CplabError(f"{error}; choose another folder") from error
