"""The machine as plain data: what a figure must be read with, and what `bench.doctor` grades.

Nothing here changes anything, nothing needs more rights than a user has, and what cannot be read is None. numba is
not imported: its version is read from its metadata, so that a parent process stays free of a thread pool.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bench.cpu_model import cpu_identity
from bench.cpu_topology import Topology, pinning, thread_list, topology
from bench.host_load import load_between, load_facts, steal_and_throttle
from cplab import __version__
from cplab.cachedir import cache_dir
from cplab.cgroup import cpu_quota, memory_limit_bytes
from cplab.cpus import affinity, allowed_cpus
from cplab.sysfiles import (
    ROOT,
    command_output,
    parse_cpu_list,
    parse_pairs,
    parse_size,
    present,
    read_int,
    read_text,
    sysctl,
)

__all__ = [
    "facts",
    "git_state",
    "load_between",
    "machine_id",
    "pinning",
    "steal_and_throttle",
    "thread_list",
]

_ENVIRONMENT = re.compile(
    r"(NUMBA|OMP|KMP|OPENBLAS|MKL|GOMP|MALLOC|VECLIB|CPLAB)_|LD_PRELOAD$|DYLD_INSERT_LIBRARIES$|GLIBC_TUNABLES$"
)
_PACKAGES = ("numba", "llvmlite", "numpy", "llama-cpp-python", "torch")
_FREQUENCIES = {"current_mhz": "scaling_cur_freq", "min_mhz": "cpuinfo_min_freq", "max_mhz": "cpuinfo_max_freq"}
_CPU_SENSORS = re.compile(r"cpu|x86_pkg|coretemp|k10temp|zenpower|soc", re.I)
_NOISE_WORDS = re.compile(
    r"\((?:r|tm)\)|@.*|\b\d+(?:th|nd|rd|st) gen\b|\b\d+-core\b|\b(?:processor|cpu|with .*)\b", re.I
)


def _sysctl_where_needed(root: Path) -> dict[str, str]:
    return {} if present(root / "proc/cpuinfo") else sysctl()


def _cpu(machine: Topology, root: Path) -> dict[str, Any]:
    mask = affinity()
    usable = machine.restricted(mask)
    return {
        **cpu_identity(root, _sysctl_where_needed(root)),
        "physical": len(machine.cores),
        "logical": machine.logical,
        "smt": machine.smt,
        "p_cores": machine.count("P"),
        "e_cores": machine.count("E"),
        "allowed": allowed_cpus(root),
        "affinity": None if mask is None else len(mask),
        "physical_allowed": len(usable.cores),
        "quota_cpus": cpu_quota(root),
        "pinnable": machine.pinnable,
    }


def _memory(root: Path) -> dict[str, Any]:
    told = parse_pairs(read_text(root / "proc/meminfo"), ":")
    sizes = {name: parse_size(value.removesuffix(" kB") + "K") for name, value in told.items()}
    counted = None if sizes.get("MemAvailable") else psutil.virtual_memory()
    chosen = re.search(r"\[(\w+)\]", read_text(root / "sys/kernel/mm/transparent_hugepage/enabled") or "")
    return {
        "total_bytes": counted.total if counted else sizes.get("MemTotal"),
        "available_bytes": counted.available if counted else sizes.get("MemAvailable"),
        "limit_bytes": memory_limit_bytes(root),
        "numa_nodes": len(parse_cpu_list(read_text(root / "sys/devices/system/node/online"))) or None,
        "transparent_huge_pages": chosen.group(1) if chosen else None,
    }


def _frequency(root: Path) -> dict[str, Any]:
    base = root / "sys/devices/system/cpu"
    policies = sorted(base.glob("cpufreq/policy*"), key=lambda path: (len(path.name), path.name))
    # Some drivers wake a CPU to answer; eight policies tell enough, and every kind of core has one on hybrids.
    found: dict[str, Any] = {}
    for ours, theirs in _FREQUENCIES.items():
        values_khz = [value for policy in policies[:8] if (value := read_int(policy / theirs))]
        found[ours] = (min if ours == "min_mhz" else max)(values_khz) / 1000 if values_khz else None
    if found["current_mhz"] is None:
        shown = re.search(r"^cpu MHz\s*:\s*([\d.]+)", read_text(root / "proc/cpuinfo") or "", re.M)
        found["current_mhz"] = float(shown.group(1)) if shown else None
    for name in ("governor", "driver"):
        kinds = {text for policy in policies if (text := read_text(policy / f"scaling_{name}"))}
        found[name] = "+".join(sorted(kinds)) or None
    boost, no_turbo = read_int(base / "cpufreq/boost"), read_int(base / "intel_pstate/no_turbo")
    found["boost"] = bool(boost) if boost is not None else None if no_turbo is None else not no_turbo
    return found


def _temperature(root: Path) -> dict[str, float | None]:
    """The hottest of the sensors whose name is a CPU's."""
    readings = [
        value
        for zone in root.glob("sys/class/thermal/thermal_zone*")
        if _CPU_SENSORS.search(read_text(zone / "type") or "") and (value := read_int(zone / "temp"))
    ]
    for monitor in root.glob("sys/class/hwmon/hwmon*"):
        if _CPU_SENSORS.search(read_text(monitor / "name") or ""):
            readings += [value for sensor in monitor.glob("temp*_input") if (value := read_int(sensor))]
    plausible = [value / 1000 for value in readings if 0 < value < 150_000]
    return {"cpu_celsius": max(plausible, default=None)}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _blas() -> str | None:
    """The BLAS that numpy was built with; asking the loaded library itself would set an OpenMP variable on the way."""
    built: Any = np.show_config(mode="dicts")
    blas = built.get("Build Dependencies", {}).get("blas", {}) if isinstance(built, dict) else {}
    return " ".join(filter(None, (blas.get("name"), blas.get("version")))) or None


def _software() -> dict[str, Any]:
    compiler = next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), None)
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "os": platform.system() or None,
        "kernel": platform.release() or None,
        "libc": " ".join(filter(None, platform.libc_ver())) or None,
        "cplab": __version__,
        **{package.replace("-", "_"): _version(package) for package in _PACKAGES},
        "blas": _blas(),
        "cxx": os.environ.get("CXX") or compiler,
    }


def _without_home(text: str) -> str:
    """Records are published: the user's home folder is written as ~."""
    try:
        home = str(Path.home())
    except RuntimeError:  # a user id without an entry, as in some containers
        return text
    return text.replace(home, "~") if len(home) > 1 else text


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of ``variables`` that change threads, code generation, allocation or which libraries are loaded."""
    return {name: _without_home(value) for name, value in sorted(variables.items()) if _ENVIRONMENT.match(name)}


def cache_facts(folder: Path) -> dict[str, Any]:
    """Whether the lab's cache folder can be written and how much is free there; the folder is not created."""
    nearest = next((path for path in (folder, *folder.absolute().parents) if present(path)), None)
    found: dict[str, Any] = {"path": _without_home(str(folder)), "writable": None, "free_bytes": None}
    if nearest is not None:
        found["writable"] = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
        with contextlib.suppress(OSError):
            found["free_bytes"] = psutil.disk_usage(str(nearest)).free
    return found


def git_state(cwd: Path) -> tuple[str, bool]:
    """The short commit that ``cwd`` is at and whether anything differs from it, new files included.

    Returns:
        ``("nogit", False)`` outside a repository, before a first commit, or without git.
    """
    quiet = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    text = command_output("git", "status", "--porcelain=v2", "--branch", cwd=cwd, env=quiet) or ""
    commit = re.search(r"^# branch\.oid ([0-9a-f]{9})", text, re.M)
    if not commit:
        return "nogit", False
    return commit.group(1), any(not line.startswith("#") for line in text.splitlines())


def slug(model: str | None, arch: str | None, cores: int) -> str:
    """`machine_id` for a machine given as data; of several kinds of core the first names it."""
    first = re.sub(r"^\d+x ", "", (model or arch or "machine").split(" + ")[0])
    words = re.sub(r"[^a-z0-9]+", "-", _NOISE_WORDS.sub(" ", first).lower()).strip("-") or "machine"
    tail = f"-{cores}c"
    return words[: 40 - len(tail)].rstrip("-") + tail


def machine_id(root: Path = ROOT) -> str:
    """A name for this machine's folder, ``intel-xeon-2c``: CPU model and physical cores, [a-z0-9-], at most 40.

    Affinity and quotas do not enter it: they are facts of a run, not of a machine.
    """
    identity = cpu_identity(root, _sysctl_where_needed(root))
    return slug(identity["model"], identity["arch"], len(topology(root).cores))


def facts(cwd: Path, root: Path = ROOT) -> dict[str, Any]:
    """Everything that a reader of this machine's figures may ask for, as nested plain data; None: not readable.

    Takes about a third of a second, 0.1 s of it a sleeping sample of what else runs. Call it in the parent of
    measuring processes, before they start.

    Args:
        cwd: the folder whose git state is recorded.
        root: where /proc and /sys are found; tests put a made-up machine there.
    """
    load = load_facts(root)  # first: the sample must not see this function's own work
    commit, dirty = git_state(cwd)
    return {
        "cpu": _cpu(topology(root), root),
        "memory": _memory(root),
        "frequency": _frequency(root),
        "load": load,
        "temperature": _temperature(root),
        "software": _software(),
        "environment": environment(os.environ),
        "git": {"commit": commit, "dirty": dirty},
        "cache": cache_facts(cache_dir()),
    }
