"""The naive implementation: float32 is the oracle within rounding, each format rounds as it says."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from small_models import forced_codes, inputs, oracle_logits, small_model, with_tensors

from cplab.errors import BadInputError
from cplab.naive import ACTIVATIONS, Naive, rounded


@pytest.mark.parametrize("name", ["tiny", "projected"])
def test_in_float32_it_is_the_oracle_within_rounding(name):
    model = small_model(name)
    forced = forced_codes(model, 3)
    arrays = inputs(model, 3)
    _, truth = oracle_logits(model, *arrays, forced)
    found = Naive(model, "f32").scored(*arrays, forced)
    assert found.dtype == np.float32
    assert np.abs(found - truth).max() < 2e-5 * np.sqrt((truth**2).mean())


def test_fewer_bits_are_further_away():
    wide = small_model("wide")
    arrays, forced = inputs(wide, 2), forced_codes(wide, 2)
    truth = Naive(wide, "f32").scored(*arrays, forced)
    away = [np.sqrt(((Naive(wide, kind).scored(*arrays, forced) - truth) ** 2).mean()) for kind in ACTIVATIONS]
    assert away[0] == 0
    f16, bf16, q8, q6, q5, q4 = away[1:]
    assert f16 < bf16
    assert f16 < q8 < q6 < q5 < q4


def test_heads_may_be_of_another_format(tiny):
    arrays, forced = inputs(tiny, 1), forced_codes(tiny, 1)
    whole, finer = Naive(tiny, "q4_0"), Naive(tiny, "q4_0", "f32")
    assert {finer.formats[n] for n in finer.formats if n.startswith("lm_head")} == {"f32"}
    assert {finer.formats[n] for n in finer.formats if n.startswith("model.layers")} == {"q4_0"}
    assert not np.array_equal(whole.scored(*arrays, forced), finer.scored(*arrays, forced))


def test_values_round_to_what_the_format_holds():
    values = np.array([1 + 2**-12, 65520.0, -1e-9, 3.0], np.float32)
    np.testing.assert_array_equal(rounded(values, "f16"), [1, np.inf, 0, 3])
    assert rounded(values, "bf16")[1] == 65536
    np.testing.assert_array_equal(rounded(values, "f32"), values)
    block = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 64)
    for kind in ("q8_0", "q5_0", "q4_0"):
        known = gguf.GGMLQuantizationType[kind.upper()]
        np.testing.assert_array_equal(
            rounded(block, kind), gguf.quants.dequantize(gguf.quants.quantize(block, known), known)
        )


def test_f16_activations_overflow_as_they_do_in_an_engine(tiny):
    name = "model.layers.1.mlp.up_proj.weight"
    model = with_tensors(tiny, **{name.replace(".", "__"): tiny.f32(name) * np.float32(2.0**20)})
    arrays, forced = inputs(model, 1), forced_codes(model, 1)
    assert not np.isfinite(Naive(model, "f16").scored(*arrays, forced)).all()
    assert np.isfinite(Naive(model, "bf16").scored(*arrays, forced)).all()


@pytest.mark.parametrize("arguments", [("q2_k",), ("",), ("f16", "int8")])
def test_an_unknown_format_is_refused_by_name(tiny, arguments):
    with pytest.raises(BadInputError, match=f"format '{arguments[-1]}'; there are f32, f16"):
        Naive(tiny, *arguments)
