"""Running workers: one process each, with a time-out, and every way of dying turned into a record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench.job import Job
from bench.records import CellRecord, GateOutcome

#: A worker may take this long before it counts as hung; gates on slow machines run the oracle.
TIMEOUT_S = {"prepare": 3600.0, "gate": 900.0, "timed": 600.0, "profile": 900.0, "soak": 600.0}
TIMEOUT_S |= {"talker_prepare": 3600.0, "talker_trial": 900.0, "talker": 600.0}
#: Phases that make what others use: they show their progress, and no time-out of the user's is meant for them.
_MAKING = ("prepare", "talker_prepare")
_STDERR_LINES = 3


@dataclass
class Launcher:
    """Starts workers for a run.

    Attributes:
        timeout_s: replaces TIMEOUT_S for gate and timed workers where set; a soak's own length comes on top.
        tree: a source tree whose code the workers run, of another revision perhaps; None for our own.
    """

    timeout_s: float | None = None
    tree: Path | None = None
    _running: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def run(self, job: Job) -> CellRecord:
        """Run one job; never raises for what the worker does. Progress of what is made goes to our standard error."""
        patient = job.phase in (*_MAKING, "talker_trial")
        limit = self.timeout_s if self.timeout_s and not patient else TIMEOUT_S[job.phase]
        limit += job.seconds
        with tempfile.TemporaryDirectory(prefix="cplab-") as folder:
            result = Path(folder) / "record.json"
            noise = Path(folder) / "stderr"
            with noise.open("wb") as stderr:
                process = subprocess.Popen(
                    [sys.executable, "-m", "bench.worker", str(result)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=None if job.phase in _MAKING else stderr,
                    env=_environment(job, self.tree),
                    start_new_session=True,
                )
            self._running = process
            try:
                return self._await(process, job, result, noise, limit)
            finally:
                end_worker(process)
                self._running = None

    def _await(self, process: subprocess.Popen[bytes], job: Job, result: Path, noise: Path, limit: float) -> CellRecord:
        timer_fired = threading.Event()

        def on_timeout() -> None:
            timer_fired.set()
            end_worker(process)

        timer = threading.Timer(limit, on_timeout)
        timer.start()
        try:
            # An older tree's worker knows fewer fields, and would refuse those that it does not know.
            process.communicate(job.model_dump_json(exclude_defaults=True).encode())
        finally:
            timer.cancel()
        if timer_fired.is_set():
            return crashed(job, f"no result within {limit:g} s; the worker was ended")
        try:
            return _record(result.read_text(encoding="utf-8"), foreign=self.tree is not None)
        except (OSError, ValueError):
            return crashed(job, cause_of_death(process.returncode, noise))


def crashed(job: Job, reason: str) -> CellRecord:
    """The record of a worker that left none."""
    return CellRecord(
        variant=job.variant,
        threads=job.threads,
        model=job.model,
        round=job.round,
        order=job.order,
        phase=job.record_phase,
        gate=GateOutcome(status="crash", detail=reason),
        started_utc=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        reason=reason,
    )


def _record(text: str, foreign: bool) -> CellRecord:
    """A worker's record; of another tree's, which may be newer, without the fields that this one does not know."""
    if not foreign:
        return CellRecord.model_validate_json(text)
    known = {field.alias or name for name, field in CellRecord.model_fields.items()}
    return CellRecord.model_validate({name: value for name, value in json.loads(text).items() if name in known})


def _environment(job: Job, tree: Path | None) -> dict[str, str]:
    """The caller's environment with a thread pool of the cell's size, in numba and in every BLAS."""
    count = str(job.threads if job.phase not in _MAKING else max(2, os.cpu_count() or 1))
    pools = ("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
    paths = [str(tree or Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
    found = os.environ | dict.fromkeys(pools, count) | {"PYTHONPATH": os.pathsep.join(p for p in paths if p)}
    # The current folder may be our own tree, and would come first.
    return found | {"PYTHONSAFEPATH": "1"} if tree else found


def end_worker(process: subprocess.Popen[bytes]) -> None:
    """End a worker and whatever it started: what goes on computing would be in the next cell's times."""
    try:
        os.killpg(process.pid, signal.SIGKILL)  # the group outlives its leader where others are left in it
    except (ProcessLookupError, PermissionError):
        if process.poll() is None:
            process.kill()
    process.wait()


def cause_of_death(code: int, noise: Path) -> str:
    """How a worker ended that left no result, with the last lines that it wrote to the file ``noise``."""
    said = noise.read_text(encoding="utf-8", errors="replace").strip().splitlines() if noise.exists() else []
    tail = " | ".join(line.strip() for line in said[-_STDERR_LINES:])
    if code < 0:
        try:
            how = f"killed by {signal.Signals(-code).name}"
        except ValueError:
            how = f"killed by signal {-code}"
    else:
        how = f"exited with {code} and left no result"
    return f"{how}{': ' + tail if tail else ''}"
