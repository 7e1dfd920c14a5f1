"""The oracle says what the published equations say, and stands apart from the code that it judges."""

from __future__ import annotations

import numpy as np
import pytest
from reference_float64 import Float64Predictor
from small_models import forced_codes, inputs, oracle_logits, same_bits, small_model, with_tensors

from cplab.errors import NonFiniteLogitsError
from cplab.oracle import Oracle
from cplab.sources import load_model


def relative_to_rms(logits, reference):
    """Largest difference of each pass, in units of the rms of the pass's logits."""
    return (np.abs(logits - reference).max(-1) / np.sqrt((reference**2).mean(-1))).max()


def test_the_oracle_loads_no_kernel(fresh_process):
    loaded = fresh_process("""
import json, sys
import cplab.oracle
print(json.dumps(sorted(sys.modules)))
""")
    assert "cplab.arithmetic" in loaded
    assert [name for name in loaded if name.startswith(("cplab.kernels", "cplab.decoder", "variants"))] == []


@pytest.mark.parametrize("name", ["tiny", "projected"])
@pytest.mark.parametrize("mode", ["free", "forced"])
def test_the_oracle_agrees_with_float64(name, mode):
    model = small_model(name)
    hidden, cb0 = inputs(model, 40)
    forced = forced_codes(model, 40) if mode == "forced" else None
    codes, logits = oracle_logits(model, hidden, cb0, forced)
    reference = Float64Predictor(model.spec, model.f32)
    for b in range(len(hidden)):
        # A free-running reference is fed the oracle's codes, so that a near tie could not lead it astray.
        expected_codes, expected = reference.frame(hidden[b], cb0[b], codes[b] if forced is None else forced[b])
        assert relative_to_rms(logits[b], expected) <= 1e-5
        margin = np.diff(np.sort(expected, -1)[:, -2:]).min()
        assert margin < 1e-4 or (expected_codes == codes[b]).all()
    assert len({tuple(row) for row in codes}) > 20  # not one frame forty times


@pytest.mark.slow
def test_the_oracle_agrees_with_float64_at_the_published_shape():
    model = load_model("synthetic:0.6b")
    hidden, cb0 = inputs(model, 1)
    codes, logits = oracle_logits(model, hidden, cb0)
    weights = {n: t.f32().astype(np.float64) for n, t in model.tensors.items() if "codec_embedding" not in n}
    reference = Float64Predictor(model.spec, lambda n: weights[n] if n in weights else model.f32(n))
    expected_codes, expected = reference.frame(hidden[0], cb0[0], codes[0])
    assert relative_to_rms(logits[0], expected) <= 1e-5
    np.testing.assert_array_equal(codes[0], expected_codes)


def test_forcing_its_own_codes_changes_no_bit(tiny):
    hidden, cb0 = inputs(tiny, 6)
    codes, logits = oracle_logits(tiny, hidden, cb0)
    again_codes, again = oracle_logits(tiny, hidden, cb0, codes)
    np.testing.assert_array_equal(codes, again_codes)
    assert same_bits(logits, again)


def test_forced_codes_reach_later_passes_only(tiny):
    hidden, cb0 = inputs(tiny, 1)
    frame = Oracle(tiny).frame(hidden[0], cb0[0])
    other = (frame.codes + 1) % tiny.spec.vocab
    forced = Oracle(tiny).frame(hidden[0], cb0[0], other)
    assert same_bits(frame.logits[0], forced.logits[0])
    assert not same_bits(frame.logits[1], forced.logits[1])


def test_the_oracle_keeps_nothing_between_frames(tiny):
    hidden, cb0 = inputs(tiny, 2)
    one = Oracle(tiny)
    first = one.frame(hidden[0], cb0[0])
    one.frame(hidden[1], cb0[1])
    assert same_bits(first.logits, one.frame(hidden[0], cb0[0]).logits)


def test_non_finite_logits_name_the_pass(tiny):
    head = tiny.f32("lm_head.1.weight").copy()
    head[9] = 3e38
    head[9, ::2] = -3e38
    with pytest.raises(NonFiniteLogitsError) as error:
        oracle_logits(with_tensors(tiny, lm_head__1__weight=head), *inputs(tiny, 1))
    assert (error.value.frame, error.value.pass_index) == (0, 1)
