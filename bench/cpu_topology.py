"""Cores, siblings and kinds of core; how many CPUs this process may use, which thread counts to try, where to pin.

A thread count is only a figure if one knows what stands behind it: two threads on one core's siblings share its
load ports, a team with one slow core waits for it at every barrier, and a quota lower than the team stops all of
it in the middle of a frame.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import psutil

from cplab.cpus import affinity, allowed_cpus
from cplab.sysfiles import ROOT, parse_cpu_list, read_int, read_text, sysctl


@dataclass(frozen=True)
class Core:
    """One physical core: its logical CPUs ascending, its kind and relative capacity where the kernel tells.

    ``package`` is the socket, ``node`` the NUMA node that it belongs to.
    """

    cpus: tuple[int, ...]
    kind: Literal["P", "E"] | None = None
    capacity: int | None = None
    package: int = 0
    node: int = 0


@dataclass(frozen=True)
class Topology:
    """A machine's cores, the best first; ``pinnable`` is false where threads cannot be bound to CPUs (macOS)."""

    cores: tuple[Core, ...]
    pinnable: bool = True

    @property
    def logical(self) -> int:
        """Number of logical CPUs."""
        return sum(len(core.cpus) for core in self.cores)

    @property
    def smt(self) -> bool:
        """Whether any core shows more than one logical CPU."""
        return any(len(core.cpus) > 1 for core in self.cores)

    @property
    def packages(self) -> int | None:
        """Number of sockets, or None where only counts are known."""
        return len({core.package for core in self.cores}) if self.pinnable else None

    def near(self) -> list[tuple[int, str]]:
        """How many cores share a NUMA node or a socket with the first, where not all do, and what they share."""
        nodes, packages = ({getattr(core, of) for core in self.cores} for of in ("node", "package"))
        found = []
        if len(nodes) > 1:
            found.append((sum(core.node == self.cores[0].node for core in self.cores), "one NUMA node"))
        if len(packages) > 1:
            found.append((sum(core.package == self.cores[0].package for core in self.cores), "one socket"))
        return found

    def count(self, kind: Literal["P", "E"]) -> int | None:
        """Number of cores of a kind, or None where the machine does not tell or has only one kind."""
        known = [core.kind for core in self.cores if core.kind]
        return known.count(kind) if known else None

    def restricted(self, cpus: Collection[int] | None) -> Topology:
        """The same machine with only these logical CPUs; None: all."""
        if cpus is None:
            return self
        left = (replace(core, cpus=tuple(cpu for cpu in core.cpus if cpu in cpus)) for core in self.cores)
        return Topology(tuple(core for core in left if core.cpus), self.pinnable)


def _linux_siblings(cpu: int, root: Path) -> tuple[int, ...]:
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
    text = read_text(folder / "thread_siblings_list") or read_text(folder / "core_cpus_list")
    return tuple(parse_cpu_list(text)) or (cpu,)


def _linux_kinds(cpus: list[int], root: Path) -> tuple[dict[int, Literal["P", "E"]], dict[int, int]]:
    """Kind and capacity by logical CPU. Intel's hybrids name their kinds; ARM gives capacities, 1024 the largest."""
    capacity = {c: read_int(root / f"sys/devices/system/cpu/cpu{c}/cpu_capacity") for c in cpus}
    known = {cpu: value for cpu, value in capacity.items() if value}
    big = parse_cpu_list(read_text(root / "sys/devices/cpu_core/cpus"))
    small = parse_cpu_list(read_text(root / "sys/devices/cpu_atom/cpus"))
    small += parse_cpu_list(read_text(root / "sys/devices/cpu_lowpower/cpus"))
    if not (big and small) and known:
        small = [cpu for cpu, value in known.items() if 2 * value < max(known.values())]
        big = [cpu for cpu in known if cpu not in small] if small else []
    kinds: dict[int, Literal["P", "E"]] = dict.fromkeys(big, "P")
    kinds.update(dict.fromkeys(small, "E"))
    return (kinds if small else {}), known


def _linux_nodes(root: Path) -> dict[int, int]:
    """NUMA node by logical CPU."""
    base = root / "sys/devices/system/node"
    return {
        cpu: number
        for number in parse_cpu_list(read_text(base / "online"))
        for cpu in parse_cpu_list(read_text(base / f"node{number}/cpulist"))
    }


def linux_topology(root: Path = ROOT) -> Topology | None:
    """The topology that a Linux kernel shows below ``root``, or None where it shows none."""
    cpus = parse_cpu_list(read_text(root / "sys/devices/system/cpu/online"))
    if not cpus:
        lines = (read_text(root / "proc/cpuinfo") or "").splitlines()
        cpus = [
            int(n) for line in lines if line.startswith("processor") and (n := line.split(":")[-1].strip()).isdigit()
        ]
    kinds, capacity = _linux_kinds(cpus, root)
    nodes = _linux_nodes(root)
    cores: dict[tuple[int, ...], Core] = {}
    for cpu in cpus:
        siblings = tuple(sorted({cpu} | (set(_linux_siblings(cpu, root)) & set(cpus))))
        package = read_int(root / f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id") or 0
        cores.setdefault(siblings, Core(siblings, kinds.get(cpu), capacity.get(cpu), package, nodes.get(cpu, 0)))
    best_first = sorted(cores.values(), key=lambda c: (c.kind == "E", -(c.capacity or 0), c.package, c.node, c.cpus))
    return Topology(tuple(best_first)) if cores else None


def counted_topology(physical: int, logical: int, performance: int = 0, efficiency: int = 0) -> Topology:
    """A topology of which only counts are known; its CPU numbers mean nothing, so it is not pinnable."""
    each, more = divmod(max(logical, physical), physical)
    cores, first = [], 0
    for index in range(physical):
        width = each + (index < more)
        kind: Literal["P", "E"] | None = None
        if performance and efficiency:
            kind = "P" if index < performance else "E"
        cores.append(Core(tuple(range(first, first + width)), kind))
        first += width
    return Topology(tuple(cores), pinnable=False)


def macos_topology(values: dict[str, str]) -> Topology | None:
    """The topology that ``sysctl hw`` tells, or None where ``values`` is not from macOS."""

    def number(name: str) -> int:
        return int(values[name]) if values.get(name, "").isdigit() else 0

    physical = number("hw.physicalcpu")
    if not physical:
        return None
    performance, efficiency = number("hw.perflevel0.physicalcpu"), number("hw.perflevel1.physicalcpu")
    return counted_topology(physical, number("hw.logicalcpu"), performance, efficiency)


def topology(root: Path = ROOT) -> Topology:
    """This machine's topology; where nothing tells, as many single cores as there are CPUs."""
    found = linux_topology(root) or macos_topology(sysctl())
    if found:
        return found
    logical = os.cpu_count() or 1
    return counted_topology(psutil.cpu_count(logical=False) or logical, logical)


def sweep_threads(machine: Topology, allowed: int) -> tuple[list[int], str]:
    """`thread_list` for a machine given as data: its usable cores and how many CPUs may be busy at once."""
    physical = min(len(machine.cores), allowed)
    counts = {physical} | {1 << k for k in range(physical.bit_length()) if 1 << k <= physical}
    reasons = [f"{physical} physical core{'s' * (physical != 1)}"]
    big, small = machine.count("P"), machine.count("E")
    if big and small:
        counts |= {n for n in (big,) if n <= physical}
        reasons[0] += f" ({min(big, physical)} P, then {max(physical - big, 0)} E)"
    for near, what in machine.near():
        if near < physical:
            counts.add(near)
            reasons.append(f"{near} on {what}")
    if allowed < machine.logical:
        reasons.append(f"a quota of {allowed} of {machine.logical} CPUs")
    if machine.smt and (logical := min(machine.logical, allowed)) > physical:
        counts.add(logical)
        reasons.append(f"{logical} with SMT siblings")
    elif not machine.smt:
        reasons.append("no SMT")
    counts.add(2 * allowed)
    reasons.append(f"{2 * allowed} is oversubscribed on purpose")
    return sorted(counts), "; ".join(reasons)


def thread_list(root: Path = ROOT) -> tuple[list[int], str]:
    """Thread counts that a sweep tries by default, ascending, and one line that says why.

    1, 2, 4, ... up to the usable physical cores, that count itself, the number of P-cores where there are two
    kinds, the cores of one NUMA node and of one socket where there are several, all SMT siblings, and one
    oversubscribed point at the end: twice the CPUs that may be busy at once. Which core a thread gets follows
    `pin_order`: physical cores first, P-cores before E-cores.
    """
    return sweep_threads(topology(root).restricted(affinity()), allowed_cpus(root))


def pin_order(machine: Topology) -> list[int]:
    """Logical CPUs in the order in which threads should take them: a CPU of each core, P first, then siblings."""
    widest = max((len(core.cpus) for core in machine.cores), default=0)
    return [core.cpus[depth] for depth in range(widest) for core in machine.cores if depth < len(core.cpus)]


def pinning(threads: int, root: Path = ROOT) -> list[int] | None:
    """Logical CPUs for a worker of so many threads, best first; all that are allowed where it has more threads.

    Returns:
        None where the platform cannot pin.
    """
    machine = topology(root).restricted(affinity())
    return pin_order(machine)[:threads] if machine.pinnable else None
