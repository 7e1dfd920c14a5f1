"""The yardstick: numpy's codes are the lab's, its logits differ by rounding only."""

from __future__ import annotations

import numpy as np
import pytest

from cplab import Trace, cp_load
from cplab.errors import NonFiniteLogitsError
from cplab.model import Model
from cplab.sources import load_model, synthetic
from cplab.variant import get_variant


def both(name, frames, forced=None):
    width = load_model(name).spec.talker_hidden
    arrays = synthetic.hidden_states(name, frames, width), synthetic.cb0_embeddings(name, frames, width)
    found = []
    for variant in ("kv_f32", "numpy_f32"):
        trace = Trace()
        codes = cp_load(name, variant, 1).predict(*arrays, forced=forced, trace=trace)
        found.append((codes, trace))
    return found


def agree(ours, numpys):
    (codes, trace), (numpy_codes, numpy_trace) = ours, numpys
    rms = np.sqrt((trace.logits.astype(np.float64) ** 2).mean(-1, keepdims=True))
    difference = np.abs(trace.logits.astype(np.float64) - numpy_trace.logits) / rms
    assert difference.max() < 2e-5
    np.testing.assert_array_equal(codes, numpy_codes)
    assert (numpy_codes.dtype, numpy_codes.shape) == (codes.dtype, codes.shape)
    assert numpy_trace.logits.dtype == np.float32
    assert (numpy_trace.pass_ns > 0).all()
    np.testing.assert_array_equal(numpy_codes, numpy_trace.logits.argmax(-1))


def test_codes_are_the_labs_on_tiny():
    ours, numpys = both("synthetic:tiny", 30)
    agree(ours, numpys)
    assert len({tuple(c) for c in ours[0]}) > 20


def test_codes_are_the_labs_when_forced():
    forced = np.random.default_rng(0).integers(0, 256, (10, 2)).astype(np.int32)
    agree(*both("synthetic:tiny", 10, forced))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["synthetic:0.6b", "synthetic:1.7b"])
def test_codes_are_the_labs_at_the_published_shapes(name):
    agree(*both(name, 1))


def test_its_arithmetic_is_another_and_so_is_its_tier():
    item = get_variant("numpy_f32")
    assert item.arithmetic != get_variant("kv_f32").arithmetic
    assert item.tier == "codes"


def test_non_finite_logits_name_the_frame_and_the_pass(tiny):
    from dataclasses import replace

    name = "lm_head.1.weight"
    tensor = tiny.tensors[name]
    data = tensor.data.copy()
    data[7] = 0x7F00  # 1.7e38, in every column
    model = Model("m", tiny.spec, {**tiny.tensors, name: replace(tensor, data=data)})
    hidden, cb0 = synthetic.hidden_states("synthetic:tiny", 1, 64), synthetic.cb0_embeddings("synthetic:tiny", 1, 64)
    for variant in ("numpy_f32", "kv_f32"):
        predictor = get_variant(variant).build(model, 1)
        with np.errstate(all="ignore"), pytest.raises(NonFiniteLogitsError) as error:
            predictor.predict(hidden, cb0)
        assert (error.value.frame, error.value.pass_index) == (0, 1)
