"""``predict`` refuses what it cannot mean, in one line that says which argument and what is wanted."""

from __future__ import annotations

import numpy as np
import pytest
from small_models import inputs, projected_model

from cplab import Sampling, Trace, cp_load
from cplab.decoder import Decoder
from cplab.errors import BadInputError

F = np.float32


@pytest.fixture(scope="module", params=["kv_bf16", "recompute_f32", "numpy_f32"])
def predictor(request):
    return cp_load("synthetic:tiny", request.param, 1)


def refused(predictor, *words, **arguments):
    good = {"hidden": np.ones((2, 64), F), "cb0_embed": np.ones((2, 64), F)}
    given = good | arguments
    trace = Trace()
    with pytest.raises(BadInputError) as error:
        predictor.predict(given.pop("hidden"), given.pop("cb0_embed"), trace=trace, **given)
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)
    assert trace.logits is None


def test_the_good_case_that_the_others_differ_from_is_good(predictor):
    assert predictor.predict(np.ones((2, 64), F), np.ones((2, 64), F)).shape == (2, 2)


@pytest.mark.parametrize("which", ["hidden", "cb0_embed"])
@pytest.mark.parametrize(
    ("value", "word"),
    [
        (np.ones((2, 64)), "float64"),
        (np.ones((2, 64), np.float16), "float16"),
        (np.ones((2, 64), ">f4"), ">f4"),
        (np.ones((2, 64), np.int32), "int32"),
        ([[1.0] * 64] * 2, "list"),
        (None, "NoneType"),
        (np.ones((2, 63), F), "[2, 63]"),
        (np.ones((2, 65), F), "[2, 65]"),
        (np.ones((64, 2), F), "[64, 2]"),
        (np.ones(64, F), "[64]"),
        (np.ones((1, 2, 64), F), "[1, 2, 64]"),
        (np.ones((0, 64), F), "[0, 64]"),
        (np.full((2, 64), np.nan, F), "NaN"),
        (np.full((2, 64), -np.inf, F), "NaN or infinite"),
    ],
)
def test_inputs_of_the_wrong_kind(predictor, which, value, word):
    refused(predictor, which, word, **{which: value})


@pytest.mark.parametrize("which", ["hidden", "cb0_embed"])
@pytest.mark.parametrize("where", [(0, 0), (1, 63)])
def test_one_nan_is_enough(predictor, which, where):
    value = np.ones((2, 64), F)
    value[where] = np.nan
    refused(predictor, which, "NaN", **{which: value})


def test_another_number_of_frames(predictor):
    refused(predictor, "2", "3", cb0_embed=np.ones((3, 64), F))


@pytest.mark.parametrize(
    "forced",
    [
        np.zeros(2, np.int32),
        np.zeros((2, 3), np.int32),
        np.zeros((1, 2), np.int32),
        np.zeros((2, 2, 1), np.int32),
        np.zeros((2, 2), F),
        np.zeros((2, 2), bool),
        [[0, 0], [0, 0]],
    ],
    ids=lambda v: f"{getattr(v, 'dtype', 'list')}{getattr(v, 'shape', '')}",
)
def test_forced_codes_of_the_wrong_kind(predictor, forced):
    refused(predictor, "forced", "[2, 2]", forced=forced)


@pytest.mark.parametrize("code", [-1, 256, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("where", [(0, 0), (1, 1)])
def test_forced_codes_out_of_range(predictor, code, where):
    forced = np.zeros((2, 2), np.int64)
    forced[where] = code
    refused(predictor, "forced", "0..255", forced=forced)


def test_forced_codes_that_would_wrap_into_range(predictor):
    refused(predictor, "forced", forced=np.full((2, 2), 2**32 + 1, np.int64))


@pytest.mark.parametrize(
    ("noise", "word"),
    [
        (np.zeros((2, 2, 255), F), "[2, 2, 255]; [2, 2, 256]"),
        (np.zeros((1, 2, 256), F), "[1, 2, 256]"),
        (np.zeros((2, 256), F), "[2, 256]"),
        (np.zeros((2, 2, 256)), "float64; float32"),
        (np.full((2, 2, 256), np.nan, F), "NaN or infinite"),
        (np.full((2, 2, 256), -np.inf, F), "NaN or infinite"),
        (7, "int; a float32 array or a cplab.Sampling"),
        ([[[0.0] * 256] * 2] * 2, "list"),
        (Sampling(), "a seed or noise"),
        (Sampling(1, noise=np.zeros((2, 2, 256), F)), "not both"),
        (Sampling(noise=np.zeros((2, 3, 256), F)), "[2, 3, 256]"),
        (Sampling(noise=[0.0]), "list; float32"),
    ],
    ids=str,
)
def test_noise_of_the_wrong_kind(predictor, noise, word):
    refused(predictor, word, noise=noise)


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("temperature", 0.0, "above 0"),
        ("temperature", -1.0, "above 0"),
        ("temperature", 1e-50, "above 0"),  # 0 in float32
        ("temperature", np.inf, "above 0"),
        ("temperature", 10**400, "above 0"),
        ("temperature", np.nan, "NaN"),
        ("temperature", None, "NoneType"),
        ("temperature", "hot", "str"),
        ("temperature", True, "bool"),
        ("top_k", 0, "at least 1"),
        ("top_k", -5, "at least 1"),
        ("top_k", 2.0, "whole number"),
        ("top_k", True, "whole number"),
        ("top_p", 0.0, "above 0"),
        ("top_p", -0.1, "above 0"),
        ("top_p", 1.0000001, "at most 1"),
        ("top_p", np.nan, "NaN"),
        ("seed", -1, "0 to 2**64 - 1"),
        ("seed", 2**64, "0 to 2**64 - 1"),
        ("seed", 1.5, "whole number"),
        ("seed", [1, 2, 3], "3 numbers for 2 frames"),
        ("seed", [1, -2], "0 to 2**64 - 1"),
        ("frame", -1, "0 to 2**64 - 1"),
        ("frame", 2**64 - 1, "0 to 2**64 - 1"),  # the second frame would be one more
        ("frame", [5], "1 numbers for 2 frames"),
        ("frame", None, "NoneType"),
    ],
)
def test_parameters_of_sampling_that_mean_nothing(predictor, name, value, word):
    refused(predictor, name, word, noise=Sampling(**({"seed": 7} | {name: value})))


@pytest.mark.parametrize(
    ("given", "same"),
    [
        (Sampling(7, top_k=10**30), Sampling(7, top_k=None)),
        (Sampling(7, top_k=256), Sampling(7, top_k=None)),
        (Sampling(np.int64(7), np.float64(0.9), np.int32(50), np.float32(1)), Sampling(7)),
        (Sampling(7, frame=4), Sampling([7, 7], frame=[4, 5])),
        (Sampling((7, 2**64 - 1), frame=0), Sampling(np.array([7, 2**64 - 1], np.uint64), frame=(0, 1))),
    ],
)
def test_parameters_that_mean_the_same(predictor, given, same):
    hidden, cb0 = inputs(predictor.model, 2)
    drawn = predictor.predict(hidden, cb0, noise=given)
    np.testing.assert_array_equal(drawn, predictor.predict(hidden, cb0, noise=same))


def test_the_talkers_width_is_wanted_and_not_the_code_predictors():
    model = projected_model()
    decoder = Decoder(model, 1, format="bf16")
    assert decoder.predict(*inputs(model, 1)).shape == (1, 4)
    with pytest.raises(BadInputError, match=r"\[B, 96\]"):
        decoder.predict(np.ones((1, 64), F), np.ones((1, 64), F))
