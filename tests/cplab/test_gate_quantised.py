"""The gate for another arithmetic: its own oracle judges, and what is kept of the original is told apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracle_predictor import OraclePredictor

from cplab.errors import GoldenError, NonFiniteActivationError, UnpackableError
from cplab.gate import judge
from cplab.gating import gate_cell
from cplab.golden import find_golden
from cplab.model import Model
from cplab.oracle_quantised import in_arithmetic
from cplab.variant import Variant
from variants.numpy_f32 import NumpyPredictor


@pytest.fixture(scope="module", params=["q8_0", "q5_0", "q4_0"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def rounded(tiny, kind):
    return in_arithmetic(tiny, kind)


@pytest.fixture(scope="module")
def golden(rounded, kind):
    return find_golden(rounded, kind)


@pytest.fixture
def cache(tmp_path, monkeypatch, tiny):
    monkeypatch.setenv("CPLAB_CACHE", str(tmp_path / "cache"))


def variant_of(kind, build=None):
    return Variant(
        f"oracle_{kind}",
        kind,
        kind,
        "exact",
        build or (lambda model, threads: OraclePredictor(model, kind)),
        "",
        "",
        "",
    )


def test_a_right_variant_passes_every_check(rounded, golden, kind):
    report = judge(OraclePredictor(rounded, kind), rounded, golden, arithmetic=kind, frames=4)
    assert report.passed, report.detail()
    assert {"logits", "forced logits", "float mode, first"} <= {check.name for check in report.checks}


def test_float32_on_the_same_weights_is_found_bit_by_bit(rounded, golden, kind):
    report = judge(OraclePredictor(rounded), rounded, golden, arithmetic=kind, frames=2)
    assert {"logits", "forced logits"} <= set(report.failed())
    first = report.first_difference
    assert (first.frame, first.pass_index) == (0, 0)
    # The value that the report calls right is the quantised oracle's.
    truth = OraclePredictor(rounded, kind).oracle.frame(golden.hidden[0], golden.cb0_embed[0])
    assert np.float32(first.expected) == truth.logits[0, first.index]


def test_one_quant_that_is_off_by_one_is_found(rounded, golden, kind):
    name = "model.layers.1.mlp.down_proj.weight"
    data = rounded.tensors[name].data.copy()
    data["qs"][40, 3, 11] ^= 1
    other = Model("off", rounded.spec, {**rounded.tensors, name: replace(rounded.tensors[name], data=data)})
    report = judge(OraclePredictor(other, kind), rounded, golden, arithmetic=kind, frames=2)
    assert "logits" in report.failed()


def test_a_golden_of_another_arithmetic_is_refused(tiny, rounded, golden, kind):
    with pytest.raises(GoldenError, match=f"arithmetic {kind}, not f32"):
        judge(OraclePredictor(rounded), rounded, golden, frames=2)
    with pytest.raises(GoldenError, match=f"arithmetic f32, not {kind}"):
        judge(OraclePredictor(rounded, kind), rounded, find_golden(tiny), arithmetic=kind, frames=2)


def test_a_cell_is_judged_on_rounded_weights_and_measured_against_the_original(tiny, kind):
    cell = gate_cell(variant_of(kind), tiny, 1, frames=2)
    assert cell.report.passed
    assert cell.report.free_running == 1
    assert cell.golden.arithmetic == kind
    assert cell.lossy_weights == tiny.repacked(kind)[1] > 0
    original = find_golden(tiny)
    codes = cell.predictor.predict(original.hidden[:10], original.cb0_embed[:10])
    assert cell.free_running == (codes == original.codes[:10]).mean()
    forced = cell.predictor.predict(original.hidden[:10], original.cb0_embed[:10], forced=original.codes[:10])
    assert cell.teacher_forced == (forced == original.codes[:10]).mean()
    assert 0.5 < cell.teacher_forced <= 1


def test_weights_that_are_stored_so_are_judged_so_and_nothing_is_lossy(rounded, kind, cache):
    stored = Model("somebody's file", rounded.spec, rounded.tensors)
    cell = gate_cell(variant_of(kind), stored, 1, frames=2)
    assert cell.report.passed, cell.report.detail()
    assert (cell.lossy_weights, cell.golden.arithmetic) == (0, kind)
    assert cell.golden.digest == stored.digest()
    # In float32 the same file is exact, and says what its float32 golden says.
    plain = Variant("numpy", "f32", "f32", "codes", NumpyPredictor, "", "", "")
    exact = gate_cell(plain, stored, 1, frames=2)
    assert exact.report.passed, exact.report.detail()
    assert (exact.lossy_weights, exact.golden.arithmetic) == (0, "f32")


def test_either_golden_may_be_given(tiny, golden, kind):
    for given in (golden, find_golden(tiny)):
        cell = gate_cell(variant_of(kind), tiny, 1, golden=given, frames=2)
        assert cell.report.passed
        assert cell.golden.digest == golden.digest
    other = "q4_0" if kind == "q8_0" else "q8_0"
    with pytest.raises(GoldenError):
        gate_cell(variant_of(kind), tiny, 1, golden=find_golden(in_arithmetic(tiny, other), other), frames=2)


def test_a_variant_that_computes_in_float32_fails_although_its_codes_are_the_originals(tiny, kind):
    cell = gate_cell(variant_of(kind, lambda model, threads: OraclePredictor(model)), tiny, 1, frames=2)
    assert "logits" in cell.report.failed()
    assert cell.teacher_forced > 0.5


def test_an_activation_that_is_no_number_fails_as_a_logit_would(rounded, golden, kind):
    class Overflows(OraclePredictor):
        def predict(self, hidden, cb0_embed, **options):
            raise NonFiniteActivationError(0, 1, "model.layers.0.mlp.down_proj.weight")

    report = judge(Overflows(rounded, kind), rounded, golden, arithmetic=kind, frames=2)
    assert "finite" in report.failed()
    assert "pass 1: non-finite activation in frame 0, pass 1: input of model.layers.0" in report.detail() + str(
        [check.detail for check in report.checks if check.name == "finite"]
    )


def test_a_weight_that_the_format_cannot_hold_is_told_before_anything_is_judged(tiny, kind):
    name = "lm_head.1.weight"
    values = tiny.f32(name).copy()
    values[9, 9] = 1e9
    from cplab.formats import FORMATS

    wide = replace(tiny.tensors[name], format=FORMATS["f32"], data=values)
    with pytest.raises(UnpackableError, match=r"lm_head\.1\.weight: the weight 1e\+09 at \[9, 9\]"):
        gate_cell(variant_of(kind), Model("m", tiny.spec, {**tiny.tensors, name: wide}), 1)
