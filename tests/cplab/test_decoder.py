"""The decoder's logits are the oracle's, bit for bit: any format, team, batch, cache, and caller's float mode."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numba
import numpy as np
import pytest
from decoder_cases import BATCHES
from small_models import (
    arithmetic_of,
    arithmetics_of,
    digest,
    forced_codes,
    formats_of,
    inputs,
    oracle_logits,
    projected_model,
    same_bits,
    small_model,
    with_tensors,
)

from cplab import arithmetic as law
from cplab.decoder import Decoder
from cplab.errors import BadInputError, NonFiniteActivationError, NonFiniteLogitsError
from cplab.formats import FLOAT_FORMATS, FORMATS
from cplab.kernels import machine
from cplab.model import Model
from cplab.oracle import Oracle
from cplab.variant import CodePredictor, Trace

POOL = numba.config.NUMBA_NUM_THREADS
F = np.float32


def predict(decoder, hidden, cb0, forced=None):
    trace = Trace()
    codes = decoder.predict(hidden, cb0, forced=forced, trace=trace)
    return codes, trace.logits


# -- equal to the oracle ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["tiny", "projected", "wide"])
def judged(request):
    """A model's name and the oracles' digests by (arithmetic, batch, mode)."""
    model = small_model(request.param)
    hidden, cb0 = inputs(model, max(BATCHES))
    expected = {}
    for arithmetic in arithmetics_of(model):
        for batch in BATCHES:
            for mode, forced in (("free", None), ("forced", forced_codes(model, batch))):
                found = oracle_logits(model, hidden[:batch], cb0[:batch], forced, arithmetic)
                expected[arithmetic, batch, mode] = digest(*found)
    assert len(set(expected.values())) == len(expected)
    return request.param, expected


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 7])
def test_formats_threads_batches_cache_and_forcing_do_not_change_bits(judged, threads, fresh_process):
    name, expected = judged
    found = fresh_process(
        f"import decoder_cases; decoder_cases.main({name!r}, {threads})", NUMBA_NUM_THREADS=max(4, threads)
    )
    wanted = {
        f"{format_name} {cache} {batch} {mode}": value
        for format_name in formats_of(small_model(name))
        for cache in ("kv", "recompute")
        for (arithmetic, batch, mode), value in expected.items()
        if arithmetic == arithmetic_of(format_name)
    }
    assert {k for k in wanted if found[k] != wanted[k]} == set()
    assert found.keys() == wanted.keys()


@pytest.mark.parametrize("variant", ["kv_bf16", "recompute_f16"])
@pytest.mark.slow
def test_the_published_shape_gives_the_oracles_bits(variant):
    from cplab import cp_load
    from cplab.sources import load_model

    model = load_model("synthetic:0.6b")
    hidden, cb0 = inputs(model, 1)
    oracle = Oracle(model)
    # The first three passes hold everything that a pass can be; all fifteen take the oracle ten seconds.
    oracle.spec = replace(model.spec, groups=4)
    expected = oracle.frame(hidden[0], cb0[0])
    codes, logits = predict(cp_load("synthetic:0.6b", variant, min(2, POOL)), hidden, cb0)
    np.testing.assert_array_equal(codes[0, :3], expected.codes)
    assert same_bits(logits[0, :3], expected.logits)


@pytest.mark.parametrize("stored", list(FLOAT_FORMATS))
def test_embeddings_are_decoded_from_whatever_type_they_are_stored_in(stored):
    model = projected_model()
    kind = FORMATS[stored]
    tensors = {n: replace(t, format=kind, data=t.packed(kind)) for n, t in model.tensors.items()}
    hidden, cb0 = inputs(model, 3)
    expected = oracle_logits(model, hidden, cb0)
    got = predict(Decoder(Model("same", model.spec, tensors), 1, format="bf16"), hidden, cb0)
    assert digest(*got) == digest(*expected)


def test_full_float32_weights_keep_every_bit():
    rng = np.random.default_rng(2)
    model = projected_model()
    kind = FORMATS["f32"]
    tensors = {
        n: replace(t, format=kind, data=(t.f32() * rng.uniform(0.9, 1.1, t.shape)).astype(F))
        for n, t in model.tensors.items()
    }
    model = Model("full mantissas", model.spec, tensors)
    assert model.repacked("bf16")[1] > 0
    hidden, cb0 = inputs(projected_model(), 3)
    assert digest(*predict(Decoder(model, 1, format="f32"), hidden, cb0)) == digest(*oracle_logits(model, hidden, cb0))


def test_a_lossy_format_is_exact_for_the_weights_that_it_holds():
    rng = np.random.default_rng(3)
    model = projected_model()
    kind = FORMATS["f32"]
    tensors = {
        n: replace(t, format=kind, data=(t.f32() * rng.uniform(0.9, 1.1, t.shape)).astype(F)) if t.data.ndim > 1 else t
        for n, t in model.tensors.items()
    }
    model = Model("full mantissas", model.spec, tensors)
    hidden, cb0 = inputs(projected_model(), 2)
    rounded, changed = model.repacked("f16")
    assert changed > 0
    got = predict(Decoder(model, 1, format="f16"), hidden, cb0)
    assert digest(*got) == digest(*oracle_logits(rounded, hidden, cb0))
    assert digest(*got) != digest(*oracle_logits(model, hidden, cb0))


@pytest.mark.parametrize("name", ["lm_head.0.weight", "model.codec_embedding.0.weight"])
@pytest.mark.parametrize("layout", ["sliced", "column by column"])
def test_tensors_need_not_be_contiguous(tiny, name, layout):
    data = tiny.tensors[name].data
    other = np.asfortranarray(data) if layout != "sliced" else np.pad(data, ((0, 0), (32, 0)))[:, 32:]
    if layout == "sliced" and "embedding" in name:
        other = np.repeat(data, 2, 1)[:, ::2]
    model = Model("strided", tiny.spec, {**tiny.tensors, name: replace(tiny.tensors[name], data=other)})
    assert model.digest() == tiny.digest()
    hidden, cb0 = inputs(tiny, 2)
    expected = digest(*oracle_logits(model, hidden, cb0))
    assert digest(*predict(Decoder(model, 1, format="bf16"), hidden, cb0)) == expected


@pytest.mark.parametrize("groups", [2, 16, 20])
def test_any_number_of_codebooks(groups):
    from cplab.sources import synthetic
    from cplab.spec import PRESETS

    spec = replace(PRESETS["tiny"], groups=groups)
    model = Model("groups", spec, {t.name: t for t in synthetic.tensors("synthetic:groups", spec)})
    hidden, cb0 = inputs(model, 2)
    expected = digest(*oracle_logits(model, hidden, cb0))
    for recompute in (False, True):
        decoder = Decoder(model, 1, format="bf16", recompute=recompute)
        assert digest(*predict(decoder, hidden, cb0)) == expected


# -- the contract of predict ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def decoder(tiny):
    return Decoder(tiny, 1, format="bf16")


def test_a_decoder_is_a_code_predictor(decoder):
    assert isinstance(decoder, CodePredictor)


@pytest.mark.parametrize("batch", [1, 2, 9])
def test_codes_are_int32_frames_times_passes(decoder, tiny, batch):
    codes, logits = predict(decoder, *inputs(tiny, batch))
    assert (codes.dtype, codes.shape) == (np.int32, (batch, 2))
    assert (logits.dtype, logits.shape) == (np.float32, (batch, 2, 256))
    np.testing.assert_array_equal(codes, logits.argmax(-1))


def test_inputs_are_not_modified(decoder, tiny):
    hidden, cb0 = inputs(tiny, 9)
    forced = forced_codes(tiny, 9)
    before = digest(hidden, cb0, forced)
    for array in (hidden, cb0, forced):
        array.flags.writeable = False
    decoder.predict(hidden, cb0, forced=forced)
    assert digest(hidden, cb0, forced) == before


def test_what_was_returned_is_the_callers_own(decoder, tiny):
    hidden, cb0 = inputs(tiny, 4)
    codes, logits = predict(decoder, hidden[:2], cb0[:2])
    before = digest(codes, logits)
    other = predict(decoder, hidden[2:], cb0[2:])
    assert digest(codes, logits) == before
    assert digest(*other) != before
    codes[:], logits[:] = 0, 0
    assert digest(*predict(decoder, hidden[:2], cb0[:2])) == before


def test_a_frame_does_not_depend_on_the_frames_before_or_beside_it(decoder, tiny):
    hidden, cb0 = inputs(tiny, 20)
    codes, logits = predict(decoder, hidden, cb0)
    order = np.random.default_rng(1).permutation(20)
    again_codes, again = predict(decoder, hidden[order], cb0[order])
    np.testing.assert_array_equal(again_codes, codes[order])
    assert same_bits(again, logits[order])
    for b in (7, 0, 19):
        assert same_bits(predict(decoder, hidden[b : b + 1], cb0[b : b + 1])[1][0], logits[b])


def test_inputs_need_not_be_contiguous(decoder, tiny):
    hidden, cb0 = inputs(tiny, 6)
    expected = digest(*predict(decoder, hidden[::2].copy(), cb0[::2].copy()))
    assert digest(*predict(decoder, hidden[::2], cb0[::2])) == expected
    assert digest(*predict(decoder, np.asfortranarray(hidden[::2]), np.asfortranarray(cb0[::2]))) == expected


def test_forced_codes_may_be_of_any_integer_width(decoder, tiny):
    hidden, cb0 = inputs(tiny, 2)
    forced = np.array([[200, 1], [3, 4]], np.int32)
    expected = digest(*predict(decoder, hidden, cb0, forced))
    assert digest(*predict(decoder, hidden, cb0, forced.astype(np.int64))) == expected
    assert digest(*predict(decoder, hidden, cb0, np.asfortranarray(forced.astype(np.int16)))) == expected


def test_forcing_changes_the_next_pass_and_not_the_codes_returned_for_the_first(decoder, tiny):
    hidden, cb0 = inputs(tiny, 1)
    codes, logits = predict(decoder, hidden, cb0)
    forced = (codes + 1) % 256
    forced_out, forced_logits = predict(decoder, hidden, cb0, forced)
    assert forced_out[0, 0] == codes[0, 0]
    assert same_bits(forced_logits[:, 0], logits[:, 0])
    assert not same_bits(forced_logits[:, 1], logits[:, 1])


@pytest.mark.parametrize("ahead_bytes", [1, 64, 4096, 1 << 20, 1 << 45])
def test_the_prefetch_distance_changes_no_bit(decoder, tiny, ahead_bytes):
    hidden, cb0 = inputs(tiny, 3)
    expected = digest(*predict(decoder, hidden, cb0))
    for name in FLOAT_FORMATS:
        other = Decoder(tiny, 1, format=name, ahead_bytes=ahead_bytes)
        assert digest(*predict(other, hidden, cb0)) == expected


def test_a_trace_has_the_time_of_every_pass(decoder, tiny):
    for batch in (1, 9):
        trace = Trace()
        decoder.predict(*inputs(tiny, batch), trace=trace)
        assert trace.pass_ns.shape == (2,)
        assert (trace.pass_ns > 0).all()


@pytest.mark.parametrize(("format_name", "size"), [("f32", 4), ("bf16", 2), ("f16", 2), ("bf12", 1.5)])
@pytest.mark.parametrize("name", ["tiny", "projected"])
def test_streams_are_the_matrices_of_a_frame(name, format_name, size):
    model = small_model(name)
    decoder = Decoder(model, 1, format=format_name)
    streams, spec = decoder.streams(), model.spec
    projection = spec.hidden * spec.talker_hidden if spec.projected else 0
    weights = spec.passes * (spec.weights_per_pass + projection)
    assert decoder.bytes_per_frame == sum(s.rows * s.row_bytes for s in streams)
    assert 1 <= decoder.bytes_per_frame / (weights * size) < (1.13 if format_name == "bf12" else 1 + 1e-12)
    assert decoder.passes_per_frame == spec.passes
    assert len(streams) == spec.passes * (4 * spec.layers + 1 + spec.projected)
    ends = sorted({(s.address, s.address + s.rows * s.row_bytes) for s in streams})
    assert all(a[1] <= b[0] for a, b in pairwise(ends))


def test_widths_that_the_kernels_cannot_do_are_refused(tiny):
    from cplab.sources import synthetic

    spec = replace(tiny.spec, intermediate=48)
    model = Model("odd", spec, {t.name: t for t in synthetic.tensors("synthetic:odd", spec)})
    with pytest.raises(BadInputError, match="multiples of 32"):
        Decoder(model, 1, format="f32")


def test_an_unknown_format_is_refused(tiny):
    with pytest.raises(BadInputError, match="bf16"):
        Decoder(tiny, 1, format="f8")


# -- logits that are not numbers --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fragile(tiny):
    """A model whose first layer overflows for some inputs, with frames that survive and frames that do not."""
    at = "model.layers.0.mlp."
    gate, up = tiny.f32(at + "gate_proj.weight").copy(), tiny.f32(at + "up_proj.weight").copy()
    gate[3], up[3] = 0, 0
    gate[3, 0] = up[3, 0] = 1e25
    model = with_tensors(
        tiny,
        model__layers__0__mlp__gate_proj__weight=gate,
        model__layers__0__mlp__up_proj__weight=up,
    )
    hidden, cb0 = inputs(tiny, 200)
    oracle = Oracle(model)
    passes = []
    for b in range(200):
        try:
            oracle.frame(hidden[b], cb0[b])
            passes.append(-1)
        except NonFiniteLogitsError as error:
            passes.append(error.pass_index)
    passes = np.array(passes)
    assert {-1, 0, 1} == set(passes.tolist())
    return model, hidden, cb0, passes


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("bad_pass", [0, 1])
@pytest.mark.parametrize(("batch", "bad"), [(1, 0), (4, 2), (9, 8), (12, 10)])
def test_non_finite_logits_name_the_frame_and_the_pass(fragile, batch, bad, bad_pass, recompute):
    model, hidden, cb0, passes = fragile
    chosen = np.resize(np.flatnonzero(passes == -1), batch)
    chosen[bad] = np.flatnonzero(passes == bad_pass)[0]
    decoder = Decoder(model, 1, format="f32", recompute=recompute)
    with pytest.raises(NonFiniteLogitsError) as error:
        decoder.predict(hidden[chosen], cb0[chosen])
    assert (error.value.frame, error.value.pass_index) == (bad, bad_pass)


def test_a_decoder_goes_on_after_a_bad_frame(fragile):
    model, hidden, cb0, passes = fragile
    good, bad = np.flatnonzero(passes == -1)[:2], np.flatnonzero(passes == 0)[:1]
    decoder = Decoder(model, 1, format="f32")
    before = digest(*predict(decoder, hidden[good], cb0[good]))
    with pytest.raises(NonFiniteLogitsError):
        decoder.predict(hidden[bad], cb0[bad])
    assert digest(*predict(decoder, hidden[good], cb0[good])) == before
    assert before == digest(*oracle_logits(model, hidden[good], cb0[good]))


@pytest.fixture(scope="module", params=["q8_0", "q5_0", "q4_0"])
def brittle(request):
    """A format; a model whose widths are no whole lines of it, with activations that overflow for some inputs; frames,
    and what the oracle says of each: a digest, or the pass in which it finds no number."""
    model = projected_model()
    name = "model.layers.1.input_layernorm.weight"
    gains = model.f32(name).copy()
    gains[5] = 1.5e38
    model = with_tensors(model, **{name.replace(".", "__"): gains})
    hidden, cb0 = inputs(projected_model(), 60)
    told = []
    for b in range(60):
        try:
            told.append(digest(*oracle_logits(model, hidden[b : b + 1], cb0[b : b + 1], arithmetic=request.param)))
        except NonFiniteActivationError as error:
            told.append(error.pass_index)
    assert {0, 2, 3} < set(told)
    return request.param, model, hidden, cb0, told


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("recompute", [False, True])
def test_what_was_not_finite_does_not_stay_in_the_columns_that_fill_a_line(brittle, recompute, threads):
    if threads > POOL:
        pytest.skip("numba's pool has one thread")
    format_name, model, hidden, cb0, told = brittle
    decoder = Decoder(model, threads, format=format_name, recompute=recompute)
    for b in range(60):  # good and bad frames in turn
        try:
            found = digest(*predict(decoder, hidden[b : b + 1], cb0[b : b + 1]))
        except NonFiniteActivationError as error:
            found = error.pass_index
        assert found == told[b], f"frame {b}"


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize(("batch", "bad"), [(2, 1), (3, 2), (8, 5), (9, 8)])
def test_a_bad_frame_is_not_taken_for_another_of_its_batch(brittle, batch, bad, recompute):
    format_name, model, hidden, cb0, told = brittle
    good = [b for b in range(60) if isinstance(told[b], str)]
    decoder = Decoder(model, 1, format=format_name, recompute=recompute)
    for which in [b for b in range(60) if not isinstance(told[b], str)]:
        chosen = np.resize(good, batch)
        chosen[bad] = which
        with pytest.raises(NonFiniteActivationError) as error:
            decoder.predict(hidden[chosen], cb0[chosen])
        assert (error.value.frame, error.value.pass_index) == (bad, told[which])


# -- the caller's floating-point mode ---------------------------------------------------------------------------------

SUBNORMAL_SCALE = F(2.0**-130)


@numba.njit
def float_mode():
    # Without x86's sticky status bits: any float operation of Python's between two looks may raise one.
    return machine.get_float_mode() & ~0x3F


def subnormal_inputs(model, frames):
    hidden, cb0 = inputs(model, frames)
    return hidden * SUBNORMAL_SCALE, cb0 * SUBNORMAL_SCALE


@pytest.mark.parametrize("name", ["tiny", "projected"])
@pytest.mark.parametrize("team", [1, "together", "apart"])
def test_a_callers_flush_to_zero_changes_nothing(name, team):
    if team != 1 and POOL < 2:
        pytest.skip("numba's pool has one thread")
    model = small_model(name)
    hidden, cb0 = subnormal_inputs(model, 3)
    if model.spec.projected:  # a bias of ordinary size would hide what was flushed
        bias = model.f32("small_to_mtp_projection.bias") * SUBNORMAL_SCALE
        model = with_tensors(model, small_to_mtp_projection__bias=bias)
    expected_codes, expected = oracle_logits(model, hidden, cb0)
    assert (np.abs(hidden) < 2.0**-126).mean() > 0.9
    assert (hidden != 0).all()

    # The case tells: without a guard, the law itself gives other bits under the caller's mode.
    oracle = Oracle(model)
    with machine.flush_to_zero():
        flushed = oracle.frame(hidden[0], cb0[0]).logits
    assert not same_bits(flushed, expected[0])

    decoder = Decoder(model, 1 if team == 1 else 2, format="f32")
    decoder._together = team != "apart"
    with machine.flush_to_zero():
        before = float_mode()
        codes, logits = predict(decoder, hidden, cb0)
        after = float_mode()
    np.testing.assert_array_equal(codes, expected_codes)
    assert same_bits(logits, expected)
    assert before == after != float_mode()


def test_logits_below_the_smallest_normal_are_kept(tiny):
    hidden, cb0 = inputs(tiny, 1)
    shrunk = with_tensors(tiny, lm_head__0__weight=tiny.f32("lm_head.0.weight") * F(2.0**-129))
    _, expected = oracle_logits(shrunk, hidden, cb0)
    below = np.abs(expected[0, 0]) < 2.0**-126
    assert (expected[0, 0][below] != 0).sum() > 50
    with machine.flush_to_zero():
        _, logits = predict(Decoder(shrunk, 1, format="f32"), hidden, cb0)
    assert same_bits(logits, expected)


def test_threads_that_were_born_under_flush_to_zero_give_the_same_bits(fresh_process, tiny):
    hidden, cb0 = subnormal_inputs(tiny, 3)
    found = fresh_process(
        """
import json
from test_decoder import digest, machine, predict, small_model, subnormal_inputs
from cplab.decoder import Decoder
model = small_model("tiny")
decoder = Decoder(model, 3, format="f32")
arrays = subnormal_inputs(model, 3)
with machine.flush_to_zero():  # the pool starts now, and its threads inherit the mode
    together = digest(*predict(decoder, *arrays))
    decoder._together = False
    apart = digest(*predict(decoder, *arrays))
print(json.dumps([together, apart]))
""",
        NUMBA_NUM_THREADS=3,
    )
    assert found == [digest(*oracle_logits(tiny, hidden, cb0))] * 2


def test_flush_to_zero_does_flush_and_is_undone():
    x = np.full(16, 2.0**-140, F)
    with machine.flush_to_zero():
        flushed = law.dot(x, np.ones(16, F))
    assert flushed == 0
    assert law.dot(x, np.ones(16, F)) == F(2.0**-136)
