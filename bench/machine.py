"""The machine as plain data: what a figure must be read with, and what `bench.doctor` grades.

Nothing here changes anything, nothing needs more rights than a user has, and what cannot be read is None. numba is
not imported: its version is read from its metadata, so that a parent process stays free of a thread pool.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

import psutil

from bench.clock_and_heat import frequency_facts, heat_facts
from bench.cpu_model import cpu_identity
from bench.cpu_topology import Topology, pinning, thread_list, topology
from bench.energy import energy_facts
from bench.host_load import load_between, load_facts, steal_and_throttle
from bench.memory_facts import memory_facts
from bench.software_facts import environment, software_facts, without_home
from cplab.cachedir import cache_dir
from cplab.cgroup import cpu_quota
from cplab.cpus import affinity, allowed_cpus
from cplab.sysfiles import ROOT, command_output, present, sysctl

__all__ = [
    "environment",
    "facts",
    "git_state",
    "load_between",
    "machine_id",
    "pinning",
    "steal_and_throttle",
    "thread_list",
]

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
        "packages": machine.packages,
        "p_cores": machine.count("P"),
        "e_cores": machine.count("E"),
        "allowed": allowed_cpus(root),
        "affinity": None if mask is None else len(mask),
        "affinity_cpus": None if mask is None else sorted(mask),
        "physical_allowed": len(usable.cores),
        "quota_cpus": cpu_quota(root),
        "pinnable": machine.pinnable,
    }


def cache_facts(folder: Path) -> dict[str, Any]:
    """Whether the lab's cache folder can be written and how much is free there; the folder is not created."""
    nearest = next((path for path in (folder, *folder.absolute().parents) if present(path)), None)
    found: dict[str, Any] = {"path": without_home(str(folder)), "writable": None, "free_bytes": None}
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
        "memory": memory_facts(root),
        "frequency": frequency_facts(root),
        "load": load,
        "temperature": heat_facts(root),
        "energy": energy_facts(root),
        "software": software_facts(),
        "environment": environment(os.environ),
        "git": {"commit": commit, "dirty": dirty},
        "cache": cache_facts(cache_dir()),
    }
