"""Which settings of llama.cpp work here and are fastest: tried once in child processes, then kept in the cache.

What is kept belongs to one file, one way of running it, one thread count, one build of llama.cpp and one CPU. A setting
works where its process lives and its hidden states are no further from the float32 ones than twice a naive
implementation's of the same precision: the gate's own rule (`cplab.gate_quality`), asked before the gate asks it.
Where none is right, the fastest of those that answer is taken, so that the gate can say what is wrong.

llama.cpp's threads wait for each other some thousand times a frame, so that beside another busy process times say
little about settings. What was found so is taken for an hour only and says so.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cplab.cachedir import cache_dir, replacing, writing_to_cache
from cplab.cpus import allowed_cpus
from cplab.errors import EngineError
from cplab.finite_json import finite_json
from cplab.gate_quality import FACTOR, rms
from cplab.jit import target_cpu
from cplab.llama.engine import version
from cplab.llama.settings import Settings, settings_for
from cplab.model import Model
from cplab.naive import Naive
from cplab.sources import synthetic

#: Seconds that one setting may take.
PATIENCE_S = 120.0
#: A trial whose threads had a CPU for less than this share of their time was disturbed.
QUIET_SHARE = 0.8
DISTURBED_S = 3600.0
_FRAMES = 4
_FORCED_STEP = 617
_COMMAND = (sys.executable, "-m", "cplab.llama.trial")


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of one setting.

    Attributes:
        settings: which.
        frame_ms: least time of a frame without heads; None where there was no answer.
        distance: rms of hidden states from the float32 ones; None where one is not finite.
        failed: why there was no answer: a signal's name, a time-out, or what llama.cpp said.
        cpu_share: how much of its threads' time that frame had a CPU, 0..1.
    """

    settings: Settings
    frame_ms: float | None = None
    distance: float | None = None
    failed: str = ""
    cpu_share: float = 1.0

    def right(self, limit: float) -> bool:
        """Whether it answered, within the limit; a limit that overflowed leaves it at finite."""
        if self.frame_ms is None or self.distance is None:
            return False
        return self.distance <= limit or not math.isfinite(limit)

    @property
    def trouble(self) -> str:
        """What went wrong, or ""; a distance that is too large is not told here."""
        return self.failed or ("non-finite hidden states" if self.distance is None else "")


@dataclass(frozen=True, slots=True)
class Choice:
    """The settings to use, and one line that says why; ``disturbed`` where something else was running meanwhile."""

    settings: Settings
    note: str
    disturbed: bool = False


def chosen_settings(model: Model, kind: str, file: Path, threads: int, *, recompute: bool) -> Choice:
    """The fastest settings that work, from the cache or by trying.

    Raises:
        EngineError: llama.cpp gave no answer with any.
    """
    return choice_for(file, kind, threads, lambda path: _write_frame(model, kind, path), recompute=recompute)


def choice_for(
    file: Path,
    kind: str,
    threads: int,
    write_frame: Callable[[Path], float],
    *,
    recompute: bool = False,
    identity: str | None = None,
) -> Choice:
    """The fastest settings for any file of llama.cpp that takes embeddings, from the cache or by trying.

    Args:
        file: what is run.
        kind: type of its matrices.
        threads: how many run it.
        write_frame: writes what is run, ``X [positions, hidden]`` and ``states [positions - 1, hidden]``, and tells how
            far from those states an answer may be.
        recompute: see `cplab.llama.engine.run_frame`.
        identity: what the choice belongs to; default: the file's name, for files whose names tell their contents.

    Raises:
        EngineError: llama.cpp gave no answer with any.
    """
    facts = _facts(identity or file.name, threads, recompute)
    kept = cache_dir() / "llama" / f"settings-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}.json"
    found = _read(kept, kind)
    if found is not None:
        return found
    with tempfile.TemporaryDirectory(prefix="cplab-llama-") as folder:
        inputs = Path(folder) / "frame.npz"
        limit = write_frame(inputs)
        job = {
            "file": str(file),
            "threads": threads,
            "positions": _positions(inputs),
            "recompute": recompute,
            "frames": _FRAMES,
            "inputs": str(inputs),
        }
        choice = choose(try_all(job, settings_for(kind), Path(folder)), limit)
    told = {"settings": choice.settings.as_dict(), "note": choice.note, "disturbed": choice.disturbed}
    about = told | {"facts": facts}
    with writing_to_cache(kept), replacing(kept) as temporary:
        temporary.write_text(finite_json(about, indent=1), encoding="utf-8")
    return choice


def choose(tried: Sequence[Tried], limit: float) -> Choice:
    """The fastest that is right, else the fastest that answers.

    Raises:
        EngineError: none answered.
    """
    answers = [t for t in tried if t.frame_ms is not None]
    if not answers:
        told = "; ".join(f"{t.settings}: {t.failed}" for t in tried)
        raise EngineError(f"llama.cpp gives no answer with any settings: {told}")
    right = [t for t in answers if t.right(limit)]
    best = min(right or answers, key=lambda t: t.frame_ms or 0.0)
    parts = [f"llama.cpp: {best.settings}; the fastest of {len(right)} that work, of {len(tried)} tried"]
    if not right:
        finite = any(t.distance is not None for t in answers)
        parts = [f"llama.cpp: {best.settings}; {'wrong' if finite else 'non-finite'} hidden states with every setting"]
    parts += _failures(tried)
    disturbed = min(t.cpu_share for t in answers) < QUIET_SHARE
    if disturbed:
        parts.append("tried beside other busy processes: the choice holds for an hour")
    return Choice(best.settings, "; ".join(parts), disturbed)


def _failures(tried: Sequence[Tried]) -> list[str]:
    """One line for each way of failing, with what the settings that failed so have in common."""
    ways: dict[str, list[Settings]] = {}
    for t in tried:
        if t.trouble:
            ways.setdefault(t.trouble, []).append(t.settings)
    lines = []
    for failed, those in ways.items():
        buffers = sorted({f"{s.buffers!r}" for s in those})
        every = {s for t in tried if f"{(s := t.settings).buffers!r}" in buffers}
        scope = f"extra buffers {' and '.join(buffers)}" if set(those) == every else "; ".join(map(str, those))
        lines.append(f"{failed} with {scope}")
    return lines


def try_all(
    job: dict[str, Any],
    settings: Sequence[Settings],
    folder: Path,
    *,
    command: Sequence[str] = _COMMAND,
    patience_s: float = PATIENCE_S,
) -> list[Tried]:
    """Try every setting; a child that dies or hangs costs the setting it was at, and another goes on from the next."""
    results = folder / "results.jsonl"
    found: dict[int, Tried] = {}
    while left := [number for number in range(len(settings)) if number not in found]:
        job_file = folder / "job.json"
        job_file.write_text(json.dumps(job | {"settings": {n: settings[n].as_dict() for n in left}}), encoding="utf-8")
        results.write_text("", encoding="utf-8")
        ended = _await([*command, str(job_file), str(results)], results, patience_s)
        for line in results.read_text(encoding="utf-8").splitlines():
            told = json.loads(line)
            number = told["number"]
            answer = {name: told[name] for name in ("frame_ms", "distance", "cpu_share") if name in told}
            found[number] = Tried(settings[number], failed=told.get("refused", ""), **answer)
        culprit = next((number for number in left if number not in found), None)
        if culprit is not None:
            found[culprit] = Tried(settings[culprit], failed=ended)
    return [found[number] for number in range(len(settings))]


def _await(command: Sequence[str], results: Path, patience_s: float) -> str:
    """Run a child; it is ended when it writes no result for too long. Returns how it ended."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    size = 0
    try:
        while True:
            try:
                _, noise = process.communicate(timeout=patience_s)
                return _how(process.returncode, noise)
            except subprocess.TimeoutExpired:
                if results.stat().st_size == size:
                    return f"no answer within {patience_s:g} s"
                size = results.stat().st_size
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def _how(code: int, noise: bytes) -> str:
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    last = noise.decode(errors="replace").strip().splitlines()[-1:]
    return f"exited with {code}{': ' + last[0] if last else ''}"


def _write_frame(model: Model, kind: str, path: Path) -> float:
    """Inputs of a frame and their float32 hidden states; how far from them an engine of that type may be.

    F32 has no rounding to compare with: there it must be nearer than a naive BF16 engine, which tells right from wrong.
    """
    spec = model.spec
    hidden = synthetic.hidden_states(model.name, 1, spec.talker_hidden)
    cb0 = synthetic.cb0_embeddings(model.name, 1, spec.talker_hidden)
    forced = (np.arange(spec.passes, dtype=np.int32)[None] * _FORCED_STEP) % spec.vocab
    exact = Naive(model, "f32")
    X = exact.inputs(hidden, cb0, forced)
    states = exact.states(X)[0, 1:]
    rounding, factor = ("bf16", 1.0) if kind == "f32" else (kind, FACTOR)
    naive = Naive(model, rounding).states(X)[0, 1:]
    np.savez(path, X=X[0], states=states)
    with np.errstate(invalid="ignore"):
        return factor * rms(naive - states)


def _positions(inputs: Path) -> int:
    with np.load(inputs) as stored:
        return len(stored["X"])


def _facts(identity: str, threads: int, recompute: bool) -> dict[str, Any]:
    """Everything that a choice belongs to."""
    return {
        "llama": version(),
        "file": identity,
        "threads": threads,
        "recompute": recompute,
        "cpu": target_cpu(),
        "cpus": allowed_cpus(),
        "system": (platform.system(), platform.machine(), platform.release()),
        "openmp": {name: value for name, value in sorted(os.environ.items()) if name.startswith(("OMP_", "GOMP_"))},
        "tried": _FRAMES,
    }


def _read(path: Path, kind: str) -> Choice | None:
    """A kept choice.

    A damaged file counts as none, and so do settings that are not tried, and a choice of more than an hour ago that
    was disturbed.
    """
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        settings = Settings(**about["settings"])
        stale = about["disturbed"] and time.time() - path.stat().st_mtime > DISTURBED_S
        if stale or settings not in settings_for(kind):
            return None
        return Choice(settings, str(about["note"]), bool(about["disturbed"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
