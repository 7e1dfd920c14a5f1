"""Teacher-forced figures: what counts as agreeing, what a broken frame costs, how wide an interval is."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cplab"))
from naive_engines import NaiveEngine
from small_models import projected_model

from bench.quality import float_law
from bench.quality.float_law import FloatLaw, lossless_format
from bench.quality.free_running import free_running
from bench.quality.intervals import of_mean, of_root_mean, of_weighted
from bench.quality.teacher_forced import measure
from bench.quality.truth import Truth
from cplab.errors import BadInputError, CplabError, GoldenError
from cplab.golden import find_golden
from cplab.oracle import Oracle
from cplab.variant import Trace

FRAMES = 8


@pytest.fixture(scope="module")
def golden(tiny):
    return find_golden(tiny)


@pytest.fixture(scope="module")
def law(tiny, golden):
    return FloatLaw(tiny, golden, 1)


@pytest.fixture(scope="module")
def truth(law):
    return law.of_golden(FRAMES)


class Given:
    """A predictor whose logits are given; ``fails`` are frames that end in an error."""

    passes_per_frame, bytes_per_frame = 2, 0

    def __init__(self, logits, fails=(), traces=True):
        self.logits, self.fails, self.traces, self.frame = logits, fails, traces, -1

    def predict(self, hidden, cb0_embed, *, forced=None, trace=None, noise=None):
        self.frame += 1
        if self.frame in self.fails:
            raise CplabError("gave up")
        row = self.logits[self.frame : self.frame + 1]
        if trace is not None and self.traces:
            trace.logits = row
        return row.argmax(axis=-1).astype(np.int32)

    def streams(self):
        return []


def with_another_winner(truth, frame, g):
    """The truth's logits, but for one row, whose largest and second change places."""
    logits = truth.logits.copy()
    first, second = np.argsort(-logits[frame, g], kind="stable")[:2]
    logits[frame, g, [first, second]] = logits[frame, g, [second, first]]
    return logits


def test_the_law_is_the_oracles_bits(tiny, golden, law, truth):
    assert law.decoder is not None
    oracle = Oracle(tiny)
    for i in range(3):
        frame = oracle.frame(golden.hidden[i], golden.cb0_embed[i], golden.codes[i])
        assert frame.logits.tobytes() == truth.logits[i].tobytes()
    other = law.of(golden.hidden[:2], golden.cb0_embed[:2], golden.forced[:2])
    fed = oracle.frame(golden.hidden[1], golden.cb0_embed[1], golden.forced[1])
    assert other.logits[1].tobytes() == fed.logits.tobytes()


def test_kernels_that_are_wrong_are_not_believed(tiny, golden, truth, monkeypatch):
    class Wrong(float_law.Decoder):
        def predict(self, *arguments, trace=None, **options):
            codes = super().predict(*arguments, trace=trace, **options)
            trace.logits[0, 0, 0] += np.float32(1e-3)
            return codes

    monkeypatch.setattr(float_law, "Decoder", Wrong)
    doubted = FloatLaw(tiny, golden, 1)
    assert doubted.decoder is None
    assert doubted.of_golden(FRAMES).logits.tobytes() == truth.logits.tobytes()


def test_the_golden_of_another_model_is_refused(golden):
    with pytest.raises(GoldenError):
        FloatLaw(projected_model(), golden, 1)


def test_the_law_runs_in_the_format_that_holds_the_model(tiny):
    assert lossless_format(tiny) == "bf16"
    assert lossless_format(tiny.repacked("q8_0")[0]) == "f32"


def test_the_law_beside_itself_agrees_everywhere_at_no_distance(law, truth):
    found = measure(law.decoder, truth)
    assert (found.frames, found.rows, found.non_finite) == (FRAMES, 2 * FRAMES, 0)
    assert (found.agreement.value, found.top5.value, found.rmse.value, found.kl_worst) == (1, 1, 0, 0)
    assert found.agreement_by_codebook == [1, 1]
    assert found.cosine.value == pytest.approx(1)


def test_one_other_code_costs_one_row_of_its_codebook(truth):
    found = measure(Given(with_another_winner(truth, 3, 1)), truth)
    assert found.agreement.value == pytest.approx(1 - 1 / (2 * FRAMES))
    assert found.agreement_by_codebook == pytest.approx([1, 1 - 1 / FRAMES])
    assert found.kl_worst_at == (3, 2)
    assert found.kl_worst > 0 == found.kl_by_codebook[0]


def test_by_margin_a_near_tie_costs_less_than_a_clear_choice(truth):
    margins = truth.margins
    near = np.unravel_index(margins.argmin(), margins.shape)
    clear = np.unravel_index(margins.argmax(), margins.shape)
    tie, choice = (measure(Given(with_another_winner(truth, *at)), truth) for at in (near, clear))
    assert tie.agreement.value == choice.agreement.value
    by_hand = 1 - margins[near] / margins.sum(dtype=np.float64)
    assert tie.agreement_by_margin.value == pytest.approx(by_hand, rel=1e-6)
    assert choice.agreement_by_margin.value < tie.agreement_by_margin.value


def test_a_function_and_a_predictor_of_the_same_logits_have_the_same_figures(tiny, truth):
    engine = NaiveEngine(tiny, "q4_0")
    by_frame = measure(engine, truth)
    at_once = measure(engine.naive.scored, truth)
    assert by_frame.agreement == at_once.agreement
    assert by_frame.rmse.value == pytest.approx(at_once.rmse.value, rel=1e-4)
    assert by_frame.rmse.value > 0


def test_a_nan_agrees_nowhere_and_hides_no_distance(truth):
    logits = truth.logits.copy()
    logits[2, 0, 5] = np.nan
    found = measure(lambda *_: logits, truth)
    assert found.non_finite == 1
    assert found.agreement.value == pytest.approx(1 - 1 / (2 * FRAMES))
    assert found.kl is None
    assert found.rmse is None
    assert found.kl_worst is None


def test_a_frame_that_ends_in_an_error_agrees_nowhere(truth):
    found = measure(Given(truth.logits, fails=(1,)), truth)
    assert found.non_finite == 2
    assert found.agreement.value == pytest.approx(1 - 1 / FRAMES)
    assert found.rmse is None


def test_without_logits_there_is_agreement_and_no_distance(truth):
    found = measure(Given(truth.logits, traces=False), truth)
    assert (found.agreement.value, found.non_finite, found.kl) == (1, 0, None)


def test_what_takes_no_forced_codes_is_refused(truth):
    predictor = Given(truth.logits)
    predictor.takes_forced = False
    with pytest.raises(BadInputError, match="takes no forced codes"):
        measure(predictor, truth)


def test_a_truth_that_is_not_finite_or_does_not_fit_is_refused(truth):
    with pytest.raises(BadInputError, match="do not fit"):
        Truth(truth.hidden, truth.cb0_embed, truth.codes[:, :1], truth.logits)
    with pytest.raises(BadInputError, match="not all finite"):
        Truth(truth.hidden, truth.cb0_embed, truth.codes, truth.logits * np.float32(np.inf))


def test_free_running_tells_where_the_first_other_code_is(golden):
    codes = golden.codes[:FRAMES].copy()

    class Says:
        frame = -1

        def predict(self, hidden, cb0_embed, *, trace=None):
            self.frame += 1
            if self.frame == 4:
                raise CplabError("gave up")
            said = codes[self.frame : self.frame + 1].copy()
            said[0, 1] += self.frame == 2
            said[0, 0] += self.frame == 6
            return said

    found = free_running(Says(), golden.hidden, golden.cb0_embed, codes)
    assert found.failed == 1
    assert found.frames_matched == FRAMES - 3
    assert found.first_difference == [2, 1]
    assert found.agreement.value == pytest.approx(1 - 4 / (2 * FRAMES))
    assert found.codes_before.value == pytest.approx((2 * (FRAMES - 3) + 1) / FRAMES)


def test_an_interval_holds_its_figure_and_is_the_same_each_time():
    values = np.random.default_rng(3).random(40)
    found = of_mean(values)
    assert found.lo < found.value < found.hi
    assert found == of_mean(values)
    assert of_root_mean(values**2).value == pytest.approx(np.sqrt(np.mean(values**2)))


def test_more_frames_make_it_narrower_and_equal_ones_give_it_no_width():
    values = np.random.default_rng(4).random(400)
    few, many = of_mean(values[:20]), of_mean(values)
    assert many.hi - many.lo < 0.5 * (few.hi - few.lo)
    same = of_mean(np.ones(33))
    assert (same.lo, same.value, same.hi) == (1, 1, 1)


def test_of_fewer_than_three_frames_the_range_is_told():
    found = of_mean(np.array([0.25, 0.75]))
    assert (found.lo, found.value, found.hi) == (0.25, 0.5, 0.75)


def test_frames_are_drawn_and_not_rows(truth):
    """The same 16 of 32 rows agree: as whole frames or half of each frame. Only the former tells frames apart."""
    whole = np.repeat([1.0, 0.0], 8)
    half = np.full(16, 0.5)
    assert of_mean(whole).value == of_mean(half).value
    assert of_mean(whole).hi - of_mean(whole).lo > 0.3 > of_mean(half).hi - of_mean(half).lo


def test_a_weighted_share_draws_values_and_weights_together():
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    found = of_weighted(weights.copy(), weights)
    assert (found.lo, found.value, found.hi) == (1, 1, 1)
    assert of_weighted(np.zeros(4), np.zeros(4)) is None


def test_traces_are_asked_for_frame_by_frame(truth):
    """`Trace` objects are never shared between frames: an old frame's logits would count as the next one's."""
    seen = []

    class Watching(Given):
        def predict(self, hidden, cb0_embed, *, forced=None, trace=None, noise=None):
            seen.append(trace)
            return super().predict(hidden, cb0_embed, forced=forced, trace=trace)

    measure(Watching(truth.logits), truth)
    assert len({id(trace) for trace in seen}) == FRAMES
    assert all(isinstance(trace, Trace) for trace in seen)
