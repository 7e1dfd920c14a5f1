"""Versions, how libraries were built, and the environment variables that change what runs.

numba is not imported: versions come from metadata, so that a parent process stays free of a thread pool. What only a
process that has loaded an engine knows is asked by the worker (`engine_builds`).
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cplab import __version__

_ENVIRONMENT = re.compile(
    r"(NUMBA|OMP|KMP|OPENBLAS|MKL|BLIS|GOMP|TBB|MALLOC|VECLIB|CPLAB|GGML|LLAMA|ATEN|DNNL|ONEDNN|TORCH|NPY|LLVM)_"
    r"|LD_PRELOAD$|LD_LIBRARY_PATH$|DYLD_INSERT_LIBRARIES$|DYLD_LIBRARY_PATH$|GLIBC_TUNABLES$"
    r"|PYTHON(MALLOC|HASHSEED|OPTIMIZE|DEVMODE|_GIL|_JIT)$"
)
_PACKAGES = ("numba", "llvmlite", "numpy", "scipy", "llama-cpp-python", "torch")


def software_facts() -> dict[str, Any]:
    """Python, system, the packages that compute, the BLAS below numpy, and the compiler; None where there is none."""
    compiler = next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), None)
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "os": platform.system() or None,
        "kernel": platform.release() or None,
        "libc": " ".join(filter(None, platform.libc_ver())) or None,
        "cplab": __version__,
        **{package.replace("-", "_"): _version(package) for package in _PACKAGES},
        **_numpy_build(),
        "cxx": os.environ.get("CXX") or compiler,
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numpy_build() -> dict[str, Any]:
    """The BLAS that numpy was built with, how that was built, and the vector extensions that numpy found here.

    Asking the loaded library itself would set an OpenMP variable on the way.
    """
    told: Any = np.show_config(mode="dicts")
    built: dict[str, Any] = told if isinstance(told, dict) else {}
    blas = built.get("Build Dependencies", {}).get("blas", {})
    simd = built.get("SIMD Extensions", {})
    return {
        "blas": " ".join(filter(None, (blas.get("name"), blas.get("version")))) or None,
        "blas_build": blas.get("openblas configuration"),
        "numpy_simd": [*simd.get("baseline", []), *simd.get("found", [])] or None,
    }


def engine_builds() -> dict[str, str]:
    """How the engines that this process has loaded were built, by name; empty where it has loaded none."""
    found = {}
    llama, torch = sys.modules.get("llama_cpp"), sys.modules.get("torch")
    if llama is not None and hasattr(llama, "llama_print_system_info"):
        found["llama.cpp"] = llama.llama_print_system_info().decode("utf-8", "replace").strip(" |\n")
    if torch is not None:
        found["torch"] = " ".join(torch.__config__.show().split())
    return found


def without_home(text: str) -> str:
    """Records are published: the user's home folder is written as ~."""
    try:
        home = str(Path.home())
    except RuntimeError:  # a user id without an entry, as in some containers
        return text
    return text.replace(home, "~") if len(home) > 1 else text


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of ``variables`` that change threads, code generation, allocation or which libraries are loaded."""
    return {name: without_home(value) for name, value in sorted(variables.items()) if _ENVIRONMENT.match(name)}
