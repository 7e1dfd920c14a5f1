"""Memory: how much, on which NUMA nodes, with which pages; from /proc and /sys, or psutil where there is no /proc."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psutil

from cplab.cgroup import memory_limit_bytes
from cplab.sysfiles import ROOT, parse_cpu_list, parse_pairs, parse_size, read_int, read_text


def memory_facts(root: Path = ROOT) -> dict[str, Any]:
    """Sizes in bytes, NUMA nodes with their CPUs and memory, and how huge pages are granted; None: not told."""
    sizes = _meminfo(read_text(root / "proc/meminfo"))
    counted = None if sizes.get("MemAvailable") else psutil.virtual_memory()
    huge = root / "sys/kernel/mm/transparent_hugepage"
    return {
        "total_bytes": counted.total if counted else sizes.get("MemTotal"),
        "available_bytes": counted.available if counted else sizes.get("MemAvailable"),
        "swap_used_bytes": _used_swap(sizes),
        "limit_bytes": memory_limit_bytes(root),
        "numa_nodes": len(parse_cpu_list(read_text(root / "sys/devices/system/node/online"))) or None,
        "numa": _numa(root),
        "numa_balancing": _switch(read_int(root / "proc/sys/kernel/numa_balancing")),
        "transparent_huge_pages": _chosen(huge / "enabled"),
        "huge_page_defrag": _chosen(huge / "defrag"),
        "reserved_huge_pages": _count(read_text(root / "proc/meminfo"), "HugePages_Total"),
    }


def own_huge_bytes(root: Path = ROOT) -> int | None:
    """How much of this process's memory lies on transparent huge pages, or None where the kernel does not tell."""
    return _meminfo(read_text(root / "proc/self/smaps_rollup")).get("AnonHugePages")


def _meminfo(text: str | None) -> dict[str, int | None]:
    """Lines of ``name: 123 kB`` as bytes; lines without a unit are counts and left out."""
    told = parse_pairs(text, ":")
    return {name: parse_size(value[:-3] + "K") for name, value in told.items() if value.endswith(" kB")}


def _count(text: str | None, name: str) -> int | None:
    value = parse_pairs(text, ":").get(name, "")
    return int(value) if value.isdigit() else None


def _used_swap(sizes: dict[str, int | None]) -> int | None:
    total, free = sizes.get("SwapTotal"), sizes.get("SwapFree")
    return None if total is None or free is None else max(0, total - free)


def _switch(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _chosen(path: Path) -> str | None:
    """The word in brackets: ``always [madvise] never``."""
    found = re.search(r"\[([\w+]+)\]", read_text(path) or "")
    return found.group(1) if found else None


def _numa(root: Path) -> list[dict[str, Any]] | None:
    """CPUs (the kernel's list) and memory of each node."""
    base = root / "sys/devices/system/node"
    nodes = []
    for number in parse_cpu_list(read_text(base / "online")):
        told = re.search(r"MemTotal:\s*(\d+) kB", read_text(base / f"node{number}/meminfo") or "")
        cpus = read_text(base / f"node{number}/cpulist")
        nodes.append({"node": number, "cpus": cpus, "total_bytes": int(told.group(1)) << 10 if told else None})
    return nodes or None
