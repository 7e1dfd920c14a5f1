"""The gate finds every fault, says where, and blames nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import numba
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import faulty_variants as faulty

from cplab.decoder import Decoder
from cplab.errors import BadInputError, GoldenError
from cplab.gate import judge
from cplab.golden import find_golden
from cplab.sources import load_model
from variants.numpy_f32 import NumpyPredictor

FRAMES = 4
ALL = [
    "float mode, first",
    "finite",
    "range",
    "codes",
    "logits",
    "teacher-forced",
    "forced logits",
    "order",
    "batch",
    "untraced",
    "inputs",
    "results",
    "sampling",
    "float mode, team",
    "contract",
]
BITS = {"logits", "forced logits"}


@pytest.fixture(scope="module")
def tiny():
    return load_model("synthetic:tiny")


@pytest.fixture(scope="module")
def golden(tiny):
    found = find_golden(tiny)
    assert found is not None
    return found


def test_a_right_variant_passes_every_check(tiny, golden):
    report = judge(Decoder(tiny, 1, format="bf16"), tiny, golden)
    assert [c.name for c in report.checks] == ALL
    assert report.passed
    assert report.first_difference is None
    assert report.summary() == "66/66 codes match (33/33 frames)"
    assert (report.teacher_forced, report.free_running) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("build", "pass_index"),
    [
        (faulty.wrong_theta, 0),  # the prefill's second position already sees position 0 through a wrong angle
        (faulty.position_off_by_one, 1),  # positions 0 and 1 are right; pass 1 runs position 2
        (faulty.wrong_head, 1),
        (faulty.embedding_off_by_one, 1),
    ],
)
def test_wrong_numbers_are_found_where_they_first_matter(tiny, golden, build, pass_index):
    report = judge(build(tiny), tiny, golden, frames=FRAMES)
    first = report.first_difference
    assert first is not None
    assert (first.frame, first.pass_index) == (0, pass_index)
    assert first.ulps > 0
    assert first.got != first.expected
    assert str(first) in next(c.detail for c in report.checks if c.name == "logits")
    assert BITS <= set(report.failed()) <= BITS | {"codes", "teacher-forced"}


def test_a_stale_cache_is_found(tiny, golden):
    report = judge(faulty.StaleCache(tiny), tiny, golden, frames=FRAMES)
    assert report.first_difference is not None
    assert (report.first_difference.frame, report.first_difference.pass_index) == (0, 0)
    assert {"logits", "forced logits", "order"} <= set(report.failed())
    assert not {"float mode, first", "finite", "range", "inputs"} & set(report.failed())


def test_the_result_of_the_frame_before_is_found(tiny, golden):
    report = judge(faulty.PreviousResult(tiny), tiny, golden, frames=FRAMES)
    assert report.first_difference is not None
    assert (report.first_difference.frame, report.first_difference.pass_index) == (0, 0)
    assert {"codes", "logits", "order"} <= set(report.failed())
    assert not {"float mode, first", "finite", "range", "inputs"} & set(report.failed())


def test_nan_never_passes_the_gate(tiny, golden):
    report = judge(faulty.SaysNaN(tiny), tiny, golden, frames=FRAMES)
    assert next(c.detail for c in report.checks if c.name == "finite") == "frame 0, pass 1, logit 5: nan"
    assert report.first_difference is not None
    assert (report.first_difference.frame, report.first_difference.pass_index, report.first_difference.index) == (
        0,
        1,
        5,
    )
    assert set(report.failed()) <= {"finite", *BITS, "float mode, first", "float mode, team"}
    codes_only = judge(faulty.SaysNaN(tiny), tiny, golden, tier="codes", frames=FRAMES)
    assert codes_only.failed() == ["finite"]


@pytest.mark.slow
def test_half_precision_activations_fail_on_spikes_and_say_non_finite():
    model = load_model("synthetic:0.6b-spikes")
    golden = find_golden(model)
    assert golden is not None
    report = judge(faulty.HalfPrecisionFeedForward(model, 2), model, golden, tier="codes", frames=2)
    finite = next(c for c in report.checks if c.name == "finite")
    assert not finite.passed
    assert finite.detail.startswith("frame 0, pass 0: non-finite logits")
    assert not {"range", "order", "inputs"} & set(report.failed())
    assert judge(NumpyPredictor(model, 2), model, golden, tier="codes", frames=2).passed


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="a race needs two threads")
def test_a_data_race_fails_twenty_times_of_twenty(tiny, golden):
    racing = faulty.Race(tiny, keep_barrier=False)
    for _ in range(20):
        report = judge(racing, tiny, golden, frames=2)
        assert report.first_difference is not None
        assert (report.first_difference.frame, report.first_difference.pass_index) == (0, 0)
        assert set(report.failed()) >= BITS
        assert not {"finite", "range", "inputs"} & set(report.failed())
    assert judge(faulty.Race(tiny, keep_barrier=True), tiny, golden, frames=2).passed


def test_a_reduction_split_by_thread_count_is_right_on_one_thread_only(tiny, golden):
    assert judge(faulty.SplitReduction(tiny, 1), tiny, golden, frames=2).passed
    report = judge(faulty.SplitReduction(tiny, 2), tiny, golden, frames=2)
    assert report.first_difference is not None
    assert (report.first_difference.frame, report.first_difference.pass_index) == (0, 0)
    assert 0 < report.first_difference.ulps < 10_000
    assert set(report.failed()) == BITS


def test_written_inputs_and_codes_out_of_range_are_found(tiny, golden):
    assert judge(faulty.WritesInputs(tiny), tiny, golden, frames=2).failed() == ["inputs"]
    report = judge(faulty.OutOfRange(tiny), tiny, golden, frames=2)
    assert "range" in report.failed()
    assert report.codes_matched == 0


def test_flush_to_zero_of_the_caller_is_found_where_a_variant_lets_it_in(tiny, golden):
    class Unguarded(faulty.SplitReduction):
        def predict(self, hidden, cb0_embed, *, forced=None, trace=None, noise=None):
            frames = self.frames(hidden, cb0_embed, forced, noise)
            if trace is not None:
                trace.logits = np.stack([f.logits for f in frames])
            return np.stack([f.codes for f in frames])

    assert judge(Unguarded(tiny, 1), tiny, golden, frames=2).failed() == ["float mode, first", "float mode, team"]


def test_a_variant_that_always_flushes_is_found(tiny, golden):
    class Flushes(faulty.Wrapped):
        def predict(self, hidden, cb0_embed, **options):
            small = np.float32(np.finfo(np.float32).tiny)
            flushed = [np.where(np.abs(x) < small, np.float32(0), x) for x in (hidden, cb0_embed)]
            return super().predict(*flushed, **options)

    assert judge(Flushes(tiny), tiny, golden, frames=2).failed() == ["float mode, first", "float mode, team"]


def test_a_variant_without_logits_cannot_be_exact(tiny, golden):
    class Silent(faulty.Wrapped):
        def predict(self, hidden, cb0_embed, *, forced=None, trace=None, noise=None):
            return super().predict(hidden, cb0_embed, forced=forced, noise=noise)

    assert "no logits" in judge(Silent(tiny), tiny, golden, frames=2).detail()
    assert judge(Silent(tiny), tiny, golden, tier="codes", frames=2).passed


def test_a_golden_of_other_weights_is_refused(golden):
    with pytest.raises(GoldenError, match="made from synthetic:tiny"):
        judge(None, load_model("synthetic:0.6b"), golden)  # type: ignore[arg-type]


def test_the_quality_tier_wants_a_format_that_it_can_measure_by(tiny, golden):
    with pytest.raises(BadInputError, match="no naive rounding is known for format ''"):
        judge(Decoder(tiny, 1, format="f32"), tiny, golden, tier="quality")


def test_results_remembered_for_another_call_are_found(tiny, golden):
    class Reuses(faulty.Wrapped):
        """Returns one and the same array every time."""

        codes = np.zeros((1, 2), np.int32)

        def predict(self, hidden, cb0_embed, **options):
            given = super().predict(hidden, cb0_embed, **options)
            if len(given) > 1:
                return given
            self.codes[:] = given
            return self.codes

    assert judge(Reuses(tiny), tiny, golden, frames=2).failed() == ["results"]


def test_the_call_without_a_trace_is_judged_too(tiny, golden):
    class Untraced(faulty.Wrapped):
        def predict(self, hidden, cb0_embed, *, forced=None, trace=None, noise=None):
            codes = super().predict(hidden, cb0_embed, forced=forced, trace=trace, noise=noise)
            return codes if trace is not None else codes * 0

    assert "untraced" in judge(Untraced(tiny), tiny, golden, frames=2).failed()


def test_a_batch_that_is_asked_for_is_judged_too(tiny, golden):
    class Fours(faulty.Wrapped):
        """Bits of another frame, in batches of four alone."""

        def predict(self, hidden, cb0_embed, *, trace=None, **options):
            codes = super().predict(hidden, cb0_embed, trace=trace, **options)
            if trace is not None and len(codes) == 4:
                trace.logits[3, 1] = np.nextafter(trace.logits[3, 1], np.float32(np.inf))
            return codes

    assert judge(Fours(tiny), tiny, golden, frames=2).failed() == []
    report = judge(Fours(tiny), tiny, golden, frames=2, batches=[2, 4, 8])
    assert report.failed() == ["batch"]
    assert "frame 1 as number 3 of 4 at once: other bits at pass 1" in report.detail()


def test_a_batch_of_any_size_is_judged(tiny, golden):
    class Pairs(faulty.Wrapped):
        def predict(self, hidden, cb0_embed, **options):
            codes = super().predict(hidden, cb0_embed, **options)
            return codes[::-1].copy() if len(codes) in (2, 9) else codes

    class Fed(faulty.Wrapped):
        """Feeds the first frame's codes to all."""

        def predict(self, hidden, cb0_embed, *, forced=None, **options):
            if forced is not None:
                forced = np.repeat(forced[:1], len(forced), axis=0)
            return super().predict(hidden, cb0_embed, forced=forced, **options)

    assert "batch" in judge(Pairs(tiny), tiny, golden, frames=FRAMES).failed()
    assert judge(Fed(tiny), tiny, golden, frames=FRAMES).failed() == ["batch"]


@pytest.mark.parametrize("fault", ["bytes", "passes", "times", "nan", "dtype"])
def test_what_a_variant_says_of_itself_must_be_true(tiny, golden, fault):
    class Untrue(faulty.Wrapped):
        def predict(self, hidden, cb0_embed, *, forced=None, trace=None, noise=None):
            if fault == "nan":
                hidden = np.nan_to_num(hidden)
            if fault == "dtype":
                hidden = hidden.astype(np.float32)
            codes = super().predict(hidden, cb0_embed, forced=forced, trace=trace, noise=noise)
            if fault == "times" and trace is not None:
                trace.pass_ns = np.array([-5, 3, 4])
            return codes

    variant = Untrue(tiny)
    if fault == "bytes":
        variant.bytes_per_frame = 1
    if fault == "passes":
        variant.passes_per_frame = 0
    assert judge(variant, tiny, golden, frames=2).failed() == ["contract"]
