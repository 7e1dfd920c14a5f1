"""Compiled code is loaded, never made twice; a stale kernel cannot run; a smaller CPU gives the same bits."""

from __future__ import annotations

import platform
import re
import shutil
from pathlib import Path

import pytest
from small_models import digest, inputs, oracle_logits

import cplab

X86 = platform.machine() in ("x86_64", "AMD64")
#: What llc calls a Haswell, as far as the kernels care, and no more.
HASWELL = "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe,+cx16"
NEHALEM = "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16"

#: Runs every path of the team and the oracle, and says what numba found in its cache.
RUN = """
import json, sys
from numba.core.dispatcher import Dispatcher
from cplab import jit
from cplab.decoder import Decoder
from cplab.kernels import stages, team, units
from cplab.variant import Trace
from small_models import digest, inputs, oracle_logits, small_model

model = small_model("tiny")
arrays = inputs(model, 2)
digests = [digest(*oracle_logits(model, *arrays))]
for threads, together in ((1, True), (2, True), (2, False)):
    for name in ("f32", "bf16", "f16"):
        decoder = Decoder(model, threads, format=name)
        decoder._together = together
        trace = Trace()
        codes = decoder.predict(*arrays, trace=trace)
        digests.append(digest(codes, trace.logits))
named = {}
for module in [m for n, m in sys.modules.items() if n.startswith("cplab")]:
    for name, value in vars(module).items():
        if isinstance(value, Dispatcher):
            named[f"{value.py_func.__module__}.{value.py_func.__name__}"] = value
print(json.dumps({
    "digests": digests,
    "misses": {name: sum(d.stats.cache_misses.values()) for name, d in named.items()},
    "hits": {name: sum(d.stats.cache_hits.values()) for name, d in named.items()},
    "entries": [units.unit.compiled.cache_hits, stages.run_stage.compiled.cache_hits],
    "folder": str(jit.compiled_dir()),
}))
"""


@pytest.fixture(scope="module")
def expected(tiny):
    return digest(*oracle_logits(tiny, *inputs(tiny, 2)))


@pytest.mark.slow
def test_a_second_process_compiles_nothing(fresh_process, expected, tmp_path):
    first = fresh_process(RUN, CPLAB_CACHE=tmp_path, NUMBA_NUM_THREADS=2)
    second = fresh_process(RUN, CPLAB_CACHE=tmp_path, NUMBA_NUM_THREADS=2)
    frames = [f"cplab.kernels.team.frame_{how}" for how in ("alone", "together", "apart")]
    assert [first["misses"][f] for f in frames] == [1, 1, 1]
    assert first["entries"] == [0, 0]
    assert sum(first["misses"].values()) > 10

    assert {n for n, count in second["misses"].items() if count} == set()
    assert [second["hits"][f] for f in frames] == [1, 1, 1]
    assert second["hits"]["cplab.arithmetic.matvec"] == 1
    assert second["entries"] == [1, 1]
    assert set(first["digests"] + second["digests"]) == {expected}


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_done_without(fresh_process, tmp_path):
    blocker = tmp_path / "a file"
    blocker.touch()
    found = fresh_process(
        """
import json
from small_models import digest, inputs, oracle_logits, projected_model
from cplab import jit
from cplab.decoder import Decoder
from cplab.kernels import compiling, team
from cplab.variant import Trace
steps = compiling.steps()[:3]  # what one thread needs; a parallel region takes longest to compile
compiling.steps = lambda: steps
model = projected_model()
trace = Trace()
codes = Decoder(model, 1, format="bf16").predict(*inputs(model, 2), trace=trace)
same = digest(codes, trace.logits) == digest(*oracle_logits(model, *inputs(model, 2)))
print(json.dumps([str(jit.compiled_dir()), same, team.frame_alone.stats.cache_path]))
""",
        CPLAB_CACHE=blocker / "cache",
    )
    assert found == ["None", True, None]


def test_the_first_compile_says_so_and_later_ones_are_silent(fresh_process, tmp_path):
    source = """
from cplab.kernels import compiling
compiling.steps = lambda: [("nothing much", lambda: None)]
assert compiling.compile_all() >= 0
assert compiling.compile_all() >= 0
"""
    first, second = (fresh_process(source, may_fail=True, CPLAB_CACHE=tmp_path, FORCE_COLOR=1) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0)
    assert "compiling kernels for this CPU" in first.stderr
    assert second.stderr == first.stdout == second.stdout == ""


def test_numbas_own_setting_is_left_alone(fresh_process, tmp_path):
    found = fresh_process(
        """
import json, numba
from numba.core import config
before = config.CACHE_DIR
import cplab.kernels.blocks
print(json.dumps([before, config.CACHE_DIR]))
""",
        CPLAB_CACHE=tmp_path / "ours",
        NUMBA_CACHE_DIR=tmp_path / "theirs",
    )
    assert found == [str(tmp_path / "theirs")] * 2
    assert not (tmp_path / "theirs").exists()


# -- the digest -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """A copy of the package that tests may edit."""
    root = tmp_path_factory.mktemp("copied")
    source = Path(cplab.__file__).parent
    shutil.copytree(source, root / "cplab", ignore=shutil.ignore_patterns("__pycache__", "golden_files"))
    return root


@pytest.fixture
def digest_after(copied, fresh_process):
    """The digest of the copy with one of its files edited, or unchanged for None."""

    def run(file, edit=lambda text: text + "\n# another comment\n", **environment):
        source = f"""
import json, sys
sys.path.insert(0, {str(copied)!r})
from cplab import jit
assert jit.__file__.startswith({str(copied)!r})
print(json.dumps(jit.code_digest()))
"""
        if file is None:
            return fresh_process(source, **environment)
        path = copied / "cplab" / file
        before = path.read_text()
        path.write_text(edit(before))
        assert path.read_text() != before
        try:
            return fresh_process(source, **environment)
        finally:
            path.write_text(before)

    return run


@pytest.mark.parametrize(
    "file",
    [
        "kernels/blocks.py",
        "kernels/vectors.py",
        "kernels/team.py",
        "arithmetic.py",
        "arithmetic_quantised.py",
        "formats/block_packing.py",
        "constants.py",
        "jit.py",
    ],
)
def test_a_changed_kernel_source_is_another_cache(digest_after, file):
    assert digest_after(file) != digest_after(None) == digest_after(None)


def test_a_changed_file_that_is_not_compiled_keeps_the_cache(digest_after):
    assert digest_after("decoder.py") == digest_after(None)


def test_a_changed_format_code_is_another_cache(digest_after):
    assert digest_after("formats/f16.py", lambda text: text.replace("code=2", "code=7")) != digest_after(None)


@pytest.mark.skipif(not X86, reason="these are names of x86 CPUs")
def test_another_target_is_another_cache(digest_after):
    found = {
        digest_after(None),
        digest_after(None, NUMBA_CPU_NAME="haswell", NUMBA_CPU_FEATURES=HASWELL),
        digest_after(None, NUMBA_CPU_NAME="haswell", NUMBA_CPU_FEATURES=HASWELL + ",-fma"),
        digest_after(None, NUMBA_CPU_NAME="nehalem", NUMBA_CPU_FEATURES=NEHALEM),
    }
    assert len(found) == 4


# -- other CPUs -------------------------------------------------------------------------------------------------------

ASSEMBLY = """
import json
from cplab import jit
from cplab.kernels import units
print(json.dumps([units.unit.compiled._library.get_asm_str(), jit.has_feature("avx512f"), jit.has_feature("fma")]))
"""


def registers(assembly):
    return {kind for kind in ("xmm", "ymm", "zmm") if re.search(rf"%{kind}\d", assembly)}


def cut_down(name, features):
    return {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}


@pytest.mark.skipif(not X86, reason="x86 instruction sets")
@pytest.mark.parametrize(
    ("name", "features", "widest"), [("haswell", HASWELL, "ymm"), ("nehalem", NEHALEM, "xmm")], ids=["avx2", "sse4"]
)
def test_a_smaller_cpus_code_holds_no_wider_registers(fresh_process, tmp_path, name, features, widest):
    assembly, avx512, fma = fresh_process(ASSEMBLY, CPLAB_CACHE=tmp_path, **cut_down(name, features))
    assert registers(assembly) == {"xmm", widest}
    assert not avx512
    assert ("vfmadd" in assembly) is fma


@pytest.mark.slow
@pytest.mark.skipif(not X86, reason="x86 instruction sets")
@pytest.mark.parametrize(
    ("name", "features"),
    [
        pytest.param("haswell", HASWELL, id="avx2"),
        pytest.param("nehalem", NEHALEM, id="sse4"),
    ],
)
def test_a_smaller_cpu_gives_the_same_bits(fresh_process, expected, name, features):
    if not native_has(fresh_process, features):
        pytest.skip(f"this CPU cannot run code for {name}")
    found = fresh_process(RUN, NUMBA_NUM_THREADS=2, **cut_down(name, features))
    assert set(found["digests"]) == {expected}


def native_has(fresh_process, features):
    names = [f[1:] for f in features.split(",")]
    return fresh_process(f"import json\nfrom cplab import jit\nprint(json.dumps(jit.has_feature(*{names!r})))")


@pytest.mark.skipif(not X86, reason="x86 instruction sets")
def test_avx512_keeps_accumulators_in_registers(fresh_process, tmp_path):
    if not native_has(fresh_process, "+avx512f"):
        pytest.skip("this CPU has no AVX-512")
    assembly, _, _ = fresh_process(ASSEMBLY, CPLAB_CACHE=tmp_path)
    loops = inner_loops(assembly)
    multiplying = [loop for loop in loops if any("vfmadd" in line and "zmm" in line for line in loop)]
    assert len(multiplying) >= 12  # 3 formats x 4 tile sizes
    spills = [
        line for loop in multiplying for line in loop if re.search(r"v?mov[a-z0-9]*\s+%[xyz]mm\d+, .*\(%rsp\)", line)
    ]
    assert spills == []
    # 4 rows of one token: 8 multiply-adds a turn (2 blocks), each of its own accumulator chain.
    assert any(sum("vfmadd" in line for line in loop) == 8 for loop in multiplying)


def inner_loops(assembly):
    """Runs of instructions from a label to the jump back to it, with no other label between."""
    loops, label, body = [], None, []
    for line in assembly.splitlines():
        found = re.match(r"(\.?L\w+):", line)
        if found:
            label, body = found.group(1), []
        elif label is not None:
            body.append(line)
            if re.match(rf"\s+j\w+\s+{re.escape(label)}\s*$", line):
                loops.append(body)
                label = None
    return loops
