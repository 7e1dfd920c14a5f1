"""Starting the workers of ``bench quality``: one process each, with a time-out, every way of dying told in a line."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.launch import cause_of_death, end_worker
from bench.quality.job import QualityJob, QualityResult

TIMEOUT_S = 3600.0


def result_of(job: QualityJob, timeout_s: float = TIMEOUT_S) -> QualityResult:
    """Run one job; never raises for what the worker does. The ``law`` worker may write to our standard error."""
    paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "NUMBA_NUM_THREADS": str(max(job.threads, os.cpu_count() or 1)),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }
    with tempfile.TemporaryDirectory(prefix="cplab-") as folder:
        result, noise = Path(folder) / "result.json", Path(folder) / "stderr"
        with noise.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "bench.quality.worker", str(result)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=None if job.phase == "law" else stderr,
                env=environment,
                start_new_session=True,
            )
        try:
            process.communicate(job.model_dump_json().encode(), timeout=timeout_s)
            return QualityResult.model_validate_json(result.read_text(encoding="utf-8"))
        except subprocess.TimeoutExpired:
            return QualityResult(error=f"no result within {timeout_s:g} s; the worker was ended")
        except (OSError, ValueError):
            return QualityResult(error=cause_of_death(process.returncode, noise))
        finally:
            end_worker(process)
