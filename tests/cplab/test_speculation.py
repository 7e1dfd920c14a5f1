"""Speculation changes what a frame costs and nothing else: bits, draws and errors are those of one code a pass."""

from __future__ import annotations

import numpy as np
import pytest
from small_models import (
    arithmetic_of,
    forced_codes,
    inputs,
    oracle_logits,
    projected_model,
    same_bits,
    with_tensors,
)

from cplab.decoder import Decoder
from cplab.errors import BadInputError, NonFiniteActivationError, NonFiniteLogitsError
from cplab.gate import judge
from cplab.golden_making import golden_for
from cplab.sampling import Sampling
from cplab.sources import load_model
from cplab.speculation.decoder import SpeculativeDecoder
from cplab.speculation.draft_length import Lengths
from cplab.variant import Trace

#: Three drafts before every pass but the first, as far as there are codes left.
THREE = np.minimum([0, *[3] * 14], 14 - np.arange(15))
HOT = Sampling(seed=3, temperature=2.0, top_k=None)


@pytest.fixture(scope="module")
def predictable():
    return load_model("synthetic:tiny-predictable")


@pytest.fixture(scope="module")
def golden(predictable):
    return golden_for(predictable)


def traced(predictor, *arguments, **options):
    trace = Trace()
    return predictor.predict(*arguments, trace=trace, **options), trace.logits


def wrong(codes, vocab):
    return ((codes + 1) % vocab).astype(np.int32)


def bytes_of(streams):
    return sum(s.rows * s.row_bytes for s in streams)


def fixed(predictor, taken, made=None, rejectable=225):
    """Every frame with these drafts: what the controller takes depends on this machine's times."""
    wanted = Lengths(np.array(taken if made is None else made), np.array(taken), rejectable)
    predictor._lengths = lambda: wanted


# -- bits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("format_name", ["bf16", "f16", "bf12", "q8_0"])
def test_own_drafts_give_the_bits_of_the_plain_decoder_and_of_the_oracle(predictable, format_name, threads):
    frames = inputs(predictable, 24)
    plain = traced(Decoder(predictable, threads, format=format_name), *frames)
    predictor = SpeculativeDecoder(predictable, threads, format=format_name)
    codes, logits = traced(predictor, *frames)
    assert np.array_equal(codes, plain[0])
    assert same_bits(logits, plain[1])
    fixed(predictor, THREE)
    again = traced(predictor, *frames)
    assert np.array_equal(again[0], plain[0])
    assert same_bits(again[1], plain[1])
    assert predictor.acceptance.held.sum() > 100, "nothing was accepted, so nothing was tried"
    few = tuple(x[:2] for x in frames)
    truth = oracle_logits(predictable, *few, arithmetic=arithmetic_of(format_name))
    assert np.array_equal(codes[:2], truth[0])
    assert same_bits(logits[:2], truth[1])


@pytest.mark.parametrize("format_name", ["bf16", "q8_0"])
def test_a_projected_model_speculates_too(format_name):
    model = projected_model()
    frames = inputs(model, 3)
    plain = traced(Decoder(model, 1, format=format_name), *frames)
    predictor = SpeculativeDecoder(model, 1, format=format_name)
    for drafts in (plain[0], wrong(plain[0], model.spec.vocab)):
        with predictor.drafting(drafts):
            codes, logits = traced(predictor, *frames)
        assert np.array_equal(codes, plain[0])
        assert same_bits(logits, plain[1])


def test_sampled_and_forced_codes_are_the_plain_decoders(predictable):
    frames = inputs(predictable, 20)
    forced = forced_codes(predictable, 20)
    plain, predictor = Decoder(predictable, 1, format="bf16"), SpeculativeDecoder(predictable, 1, format="bf16")
    for options in ({"noise": HOT}, {"forced": forced}, {"forced": forced, "noise": HOT}):
        want, got = traced(plain, *frames, **options), traced(predictor, *frames, **options)
        assert np.array_equal(got[0], want[0])
        assert same_bits(got[1], want[1])


def test_a_draft_is_drawn_with_the_noise_of_its_code(predictable):
    frames = inputs(predictable, 60)
    predictor = SpeculativeDecoder(predictable, 1, format="bf16")
    fixed(predictor, THREE)
    predictor.predict(*frames, noise=Sampling(seed=3, temperature=1.0, top_k=None))
    share = predictor.acceptance.held.sum() / predictor.acceptance.asked.sum()
    assert share > 0.5, "drafts by argmax would hardly be what is drawn"


def test_members_that_do_not_run_at_once_speculate_too(fresh_process):
    source = """
import json, numpy as np
from small_models import inputs
from cplab.decoder import Decoder
from cplab.sources import load_model
from cplab.speculation.decoder import SpeculativeDecoder
from cplab.speculation.draft_length import Lengths
model = load_model("synthetic:tiny-predictable")
frames = inputs(model, 8)
plain = Decoder(model, 1, format="bf16").predict(*frames)
predictor = SpeculativeDecoder(model, 2, format="bf16")
same = [np.array_equal(predictor.predict(*frames), plain)]
with predictor.drafting(plain):
    same.append(np.array_equal(predictor.predict(*frames), plain))
print(json.dumps([same, predictor.runs_in_one_region, predictor.last_frame().begins.tolist()]))
"""
    same, together, begins = fresh_process(
        source, NUMBA_NUM_THREADS=2, NUMBA_THREADING_LAYER="omp", OMP_THREAD_LIMIT="1"
    )
    assert same == [True, True]
    assert not together
    assert begins == [0]


# -- which passes -----------------------------------------------------------------------------------------------------


def test_right_drafts_take_one_pass_and_wrong_ones_as_many_as_there_are_codes(predictable, golden):
    predictor = SpeculativeDecoder(predictable, 1, format="bf16")
    frame = golden.hidden[:1], golden.cb0_embed[:1]
    with predictor.drafting(golden.codes):
        assert np.array_equal(predictor.predict(*frame), golden.codes[:1])
    assert predictor.last_frame().begins.tolist() == [0]
    with predictor.drafting(wrong(golden.codes, predictable.spec.vocab)):
        assert np.array_equal(predictor.predict(*frame), golden.codes[:1])
    assert predictor.last_frame().begins.tolist() == list(range(15))


@pytest.mark.parametrize("depth", range(1, 15))
def test_a_pass_ends_with_the_first_wrong_draft(predictable, golden, depth):
    predictor = SpeculativeDecoder(predictable, 1, format="bf16")
    drafts = golden.codes.copy()
    drafts[:, depth - 1] = wrong(drafts[:, depth - 1], predictable.spec.vocab)
    with predictor.drafting(drafts):
        codes = predictor.predict(golden.hidden[:2], golden.cb0_embed[:2])
    assert np.array_equal(codes, golden.codes[:2])
    assert predictor.last_frame().begins.tolist() == [0, depth]


def test_frames_of_a_batch_have_drafts_of_their_own(predictable, golden):
    predictor = SpeculativeDecoder(predictable, 1, format="bf16")
    drafts = np.stack([golden.codes[0], wrong(golden.codes[1], predictable.spec.vocab)])
    with predictor.drafting(drafts):
        assert np.array_equal(predictor.predict(golden.hidden[:2], golden.cb0_embed[:2]), golden.codes[:2])
    assert len(predictor.last_frame().begins) == 15


def test_what_a_frame_costs_is_told_of_the_frames_that_were_predicted(predictable):
    predictor = SpeculativeDecoder(predictable, 1, format="bf16")
    plain = Decoder(predictable, 1, format="bf16")
    assert (predictor.passes_per_frame, predictor.bytes_per_frame) == (15, plain.bytes_per_frame)
    fixed(predictor, THREE)
    predictor.predict(*inputs(predictable, 30))
    layers, head = predictor._weights.pass_bytes, bytes_of(predictor._weights.head_streams[:1])
    passes, drafts = predictor.acceptance.recent()
    assert 1 < passes < 15
    assert predictor.passes_per_frame == passes
    assert predictor.bytes_per_frame == passes * layers + (15 + drafts) * head
    assert bytes_of(predictor.streams()) == predictor.bytes_per_frame


def test_a_profile_counts_the_passes_that_were_run(predictable):
    predictor = SpeculativeDecoder(predictable, 1, format="bf16")
    plain = Decoder(predictable, 1, format="bf16").profile(*inputs(predictable, 1))
    with predictor.drafting(plain.codes):
        laps = predictor.profile(*inputs(predictable, 1))
    assert np.array_equal(laps.codes, plain.codes)
    assert laps.part_bytes[3] * 15 == plain.part_bytes[3]
    assert laps.part_bytes[8] == plain.part_bytes[8]
    assert (laps.pass_ns > 0).all()


# -- offsets ----------------------------------------------------------------------------------------------------------


def test_offsets_change_drafts_and_not_the_result(predictable):
    spec = predictable.spec
    offsets = np.random.default_rng(1).normal(0, 30, (spec.passes, 2, spec.hidden)).astype(np.float32)
    frames = inputs(predictable, 12)
    plain = traced(Decoder(predictable, 1, format="bf16"), *frames)
    without, having = (SpeculativeDecoder(predictable, 1, format="bf16", offsets=o) for o in (None, offsets))
    for predictor in (without, having):
        fixed(predictor, THREE)
        codes, logits = traced(predictor, *frames)
        assert np.array_equal(codes, plain[0])
        assert same_bits(logits, plain[1])
    assert having.acceptance.held.sum() < without.acceptance.held.sum() / 4, "noise as offsets, and drafts hold"


@pytest.mark.parametrize("shape", [(15, 64), (14, 2, 64), (15, 2, 32)])
def test_offsets_of_another_shape_are_refused(predictable, shape):
    with pytest.raises(BadInputError, match="offsets"):
        SpeculativeDecoder(predictable, 1, format="bf16", offsets=np.zeros(shape, np.float32))


@pytest.mark.parametrize("drafts", [np.zeros((1, 14)), np.zeros(15), np.full((1, 15), 256), np.full((1, 15), -1)])
def test_drafts_that_are_no_codes_are_refused(predictable, drafts):
    predictor = SpeculativeDecoder(predictable, 1, format="bf16")
    with pytest.raises(BadInputError, match="drafts"), predictor.drafting(drafts.astype(np.int32)):
        pass


# -- what is not finite -----------------------------------------------------------------------------------------------


def poisoned(model, table, code):
    """The model with an embedding row that no activation survives."""
    values = model.f32(f"model.codec_embedding.{table}.weight").copy()
    values[code] = np.inf
    return with_tensors(model, **{f"model__codec_embedding__{table}__weight": values})


@pytest.mark.parametrize("format_name", ["f32", "q8_0"])
def test_a_wrong_draft_that_is_not_finite_is_forgotten(predictable, golden, format_name):
    frame = golden.hidden[:1], golden.cb0_embed[:1]
    codes = Decoder(predictable, 1, format=format_name).predict(*frame)
    bad = int(codes[0, 4] + 1) % predictable.spec.vocab
    model = poisoned(predictable, 4, bad)
    assert np.array_equal(Decoder(model, 1, format=format_name).predict(*frame), codes)
    drafts = codes.copy()
    drafts[0, 4] = bad
    predictor = SpeculativeDecoder(model, 1, format=format_name)
    with predictor.drafting(drafts):
        assert np.array_equal(predictor.predict(*frame), codes)


@pytest.mark.parametrize("format_name", ["f32", "q8_0"])
def test_a_right_draft_that_is_not_finite_is_the_plain_decoders_error(predictable, golden, format_name):
    frame = golden.hidden[:1], golden.cb0_embed[:1]
    codes = Decoder(predictable, 1, format=format_name).predict(*frame)
    model = poisoned(predictable, 4, codes[0, 4])
    plain, predictor = Decoder(model, 1, format=format_name), SpeculativeDecoder(model, 1, format=format_name)
    with pytest.raises((NonFiniteLogitsError, NonFiniteActivationError)) as error:
        plain.predict(*frame)
    with predictor.drafting(codes), pytest.raises(type(error.value)) as again:
        predictor.predict(*frame)
    assert (again.value.frame, again.value.pass_index) == (error.value.frame, error.value.pass_index) == (0, 5)


# -- the gate ---------------------------------------------------------------------------------------------------------


class BelievesDrafts(SpeculativeDecoder):
    """Gives the draft of the last code for the code."""

    def _run(self, hidden, cb0, forced, *rest):
        codes = super()._run(hidden, cb0, forced, *rest)
        if self._given is not None:
            codes[0, -1] = self._given[0][0, -1]
        return codes


class NeverDrafts(SpeculativeDecoder):
    """Takes in no draft, whatever is handed in: right, and no speculation."""

    def _lengths(self):
        none = np.zeros(self.model.spec.passes, np.int64)
        return Lengths(none, none, 0)


class ForgetsTheForced(SpeculativeDecoder):
    """Feeds its own codes back where drafts are handed in."""

    def _run(self, hidden, cb0, forced, *rest):
        return super()._run(hidden, cb0, None if self._given is not None else forced, *rest)


class DrawsNothing(SpeculativeDecoder):
    """Forgets how codes are drawn where drafts are handed in."""

    def predict(self, hidden, cb0_embed, *, forced=None, trace=None, noise=None):
        noise = None if self._given is not None else noise
        return super().predict(hidden, cb0_embed, forced=forced, trace=trace, noise=noise)


class OneSetOfDrafts(SpeculativeDecoder):
    """Mixes up the frames of a batch."""

    def predict(self, hidden, cb0_embed, **options):
        codes = super().predict(hidden, cb0_embed, **options)
        return codes[[0] * len(codes)] if self._given is not None else codes


@pytest.mark.parametrize(
    ("faulty", "word"),
    [
        (BelievesDrafts, "wrong drafts: another code 14"),
        (NeverDrafts, "right drafts: passes began with codes"),
        (ForgetsTheForced, "forced codes: other bits"),
        (DrawsNothing, "right drafts of drawn codes: other bits"),
        (OneSetOfDrafts, "of 3 at once"),
    ],
)
def test_the_gate_finds(predictable, golden, faulty, word):
    report = judge(faulty(predictable, 1, format="bf16"), predictable, golden, frames=2)
    assert report.failed() == ["speculation"]
    assert word in report.detail()


def test_the_gate_passes_what_is_right_and_asks_nothing_of_others(predictable, golden):
    for kind, asked in ((SpeculativeDecoder, True), (Decoder, False)):
        report = judge(kind(predictable, 1, format="bf16"), predictable, golden, frames=2)
        assert report.passed
        assert ("speculation" in [check.name for check in report.checks]) is asked
