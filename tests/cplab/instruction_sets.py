"""Targets that kernels are compiled for: what numba's two variables say, and what must be in the code."""

from __future__ import annotations

import platform
from typing import NamedTuple

X86 = platform.machine() in ("x86_64", "AMD64")

_SSE = "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16"
#: What llc calls these CPUs, as far as the kernels care, and no more.
NEHALEM = _SSE
HASWELL = f"{_SSE},+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe"
SKYLAKE = f"{HASWELL},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"


class Target(NamedTuple):
    """A cut-down instruction set.

    Attributes:
        cpu: NUMBA_CPU_NAME.
        features: NUMBA_CPU_FEATURES.
        registers: vector registers that the matrix kernels may name, the widest of which they must.
        present: instructions that must be there.
        absent: instructions that must not be.
    """

    cpu: str
    features: str
    registers: tuple[str, ...]
    present: tuple[str, ...]
    absent: tuple[str, ...]

    @property
    def environment(self) -> dict[str, str]:
        """Both of numba's variables; empty for the host's own."""
        return {"NUMBA_CPU_NAME": self.cpu, "NUMBA_CPU_FEATURES": self.features} if self.cpu else {}


TARGETS = {
    "x86-64-v2": Target("nehalem", NEHALEM, ("xmm",), ("pmaddubsw",), ("vfmadd", "vpdpbusd", "vcvtph2ps")),
    "x86-64-v3": Target("haswell", HASWELL, ("xmm", "ymm"), ("vfmadd", "vpmaddubsw", "vcvtph2ps"), ("vpdpbusd",)),
    "x86-64-v4": Target("skylake-avx512", SKYLAKE, ("xmm", "ymm", "zmm"), ("vfmadd", "vpmaddubsw"), ("vpdpbusd",)),
}
