"""The child process that tries settings: ``python -m cplab.llama.trial JOB RESULTS``.

A setting may kill the process (llama.cpp dies of SIGSEGV where a CPU lists AMX and the kernel does not permit it), so
each result is written and flushed at once: what is missing afterwards is what killed it.

``JOB`` is JSON: ``file``, ``threads``, ``positions``, ``recompute``, ``frames``, ``inputs`` (an npz with ``X
[positions, hidden]`` and ``states [passes, hidden]``), and ``settings``, by number. ``RESULTS`` gets a line of JSON for
each: ``number``, and ``frame_ms`` (the least of ``frames`` frames) with ``distance`` (rms from ``states``; null where a
state is not finite) and ``cpu_share`` (how much of its threads' time that frame had a CPU: less than all of it on a
machine that is busy with something else), or ``refused`` with a reason.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from cplab.cpus import allowed_cpus
from cplab.errors import CplabError
from cplab.llama.engine import Engine, run_frame
from cplab.llama.settings import Settings
from cplab.orphans import die_with_parent

#: On a machine that is busy with something else one frame has to do.
ENOUGH_S = 3.0


def tried(job: dict[str, Any], settings: Settings, X: Any, states: Any) -> dict[str, Any]:
    """Time and distance of one setting."""
    engine = Engine(Path(job["file"]), settings, job["threads"], job["positions"])
    try:
        found = run_frame(engine, X, job["recompute"])
        least, share = np.inf, 1.0
        width = min(job["threads"], allowed_cpus())
        began = time.perf_counter()
        for _ in range(job["frames"]):
            started, busy = time.perf_counter_ns(), time.process_time_ns()
            run_frame(engine, X, job["recompute"])
            elapsed, busy = time.perf_counter_ns() - started, time.process_time_ns() - busy
            if elapsed < least:
                least, share = elapsed, busy / elapsed / width
            if time.perf_counter() - began > ENOUGH_S:
                break
    finally:
        engine.close()
    finite = bool(np.isfinite(found).all())
    distance = float(np.sqrt(np.mean(np.square(found - states, dtype=np.float64)))) if finite else None
    return {"frame_ms": least / 1e6, "distance": distance, "cpu_share": share}


def main() -> int:
    """Try every setting of the job, in order."""
    die_with_parent()
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with np.load(job["inputs"]) as stored:
        X, states = stored["X"], stored["states"]
    with Path(sys.argv[2]).open("a", encoding="utf-8") as results:
        for number, chosen in job["settings"].items():
            try:
                result = tried(job, Settings(**chosen), X, states)
            except CplabError as error:
                result = {"refused": str(error)}
            results.write(json.dumps({"number": int(number), **result}) + "\n")
            results.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
