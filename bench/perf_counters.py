"""Hardware counters of this process by ``perf stat``, where they can be had, and the reason where not.

perf is attached to the running process with its counters off, and is told over a pipe when to count, so that neither
loading nor compiling is in the figures.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cplab.sysfiles import ROOT, read_int, read_text

#: Events of the processor, and of the kernel, which counts on any machine.
HARDWARE = ("cycles", "instructions", "cache-references", "cache-misses", "LLC-load-misses", "branch-misses")
SOFTWARE = ("task-clock", "context-switches", "cpu-migrations", "page-faults")
#: The highest ``kernel.perf_event_paranoid`` that lets a user count own processes.
_HIGHEST_PARANOID = 2
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Counters:
    """What perf counted.

    Attributes:
        counts: by event, over the whole of the work; ``task-clock`` in milliseconds of CPU time.
        reason: one line on why the processor's own events are missing; "" where they are there.
    """

    counts: dict[str, float] = field(default_factory=dict)
    reason: str = ""


def count(work: Callable[[], None], root: Path = ROOT) -> Counters:
    """Count events of this process, all its threads, while ``work`` runs; it does not run where perf cannot.

    Args:
        work: what to count.
        root: where /proc is.
    """
    executable = shutil.which("perf")
    if sys.platform != "linux":
        return Counters(reason="perf stat is a tool of Linux")
    if executable is None:
        return Counters(reason="perf is not installed")
    with tempfile.TemporaryDirectory(prefix="cplab-") as folder:
        output, said = Path(folder) / "counts", Path(folder) / "said"
        try:
            perf = _attached(executable, output, said)
        except OSError as error:
            return Counters(reason=f"{executable} cannot be started: {error.strerror or error}")
        try:
            if not perf.tell("enable"):
                perf.end()
                return Counters(reason=_refusal(read_text(said) or "", root))
            work()
            whole = perf.tell("disable")
        finally:
            perf.end()
        counts = parse(read_text(output) or "") if whole else {}
    if not whole:
        return Counters(reason="perf gave up while it counted")
    if counts.keys().isdisjoint(HARDWARE):
        return Counters(counts, _unsupported(root))
    return Counters(counts)


def parse(text: str) -> dict[str, float]:
    """Counts by event out of ``perf stat -x ,``; events that were not supported or not counted are left out.

    A processor with two kinds of cores counts on each, ``cpu_core/cycles/`` and ``cpu_atom/cycles/``: those are summed.
    """
    found: dict[str, float] = {}
    for line in text.splitlines():
        fields = line.split(",")
        if len(fields) > 2 and not line.startswith("#"):
            try:
                value = float(fields[0])
            except ValueError:
                continue  # <not supported>, <not counted>
            name = fields[2].partition(":")[0]  # cycles:u is cycles where only those may be had
            name = name.split("/")[1] if "/" in name else name
            if math.isfinite(value):
                found[name] = found.get(name, 0.0) + value
    return found


class _Perf:
    """A running ``perf stat`` that waits for commands."""

    def __init__(self, process: subprocess.Popen[bytes], commands: int, answers: int) -> None:
        self._process, self._commands, self._answers = process, commands, answers

    def tell(self, command: str) -> bool:
        """Send a command and wait until it is obeyed; False where perf has given up."""
        try:
            os.write(self._commands, f"{command}\n".encode())
        except BrokenPipeError:
            return False
        ready, _, _ = select.select([self._answers], [], [], _PATIENCE_S)
        return bool(ready) and os.read(self._answers, 64).startswith(b"ack")

    def end(self) -> None:
        """Have perf write its counts and leave; calling it again does nothing."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        for descriptor in (self._commands, self._answers):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._commands = self._answers = -1


def _attached(executable: str, output: Path, said: Path) -> _Perf:
    """Start perf with its counters off. What it says goes to a file: a pipe would last as long as its children.

    Raises:
        OSError: it cannot be started.
    """
    to_perf, from_perf = os.pipe(), os.pipe()
    events = ",".join((*HARDWARE, *SOFTWARE))
    try:
        with said.open("wb") as stderr:
            process = subprocess.Popen(
                [
                    executable, "stat", "-x", ",", "-o", os.fspath(output), "-e", events, "-p", str(os.getpid()),
                    "-D", "-1", "--control", f"fd:{to_perf[0]},{from_perf[1]}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=(to_perf[0], from_perf[1]),
                env={**os.environ, "LC_ALL": "C"},
            )  # fmt: skip
    except BaseException:
        os.close(to_perf[1])
        os.close(from_perf[0])
        raise
    finally:
        os.close(to_perf[0])
        os.close(from_perf[1])
    return _Perf(process, to_perf[1], from_perf[0])


def _refusal(complaint: str, root: Path) -> str:
    """Why perf would not start."""
    paranoid = read_int(root / "proc/sys/kernel/perf_event_paranoid")
    if paranoid is not None and paranoid > _HIGHEST_PARANOID and os.geteuid() != 0:
        return (
            f"kernel.perf_event_paranoid = {paranoid}; sysctl kernel.perf_event_paranoid={_HIGHEST_PARANOID} allows it"
        )
    said = [line.strip() for line in complaint.splitlines() if line.strip() not in ("", "Error:")]
    return f"perf cannot count here: {said[0]}" if said else "perf cannot count here, and does not say why"


def _unsupported(root: Path) -> str:
    guest = " hypervisor" in (read_text(root / "proc/cpuinfo") or "")
    return f"not supported by this {'virtual machine' if guest else 'processor or its kernel'}"
