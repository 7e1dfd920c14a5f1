"""The lap timer: every part that occurs has its time, parts sum to the frame, and no bit changes for it."""

from __future__ import annotations

import numpy as np
import pytest
from small_models import inputs, projected_model, with_tensors

from cplab.decoder import Decoder
from cplab.errors import BadInputError, NonFiniteLogitsError
from cplab.kernels import plan as p
from cplab.laps import PARTS, TellsLaps
from variants.numpy_f32 import NumpyPredictor

#: Prints laps, pass and wall times of two frames, and whether logits are the same before, with and after a trace.
PROFILED = """
import json, time
from small_models import digest, inputs, small_model
from cplab.decoder import Decoder
from cplab.kernels import plan as p

decoder = Decoder(small_model({name!r}), {threads}, format={format!r}, recompute={recompute})
decoder._together = {together}
hidden, cb0 = inputs(decoder.model, 2)
found = []
for frame in (slice(0, 1), slice(1, 2)):
    bits = [digest(decoder.predict(hidden[frame], cb0[frame]), decoder._arrays[p.LOGITS])]
    started = time.perf_counter_ns()
    laps = decoder.profile(hidden[frame], cb0[frame])
    wall_ns = time.perf_counter_ns() - started
    bits.append(digest(laps.codes, decoder._arrays[p.LOGITS]))
    bits.append(digest(decoder.predict(hidden[frame], cb0[frame]), decoder._arrays[p.LOGITS]))
    found.append([laps.ns.tolist(), laps.pass_ns.tolist(), wall_ns, bits])
print(json.dumps([found, decoder.runs_in_one_region]))
"""

CASES = [
    (name, format_name, recompute, threads, together)
    for name, format_name, recompute in (
        ("tiny", "bf16", False), ("tiny", "q8_0", False), ("projected", "q4_0", False), ("wide", "q6_k", False),
        ("projected", "f32", True),
    )
    for threads, together in ((1, True), (2, True), (2, False), (3, True))
]  # fmt: skip


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(str(value) for value in case))
def profiled(request, fresh_process):
    """A case and, for each of two frames, laps ``[members, passes, parts]``, pass times, wall time, three digests."""
    name, format_name, recompute, threads, together = request.param
    source = PROFILED.format(
        name=name, format=format_name, recompute=recompute, threads=threads, together=together
    )  # fmt: skip
    found, in_one_region = fresh_process(source, NUMBA_NUM_THREADS=threads)
    assert together or not in_one_region
    return request.param, [(np.array(ns), np.array(passes), wall, bits) for ns, passes, wall, bits in found]


def test_tracing_changes_no_bit(profiled):
    _, frames = profiled
    for *_, bits in frames:
        assert len(set(bits)) == 1


def test_every_part_that_occurs_has_its_time(profiled):
    (_, format_name, _, threads, _), frames = profiled
    for ns, *_ in frames:
        assert ns.shape[0] == threads
        assert (ns >= 0).all()
        of_team = dict(zip(PARTS, ns.sum(axis=0).T, strict=True))  # [passes] each
        is_quantised = format_name.startswith("q")
        assert (of_team.pop("quantise") > 0).all() == is_quantised
        assert of_team.pop("wait").sum() > 0
        assert all((times > 0).all() for times in of_team.values()), of_team
        if not is_quantised:
            assert ns[:, :, PARTS.index("quantise")].sum() == 0


def test_the_parts_of_every_member_sum_to_the_frame(profiled):
    _, frames = profiled
    for ns, pass_ns, wall_ns, _ in frames:
        for member in ns.sum(axis=(1, 2)):
            assert pass_ns.sum() <= member <= wall_ns


def test_a_pass_holds_its_own_parts():
    """On one thread a pass's parts are its time by the other clock, give or take the choice of the last code."""
    decoder = Decoder(projected_model(), 1, format="bf16", recompute=True)
    shares = []
    for _ in range(20):  # whatever else runs on this machine, one frame of twenty is left alone
        laps = decoder.profile(*inputs(decoder.model, 1))
        shares.append(laps.ns.sum(axis=(0, 2)) / laps.pass_ns)
    best = min(shares, key=lambda share: np.abs(share - 1).max())
    np.testing.assert_allclose(best, 1, atol=0.05)


@pytest.mark.parametrize("format_name", ["bf16", "q8_0"])
def test_the_bytes_of_parts_sum_to_the_bytes_of_a_frame(format_name):
    decoder = Decoder(projected_model(), 1, format=format_name)
    found = dict(zip(PARTS, decoder.profile(*inputs(decoder.model, 1)).part_bytes, strict=True))
    assert sum(found.values()) == decoder.bytes_per_frame
    assert {name for name, count in found.items() if count} == {"input", "qkv", "o", "gate_up", "down", "head"}
    spec = decoder.model.spec
    if format_name == "bf16":
        assert found["gate_up"] == spec.passes * spec.layers * 2 * spec.intermediate * spec.hidden * 2
        assert found["head"] == spec.passes * spec.vocab * spec.hidden * 2


def test_one_frame_at_a_time():
    decoder = Decoder(projected_model(), 1, format="bf16")
    with pytest.raises(BadInputError, match="one frame is profiled at a time; hidden has 2"):
        decoder.profile(*inputs(decoder.model, 2))


def test_an_error_leaves_no_trace_on():
    model = projected_model()
    bad = with_tensors(model, lm_head__0__weight=np.full((model.spec.vocab, model.spec.hidden), np.nan, np.float32))
    decoder = Decoder(bad, 1, format="f32")
    with pytest.raises(NonFiniteLogitsError):
        decoder.profile(*inputs(model, 1))
    assert decoder._plan[p.TRACE] == 0


def test_who_can_tell(tiny):
    assert isinstance(Decoder(tiny, 1, format="bf16"), TellsLaps)
    assert not isinstance(NumpyPredictor(tiny, 1), TellsLaps)
