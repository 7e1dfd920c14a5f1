"""Energy by RAPL: what the CPU's packages took while frames were timed. Linux's powercap files; nothing is changed.

A counter of microjoules stands in ``/sys/class/powercap/intel-rapl:N/energy_uj`` (AMD's CPUs have the same name), goes
back to 0 after ``max_energy_range_uj``, and since 2020 only root may read it (CVE-2020-8694). It counts the whole
package, whoever keeps it busy. The kernel's ``power/powercap/powercap`` documents the files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cplab.sysfiles import ROOT, present, read_int, read_text

_FOLDER = "sys/class/powercap"
_PACKAGE = re.compile(r"package-\d+")
_NO_POWERCAP = "no energy counter: /sys/class/powercap is missing (a virtual machine, or a kernel without RAPL)"
_NOT_LINUX = "no energy counter: only Linux has one that a process may read"
_ROOT_ONLY = "energy_uj is readable by root only: chmod a+r /sys/class/powercap/*/energy_uj (root)"


@dataclass(frozen=True, slots=True)
class Domain:
    """One package's counter: its name, its file, and the value at which it starts again, microjoules."""

    name: str
    counter: Path
    range_uj: int


def domains(root: Path = ROOT) -> tuple[list[Domain], str]:
    """The packages' counters, and, where there is none that can be read, the reason."""
    folder = root / _FOLDER
    if not present(folder):
        return [], _NO_POWERCAP if present(root / "proc") else _NOT_LINUX
    found, forbidden = {}, False
    # One package may stand there twice, as intel-rapl and intel-rapl-mmio.
    for zone in sorted(folder.glob("intel-rapl*:*"), key=lambda path: (path.name.count("mmio"), path.name)):
        name = read_text(zone / "name") or ""
        if not _PACKAGE.fullmatch(name) or name in found:
            continue
        counter = zone / "energy_uj"
        if read_int(counter) is None:
            forbidden = forbidden or present(counter)
            continue
        found[name] = Domain(name, counter, read_int(zone / "max_energy_range_uj") or 0)
    if not found:
        return [], _ROOT_ONLY if forbidden else "no energy counter: powercap lists no CPU package"
    return list(found.values()), ""


def energy_facts(root: Path = ROOT) -> dict[str, Any]:
    """Names of the packages whose energy can be read, and the reason where there is none."""
    found, reason = domains(root)
    return {"domains": [domain.name for domain in found], "reason": reason}


def consumed_uj(before: int, after: int, range_uj: int) -> int:
    """Microjoules between two readings, of which the second may have started again once.

    Raises:
        ValueError: the counter went back and its range is not known, or either reading lies beyond it.
    """
    if after >= before:
        return after - before
    if range_uj <= before:
        raise ValueError(f"an energy counter went from {before} to {after} with a range of {range_uj}")
    return range_uj - before + after


@dataclass(slots=True)
class EnergyMeter:
    """Adds up the energy of stretches of time: ``with meter: ...`` around each.

    A counter moves about once in a millisecond, and a stretch that is measured often enough loses nothing by it.
    """

    root: Path = ROOT
    stretches: int = 0
    reason: str = ""
    _domains: list[Domain] = field(default_factory=list)
    _before: list[int | None] = field(default_factory=list)
    _total_uj: int = 0

    def __post_init__(self) -> None:
        self._domains, self.reason = domains(self.root)

    def __enter__(self) -> Self:
        self._before = self._read()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stretches += 1
        for domain, before, after in zip(self._domains, self._before, self._read(), strict=True):
            if self.reason:
                return
            if before is None or after is None:
                self.reason = f"{domain.name}: its counter could not be read any more"
                return
            try:
                self._total_uj += consumed_uj(before, after, domain.range_uj)
            except ValueError as broken:
                self.reason = f"{domain.name}: {broken}"

    def _read(self) -> list[int | None]:
        return [read_int(domain.counter) for domain in self._domains]

    def per_stretch(self) -> dict[str, Any]:
        """``joules_per_frame`` where every stretch is a frame, or None with ``energy_reason``."""
        if not self.reason and not self._total_uj:
            self.reason = "the energy counter did not move" if self.stretches else "nothing was measured"
        joules = None if self.reason else self._total_uj / 1e6 / self.stretches
        return {"joules_per_frame": joules, "energy_reason": self.reason}
