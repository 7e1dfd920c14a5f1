"""The doctor's checks of environment variables, Python, compiler, cache folder and numba's threading layer."""

from __future__ import annotations

import importlib.metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from bench.verdict import GB, Check, Facts, Verdict, fact

DISK_NEEDED_BYTES = 1 * GB
PYTHONS = ((3, 11), (3, 13))


def _openmp(facts: Facts) -> Verdict | None:
    variables = facts.get("environment")
    if variables is None:
        return None
    allowed = fact(facts, "cpu.allowed") or 1
    limit = variables.get("OMP_THREAD_LIMIT", "")
    if limit.isdigit() and int(limit) < allowed:
        advice = "unset it: a larger team's parts run one after another, and a barrier between them cannot be used"
        return "bad", f"OMP_THREAD_LIMIT={limit} with {allowed} CPUs", advice
    odd = {
        "OMP_DYNAMIC": ("false", "0", ""),
        "OMP_PROC_BIND": ("false", ""),
        "OMP_WAIT_POLICY": ("active", ""),
        "GOMP_CPU_AFFINITY": ("",),
        "KMP_AFFINITY": ("",),
    }
    found = [f"{k}={variables[k]}" for k, usual in odd.items() if variables.get(k, "").lower() not in usual]
    if found:
        return "risky", ", ".join(found), "unset: they change the team's size, its pinning or how long it spins"
    return "good", "nothing unusual set", ""


def _environment(facts: Facts) -> Verdict | None:
    variables = facts.get("environment")
    if variables is None:
        return None
    if variables.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return "bad", "NUMBA_DISABLE_JIT is set", "unset it: kernels need the compiler"
    found = [n for n in variables if n.startswith(("NUMBA_CPU_", "NUMBA_OPT", "LD_PRELOAD", "DYLD_", "MALLOC_"))]
    if found:
        return "risky", ", ".join(found) + " set", "figures hold for this setting only; unset unless it is the question"
    return "good", "nothing unusual set", ""


def _cache(facts: Facts) -> Verdict | None:
    path, writable, free = (fact(facts, f"cache.{n}") for n in ("path", "writable", "free_bytes"))
    if writable is None or free is None:
        return None
    found = f"{path}, {free / GB:.1f} GB free"
    if not writable:
        return (
            "bad",
            f"{path} is not writable",
            "set CPLAB_CACHE to a folder that is: models and kernels are kept there",
        )
    if free < DISK_NEEDED_BYTES:
        return "risky", found, f"free {DISK_NEEDED_BYTES / GB:g} GB or set CPLAB_CACHE to a larger disk"
    return "good", found, ""


def _compiler(facts: Facts) -> Verdict | None:
    software = facts.get("software")
    if software is None:
        return None
    compiler = software.get("cxx")
    return ("good", compiler, "") if compiler else ("risky", "none", "needed to install the extra 'llama', only by it")


def _python(facts: Facts) -> Verdict | None:
    version = fact(facts, "software.python")
    if not version:
        return None
    oldest, newest = PYTHONS
    major, minor = (int(part) for part in version.split(".")[:2])
    if oldest <= (major, minor) <= newest:
        return "good", version, ""
    wanted = " to ".join(f"{major}.{minor}" for major, minor in PYTHONS)
    return "bad", version, f"use Python {wanted}: the pinned numba is tested there"


def _packages(facts: Facts) -> Verdict | None:
    """The compiler of the kernels is numba with llvmlite: a range of them is tested (pyproject.toml pins it)."""
    numba, llvmlite, numpy = (fact(facts, f"software.{name}") for name in ("numba", "llvmlite", "numpy"))
    if not numba:
        return None
    found = f"numba {numba}, llvmlite {llvmlite}, numpy {numpy}"
    wanted = tested_numba()
    if wanted and not wanted.contains(numba, prereleases=True):
        return "risky", found, f"the lab is tested with numba {wanted}: other compilers may give slower code"
    return "good", found, ""


def tested_numba() -> SpecifierSet | None:
    """The range of numba that this lab's package asks for, or None where it is not installed."""
    try:
        wanted = importlib.metadata.requires("cplab") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = (Requirement(line) for line in wanted)
    return next((one.specifier for one in found if one.name == "numba" and one.specifier), None)


def threading_layer(layer: str | None) -> Verdict | None:
    """Grade numba's layer, which only a process that has run a parallel kernel knows; None: not known."""
    if layer is None:
        return None
    if layer in ("omp", "tbb"):
        return "good", layer, ""
    return "risky", layer, "a launch costs many times omp's: install libgomp, set NUMBA_THREADING_LAYER=omp"


SOFTWARE_CHECKS: dict[str, Check] = {
    "OpenMP environment": _openmp,
    "environment": _environment,
    "cache folder": _cache,
    "C++ compiler": _compiler,
    "Python": _python,
    "packages": _packages,
}
