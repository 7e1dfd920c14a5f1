"""Names of the code that kernels get, on targets that are not this machine's."""

import pytest

from bench import instruction_set
from bench.instruction_set import narrower_levels
from cplab.jit import targeting

AVX2 = "+ssse3,+avx,+avx2,+fma,+f16c"
AVX512 = f"{AVX2},+avx512f,+avx512bw,+avx512vl"


@pytest.mark.parametrize(
    ("cpu", "features", "float32", "int8", "narrower"),
    [
        ("znver3", f"{AVX2},-avx512f,-avxvnni", "AVX2", "pmaddubsw, 256 bits", []),
        ("alderlake", f"{AVX2},+avxvnni", "AVX2", "AVX-VNNI", ["AVX2"]),
        ("skylake-avx512", AVX512, "AVX-512", "pmaddubsw, 256 bits", ["AVX2"]),
        ("znver4", f"{AVX512},+avx512vnni", "AVX-512", "AVX-512 VNNI", ["AVX-512", "AVX2"]),
        ("nehalem", "+ssse3", "SSE without fma", "pmaddubsw, 128 bits", []),
        ("bdver2", "+ssse3,+avx,+fma", "AVX", "pmaddubsw, 128 bits", []),
    ],
)
def test_x86(monkeypatch, cpu, features, float32, int8, narrower):
    monkeypatch.setattr(instruction_set.platform, "machine", lambda: "x86_64")
    with targeting(cpu, "+sse2," + features):
        assert instruction_set.instruction_set() == {"float32": float32, "int8": int8}
        assert narrower_levels() == narrower


@pytest.mark.parametrize(("cpu", "int8"), [("cortex-a72", "smull"), ("neoverse-n1", "sdot")])
def test_arm(monkeypatch, cpu, int8):
    monkeypatch.setattr(instruction_set.platform, "machine", lambda: "aarch64")
    with targeting(cpu, "+neon"):
        assert instruction_set.instruction_set() == {"float32": "NEON", "int8": int8}
        assert narrower_levels() == []
