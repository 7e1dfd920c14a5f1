"""The oracle of quantised arithmetic: every matrix by the law on rationals, everything else as in float32."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import exact_quantised
import numpy as np
import pytest
from small_models import forced_codes, inputs, model_of, same_bits, small_model, with_tensors

from cplab.errors import BadInputError, NonFiniteActivationError, NonFiniteLogitsError
from cplab.model import Model, is_streamed
from cplab.oracle import Oracle
from cplab.oracle_quantised import QuantisedOracle, in_arithmetic, oracle_for
from cplab.sources import synthetic

F = np.float32


def cut_short(model):
    """A model of one code where rationals would take minutes."""
    if model.spec.hidden < 256:
        return model
    spec = replace(model.spec, layers=1, groups=2, vocab=64, intermediate=256)
    return Model("cut short", spec, {t.name: t for t in synthetic.tensors("synthetic:cut-short", spec)})


class ByRationals(Oracle):
    """The same frame with its matrices by `exact_quantised`, from the blocks as they are stored."""

    def decoded(self, tensor):
        return tensor if is_streamed(tensor.name) else tensor.f32()

    def linear(self, name, x):
        tensor = self.weights[name]
        q, d = exact_quantised.quantise(x)
        # The integers out of the values: d * q is exact, so is the quotient.
        scales = tensor.data["d"].astype(F)
        if tensor.format.name == "q6_k":
            scales = (scales[..., None] * tensor.data["scales"]).reshape(len(scales), -1)
        steps = np.repeat(scales, tensor.shape[1] // scales.shape[1], -1)
        integers = np.divide(tensor.f32(), steps, out=np.zeros(tensor.shape, F), where=steps != 0)
        return np.array([exact_quantised.dot(*row, q, d) for row in zip(integers, scales, strict=True)], F)


@pytest.mark.parametrize("kind", ["q8_0", "q6_k", "q5_0", "q4_0"])
def test_a_frame_is_what_exact_rationals_say(kind):
    model = in_arithmetic(cut_short(model_of(kind)), kind)
    hidden, cb0 = inputs(model, 1)
    ours = oracle_for(model, kind).frame(hidden[0], cb0[0])
    theirs = ByRationals(model).frame(hidden[0], cb0[0])
    np.testing.assert_array_equal(ours.codes, theirs.codes)
    assert same_bits(ours.logits, theirs.logits)


def test_a_projection_is_quantised_and_its_bias_is_not():
    """Its widths are odd numbers of blocks: 96 into the projection, 160 into down_proj."""
    model = in_arithmetic(small_model("projected"), "q4_0")
    (hidden,), (cb0,) = inputs(model, 1)
    forced = forced_codes(model, 1)[0]
    assert same_bits(
        ByRationals(model).scored(hidden, cb0, forced).logits,
        oracle_for(model, "q4_0").scored(hidden, cb0, forced).logits,
    )


@pytest.mark.parametrize(
    ("name", "kind"), [*product(["tiny", "projected"], ["q8_0", "q5_0", "q4_0"]), ("wide", "q6_k")]
)
def test_scoring_all_codebooks_in_one_pass_changes_no_bit(name, kind):
    model = in_arithmetic(small_model(name), kind)
    oracle = oracle_for(model, kind)
    hidden, cb0 = inputs(model, 3)
    forced = forced_codes(model, 3)
    for b in range(3):
        one, all_at_once = (f(hidden[b], cb0[b], forced[b]) for f in (oracle.frame, oracle.scored))
        assert same_bits(one.logits, all_at_once.logits)


def test_each_arithmetic_says_something_else_and_stays_near():
    wide = small_model("wide")
    hidden, cb0 = inputs(wide, 1)
    logits = {}
    for kind in ("f32", "q8_0", "q6_k", "q5_0", "q4_0"):
        model = in_arithmetic(wide, kind)
        logits[kind] = oracle_for(model, kind).frame(hidden[0], cb0[0]).logits[0]
        if kind != "f32":
            logits[f"f32 on {kind}"] = oracle_for(model).frame(hidden[0], cb0[0]).logits[0]
    rms = np.sqrt((logits["f32"] ** 2).mean())
    off = {kind: np.sqrt(((found - logits["f32"]) ** 2).mean()) / rms for kind, found in logits.items()}
    assert 0 < off["q8_0"] < off["q6_k"] < 0.04 < off["q5_0"] < off["q4_0"] < 0.3
    assert 0 < np.abs(logits["q8_0"] - logits["f32 on q8_0"]).max() < 0.03 * rms


def test_every_matrix_must_be_in_the_format_and_the_first_that_is_not_is_named(tiny):
    rounded = in_arithmetic(tiny, "q8_0")
    mixed = with_tensors(rounded, lm_head__0__weight=tiny.f32("lm_head.0.weight"))
    with pytest.raises(BadInputError, match=r"lm_head\.0\.weight is f32; arithmetic q8_0 wants"):
        oracle_for(mixed, "q8_0")
    with pytest.raises(BadInputError, match=r"layers\.0\.self_attn\.q_proj\.weight is q8_0; arithmetic q4_0 wants"):
        oracle_for(rounded, "q4_0")
    assert isinstance(oracle_for(rounded, "q8_0"), QuantisedOracle)
    assert type(oracle_for(rounded)) is Oracle


@pytest.mark.parametrize("name", ["bf16", "q8", ""])
def test_an_unknown_arithmetic_is_told_those_there_are(tiny, name):
    for call in (oracle_for, in_arithmetic):
        with pytest.raises(BadInputError, match="there are f32, q8_0, q6_k, q5_0, q4_0, stored"):
            call(tiny, name)


def test_an_activation_that_is_no_number_names_frame_pass_and_matrix(tiny):
    (hidden,), (cb0,) = inputs(tiny, 1)
    table = tiny.f32("model.codec_embedding.0.weight").copy()
    table[77, 3] = np.inf
    oracle = oracle_for(in_arithmetic(with_tensors(tiny, model__codec_embedding__0__weight=table), "q8_0"), "q8_0")
    for call in (oracle.frame, oracle.scored):
        with pytest.raises(NonFiniteActivationError) as error:
            call(hidden, cb0, np.array([77, 5], np.int32))
        assert isinstance(error.value, NonFiniteLogitsError)
        assert (error.value.frame, error.value.pass_index) == (0, 1)
        assert error.value.matrix == "model.layers.0.self_attn.q_proj.weight"
        assert f"frame 0, pass 1: input of {error.value.matrix}" in str(error.value)
        call(hidden, cb0, np.array([76, 5], np.int32))
