"""``bench profile``: one cell in a worker of its own, judged first, then profiled."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.status import Status

from bench import machine
from bench.job import Job
from bench.launch import Launcher
from bench.profile_record import digest
from bench.records import CellRecord, Profile
from cplab.errors import CplabError
from cplab.variant import Variant

#: Frames that the gate looks at, with every check.
GATE_FRAMES = 2


def profile_cell(
    model: str,
    variant: Variant,
    threads: int,
    *,
    frames: int,
    golden: Path | None = None,
    files: list[Path] | None = None,
    timeout_s: float | None = None,
) -> tuple[CellRecord, Profile | None]:
    """Profile one variant at one thread count; the profile is None where its gate failed or its worker died.

    Raises:
        CplabError: the model or its golden cannot be had, or the variant cannot tell where its time goes.
    """
    launcher = Launcher(timeout_s)
    prepare = Job(
        phase="prepare", model=model, golden=str(golden or ""), variant_files=[str(path) for path in files or []]
    )  # fmt: skip
    prepared = launcher.run(prepare)
    if prepared.gate.status != "skip":
        raise CplabError(prepared.gate.detail)
    job = prepare.model_copy(
        update={
            "phase": "profile",
            "variant": variant.name,
            "threads": threads,
            "cpus": machine.pinning(threads),
            "frames": frames,
            "gate_frames": GATE_FRAMES,
        }
    )
    with Status(f"{variant.name} x {threads}", console=Console(stderr=True)):
        record = launcher.run(job)
    if record.gate.status == "skip":
        raise CplabError(record.reason)
    return record, digest(record, variant.format) if record.profile is not None else None
