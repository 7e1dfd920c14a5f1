"""The thread team is right under any threading layer, and says what it cannot do."""

from __future__ import annotations

import json
import os
import sys

import numba
import pytest
from small_models import digest, inputs, oracle_logits

from cplab import cp_load
from cplab.cpus import allowed_cpus
from cplab.decoder import Decoder
from cplab.errors import BadInputError, ThreadsUnavailableError

POOL = numba.config.NUMBA_NUM_THREADS

#: Prints whether the team ran in one region, the digest of 3 frames (twice), the layer, and numba's setting afterwards.
TWO_THREADS = """
import json, numba
from small_models import digest, inputs, small_model
from cplab.decoder import Decoder
from cplab.variant import Trace
model = small_model("tiny")
decoder = Decoder(model, 2, format="bf16")
digests = []
for _ in range(2):
    trace = Trace()
    codes = decoder.predict(*inputs(model, 3), trace=trace)
    digests.append(digest(codes, trace.logits))
print(json.dumps([decoder.runs_in_one_region, digests, numba.threading_layer(), numba.get_num_threads()]))
"""


@pytest.fixture(scope="module")
def expected(tiny):
    return digest(*oracle_logits(tiny, *inputs(tiny, 3)))


@pytest.fixture(scope="module")
def openmp(fresh_process):
    """Skip where numba has no OpenMP layer here."""
    result = fresh_process(TWO_THREADS, may_fail=True, NUMBA_NUM_THREADS=2, NUMBA_THREADING_LAYER="omp")
    if "No threading layer could be loaded" in result.stderr:
        pytest.skip("no OpenMP runtime for numba on this machine")


@pytest.mark.usefixtures("openmp")
@pytest.mark.parametrize(
    ("setting", "together"),
    [
        ({}, True),
        ({"OMP_THREAD_LIMIT": "1"}, False),
        ({"OMP_DYNAMIC": "true"}, None),  # the runtime may grant two threads or one
        ({"OMP_NUM_THREADS": "1"}, None),
        ({"OMP_WAIT_POLICY": "passive"}, True),
    ],
    ids=["default", "OMP_THREAD_LIMIT", "OMP_DYNAMIC", "OMP_NUM_THREADS", "OMP_WAIT_POLICY"],
)
def test_openmp_may_run_members_one_after_another(fresh_process, expected, setting, together):
    ran_together, digests, layer, threads = fresh_process(
        TWO_THREADS, timeout=60, NUMBA_NUM_THREADS=2, NUMBA_THREADING_LAYER="omp", **setting
    )
    assert digests == [expected, expected]
    assert layer == "omp"
    assert threads == 2
    if together is not None:
        assert ran_together is together


def test_the_workqueue_layer_gives_the_same_bits(fresh_process, expected):
    _, digests, layer, _ = fresh_process(
        TWO_THREADS, timeout=60, NUMBA_NUM_THREADS=2, NUMBA_THREADING_LAYER="workqueue"
    )
    assert digests == [expected, expected]
    assert layer == "workqueue"


def test_the_tbb_layer_gives_the_same_bits(fresh_process, expected):
    """tbb promises no threads at all: whether members run together is its own affair, the bits are not."""
    tbb = {"NUMBA_THREADING_LAYER": "tbb", "LD_LIBRARY_PATH": f"{sys.prefix}/lib"}  # where its wheel puts the library
    result = fresh_process(TWO_THREADS, may_fail=True, timeout=60, NUMBA_NUM_THREADS=2, **tbb)
    if "No threading layer could be loaded" in result.stderr:
        pytest.skip("no tbb for numba on this machine")
    _, digests, layer, _ = json.loads(result.stdout.strip().splitlines()[-1])
    assert digests == [expected, expected]
    assert layer == "tbb"


def test_a_launch_a_stage_gives_the_same_bits(fresh_process, expected):
    source = TWO_THREADS.replace("digests = []", "decoder._together = False; digests = []")
    together, digests, _, _ = fresh_process(source, timeout=60, NUMBA_NUM_THREADS=2)
    assert digests == [expected, expected]
    assert together is False


def test_more_threads_than_units_of_rows(fresh_process, expected):
    source = TWO_THREADS.replace("model, 2,", "model, 13,")
    _, digests, _, _ = fresh_process(source, timeout=120, NUMBA_NUM_THREADS=13)
    assert digests == [expected, expected]


def test_the_callers_own_thread_setting_is_left_alone(fresh_process):
    found = fresh_process(
        """
import json, numba
from small_models import inputs, small_model
from cplab.decoder import Decoder
numba.set_num_threads(1)
model = small_model("tiny")
Decoder(model, 3, format="f16").predict(*inputs(model, 1))
print(json.dumps(numba.get_num_threads()))
""",
        NUMBA_NUM_THREADS=3,
    )
    assert found == 1


def test_teams_of_different_sizes_take_turns(fresh_process, expected):
    found = fresh_process(
        """
import json
from small_models import digest, inputs, small_model
from cplab.decoder import Decoder
from cplab.variant import Trace
model = small_model("tiny")
decoders = [Decoder(model, n, format="bf16") for n in (1, 3, 2)]
found = []
for decoder in decoders * 3:
    trace = Trace()
    codes = decoder.predict(*inputs(model, 3), trace=trace)
    found.append(digest(codes, trace.logits))
print(json.dumps(found))
""",
        NUMBA_NUM_THREADS=3,
    )
    assert set(found) == {expected}


# -- fork -------------------------------------------------------------------------------------------------------------

FORK = """
import json, os
from small_models import inputs, small_model
from cplab.decoder import Decoder
model = small_model("tiny")
arrays = inputs(model, 2)
decoder = Decoder(model, {threads}, format="bf16")
before = decoder.predict(*arrays).tolist()
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    try:
        {in_child}
        said = "nothing was raised"
    except BaseException as error:
        said = type(error).__name__ + ": " + str(error)
    os.write(writer, said.encode())
    os._exit(0)
os.close(writer)
said = b""
while part := os.read(reader, 4096):
    said += part
status = os.waitpid(child, 0)[1]
print(json.dumps([said.decode(), status, decoder.predict(*arrays).tolist() == before]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_predictor_refuses_to_work_in_a_fork_and_goes_on_in_the_parent(fresh_process, threads):
    source = FORK.format(threads=threads, in_child="decoder.predict(*arrays)")
    said, status, parent_is_well = fresh_process(source, timeout=60, NUMBA_NUM_THREADS=2)
    assert said.startswith("ForkedTeamError: ")
    assert "\n" not in said
    assert status == 0
    assert parent_is_well


@pytest.mark.skipif(sys.platform != "linux", reason="GNU OpenMP is the layer that cannot be used after a fork")
@pytest.mark.usefixtures("openmp")
def test_the_advice_for_a_fork_works_or_raises(fresh_process):
    source = FORK.format(threads=2, in_child="Decoder(model, 2, format='bf16').predict(*arrays)")
    said, status, parent_is_well = fresh_process(source, timeout=60, NUMBA_NUM_THREADS=2, NUMBA_THREADING_LAYER="omp")
    assert parent_is_well
    assert said == "nothing was raised" or said.startswith("ForkedTeamError")
    assert status == 0


# -- how many threads -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [0, -1])
def test_no_threads_is_a_bad_input(tiny, threads):
    with pytest.raises(BadInputError, match=f"threads is {threads}"):
        Decoder(tiny, threads, format="bf16")
    for variant in ("kv_bf16", "numpy_f32"):
        with pytest.raises(BadInputError, match=f"threads is {threads}"):
            cp_load("synthetic:tiny", variant, threads)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_more_threads_than_the_pool_says_which_variable_to_set(tiny):
    with pytest.raises(ThreadsUnavailableError, match=f"NUMBA_NUM_THREADS={POOL + 1}"):
        Decoder(tiny, POOL + 1, format="bf16")
    with pytest.raises(ThreadsUnavailableError, match=f"NUMBA_NUM_THREADS={POOL + 1}"):
        cp_load("synthetic:tiny", "kv_bf16", POOL + 1)


def test_more_threads_than_cpus_is_a_warning_and_works(fresh_process):
    source = """
import json, warnings
from cplab import cp_load
from cplab.cpus import allowed_cpus
from small_models import inputs, small_model
arrays = inputs(small_model("tiny"), 1)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    cp_load("synthetic:tiny", "kv_bf16", allowed_cpus()).predict(*arrays)
    quiet = [str(w.message) for w in caught if "threads" in str(w.message)]
    codes = cp_load("synthetic:tiny", "kv_bf16", allowed_cpus() + 1).predict(*arrays)
    loud = [w.category.__name__ + " " + str(w.message) for w in caught if "CPUs" in str(w.message)]
print(json.dumps([quiet, loud, codes.shape]))
"""
    quiet, loud, shape = fresh_process(source, NUMBA_NUM_THREADS=allowed_cpus() + 1)
    assert quiet == []
    assert len(loud) == 1
    assert loud[0].startswith(f"RuntimeWarning {allowed_cpus() + 1} threads on {allowed_cpus()} CPUs")
    assert shape == [1, 2]


def test_the_default_team_is_the_cpus_allowed(fresh_process):
    found = fresh_process("""
import json
from cplab import cp_load
from cplab.cpus import allowed_cpus
print(json.dumps([cp_load("synthetic:tiny").threads, allowed_cpus()]))
""")
    assert found[0] == found[1]


def test_allowed_cpus_follows_affinity(fresh_process):
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("no affinity on this platform")
    found = fresh_process("""
import json, os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from cplab.cpus import affinity, allowed_cpus
print(json.dumps([allowed_cpus(), len(affinity())]))
""")
    assert found == [1, 1]
