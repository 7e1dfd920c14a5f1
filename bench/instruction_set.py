"""Which vector instructions the lab's kernels are made of, by name, and narrower sets that this CPU has too.

What counts is numba's target (`cplab.jit.has_feature`), not what the CPU lists: NUMBA_CPU_NAME and
NUMBA_CPU_FEATURES, set together before numba is imported, cut it down.
"""

from __future__ import annotations

import platform
from typing import NamedTuple

#: LLVM's names of the features that the kernels choose their code by.
CODE_FEATURES = (
    *("avx512f", "avx512vnni", "avxvnni", "avx2", "avx", "fma", "f16c", "ssse3"),
    *("neon", "dotprod"),
)
_SSE = "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16"
_AVX2 = f"{_SSE},+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe"
_AVX512 = f"{_AVX2},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"


class Level(NamedTuple):
    """A cut-down instruction set: what both of numba's variables must say; empty for the CPU's own."""

    cpu: str = ""
    features: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """The variables."""
        return {"NUMBA_CPU_NAME": self.cpu, "NUMBA_CPU_FEATURES": self.features} if self.cpu else {}


#: By the name of the float32 code that they lead to. Below AVX2 there is no fma, and nothing worth a roof.
LEVELS = {"AVX2": Level("haswell", _AVX2), "AVX-512": Level("skylake-avx512", _AVX512)}


def has_feature(*names: str) -> bool:
    """Whether numba's target has LLVM features; numba is imported no earlier, so that a parent stays free of it."""
    from cplab import jit

    return jit.has_feature(*names)


def instruction_set() -> dict[str, str]:
    """Names of the code that kernels get on numba's target: ``float32`` for fma, ``int8`` for sums of products."""
    return {"float32": _float32(), "int8": _int8()}


def narrower_levels() -> list[str]:
    """Names of `LEVELS` that this CPU runs and that give other code than its own target does, the widest first."""
    own = instruction_set()
    found = []
    if has_feature("avx512f") and own["int8"] != _MADDUBS_256:
        found.append("AVX-512")
    if has_feature("avx2", "fma") and (own["float32"], own["int8"]) != ("AVX2", _MADDUBS_256):
        found.append("AVX2")
    return found


_MADDUBS_256, _MADDUBS_128 = "pmaddubsw, 256 bits", "pmaddubsw, 128 bits"


def _x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64", "i686")


def _float32() -> str:
    if not _x86():
        return "NEON" if has_feature("neon") else "plain"
    if has_feature("avx512f"):
        return "AVX-512"
    if has_feature("avx2", "fma"):
        return "AVX2"
    wide = "AVX" if has_feature("avx") else "SSE"
    return wide if has_feature("fma") else f"{wide} without fma"


def _int8() -> str:
    if not _x86():
        return "sdot" if has_feature("dotprod") else "smull" if has_feature("neon") else "plain"
    if has_feature("avx512vnni", "avx512f"):
        return "AVX-512 VNNI"
    if has_feature("avxvnni"):
        return "AVX-VNNI"
    if has_feature("avx2"):
        return _MADDUBS_256
    return _MADDUBS_128 if has_feature("ssse3") else "plain"
