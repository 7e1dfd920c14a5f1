"""``predict`` refuses what it cannot mean, in one line that says which argument and what is wanted."""

from __future__ import annotations

import numpy as np
import pytest
from small_models import inputs, projected_model

from cplab import Trace, cp_load
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


def test_noise_is_refused_by_greedy_variants(predictor):
    refused(predictor, "noise", noise=np.zeros((2, 2, 256), F))


def test_the_talkers_width_is_wanted_and_not_the_code_predictors():
    model = projected_model()
    decoder = Decoder(model, 1, format="bf16")
    assert decoder.predict(*inputs(model, 1)).shape == (1, 4)
    with pytest.raises(BadInputError, match=r"\[B, 96\]"):
        decoder.predict(np.ones((1, 64), F), np.ones((1, 64), F))
