"""The same samples as a pyperf suite, for pyperf's own tools: ``python -m pyperf stats pyperf.json``.

One benchmark a cell, one pyperf run a worker process. pyperf reads values as independent; its standard deviations
are therefore over frames, and `bench.stats` has the intervals to believe.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyperf

from bench.records import CellRecord
from bench.timed_rounds import timed_records
from cplab.cachedir import replacing


def write_suite(records: Iterable[CellRecord], path: Path) -> int:
    """Write the cells that have samples; those without, and those whose gate did not pass, are left out.

    Args:
        records: every record of a run, of both phases.
        path: written under a temporary name, then renamed.

    Returns:
        The number of benchmarks. pyperf knows no empty suite: where it is 0, no file is written.

    Raises:
        OSError: the file cannot be written.
    """
    benchmarks = [pyperf.Benchmark([_run(record) for record in found]) for found in timed_records(records).values()]
    if benchmarks:
        with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
            pyperf.BenchmarkSuite(benchmarks).dump(file)
    return len(benchmarks)


def benchmark_name(record: CellRecord) -> str:
    """``kv_bf16[threads=2,model=synthetic:0.6b]``."""
    return _one_line(f"{record.variant}[threads={record.threads},model={record.model}]")


def _run(record: CellRecord) -> Any:
    """One worker process as a pyperf run: seconds, one loop a value."""
    metadata: dict[str, str | int | float | None] = {
        "name": benchmark_name(record),
        "unit": "second",
        "loops": 1,
        "date": _date(record.started_utc),
        "cplab_variant": _one_line(record.variant),
        "cplab_model": _one_line(record.model),
        "cplab_threads": record.threads,
        "cplab_round": record.round,
        "cplab_order": record.order,
        "cplab_oversubscribed": "yes" if record.oversubscribed else "no",
        "cplab_load_s": record.load_s,
        "cplab_compile_s": record.compile_s,
        "cplab_rss_mb": record.rss_mb,
        "cplab_bytes_per_frame": record.bytes_per_frame,
    }
    return pyperf.Run(
        [sample / 1e9 for sample in record.samples_ns],
        warmups=[(1, warmup / 1e9) for warmup in record.warmup_ns],
        metadata={name: value for name, value in metadata.items() if value not in (None, "")},
        collect_metadata=False,  # pyperf would describe the process that writes the file, not the one that measured
    )


def _date(started_utc: str) -> str | None:
    """ISO format with its offset; pyperf's tools fail on a date that they cannot parse, so such a one is left out."""
    try:
        started = datetime.fromisoformat(started_utc)
    except ValueError:
        return None
    return (started if started.tzinfo else started.replace(tzinfo=UTC)).isoformat()


def _one_line(text: str) -> str:
    """Without line ends, which pyperf refuses, and without bytes of a file name that are no text."""
    return " ".join(text.encode("utf-8", "replace").decode("utf-8").split())
