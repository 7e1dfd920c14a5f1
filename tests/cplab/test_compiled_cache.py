"""Compiled code is loaded, never made twice, and a stale kernel cannot run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from instruction_sets import HASWELL, NEHALEM, X86
from small_models import digest, inputs, oracle_logits

import cplab

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
steps = compiling.steps()[:4]  # what one thread needs; a parallel region takes longest to compile
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
