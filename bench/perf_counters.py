"""Hardware counters of this process by ``perf stat``, where they can be had, and the reason where not.

perf is attached to the running process with its counters off, and is told over a pipe when to count, so that neither
loading nor compiling is in the figures.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        output = Path(folder) / "counts"
        with _attached(executable, output) as perf:
            if not perf.tell("enable"):
                return Counters(reason=_refusal(perf.complaint(), root))
            work()
            perf.tell("disable")
        counts = parse(read_text(output) or "")
    if counts.keys().isdisjoint(HARDWARE):
        return Counters(counts, _unsupported(root))
    return Counters(counts)


def parse(text: str) -> dict[str, float]:
    """Counts by event out of ``perf stat -x ,``; events that were not supported or not counted are left out."""
    found = {}
    for line in text.splitlines():
        fields = line.split(",")
        if len(fields) > 2 and not line.startswith("#"):
            try:
                found[fields[2].partition(":")[0]] = float(fields[0])  # cycles:u is cycles where only those may be had
            except ValueError:
                continue  # <not supported>, <not counted>
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

    def complaint(self) -> str:
        """What perf wrote to its standard error before it gave up."""
        self.end()
        assert self._process.stderr is not None
        return self._process.stderr.read().decode(errors="replace")

    def end(self) -> None:
        """Have perf write its counts and leave."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()


@contextmanager
def _attached(executable: str, output: Path) -> Iterator[_Perf]:
    to_perf, from_perf = os.pipe(), os.pipe()
    events = ",".join((*HARDWARE, *SOFTWARE))
    process = subprocess.Popen(
        [
            executable, "stat", "-x", ",", "-o", os.fspath(output), "-e", events, "-p", str(os.getpid()),
            "-D", "-1", "--control", f"fd:{to_perf[0]},{from_perf[1]}",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(to_perf[0], from_perf[1]),
        env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    os.close(to_perf[0])
    os.close(from_perf[1])
    perf = _Perf(process, to_perf[1], from_perf[0])
    try:
        yield perf
    finally:
        perf.end()
        os.close(to_perf[1])
        os.close(from_perf[0])
        assert process.stderr is not None
        process.stderr.close()


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
