"""A quantised copy of the model drafts: it says what it would say alone, and the result is the exact model's."""

from __future__ import annotations

import numpy as np
import pytest
from small_models import HOT, forced_codes, inputs, projected_model, same_bits, with_tensors

from cplab.decoder import Decoder
from cplab.errors import UnpackableError
from cplab.gate import judge
from cplab.golden_making import golden_for
from cplab.kernels import plan as p
from cplab.sources import load_model
from cplab.speculation.decoder import SpeculativeDecoder
from cplab.speculation.draft_length import Lengths
from cplab.variant import Trace, get_variant

NAMES = ("spec_bf16_q4_0", "spec_bf16_q8_0", "spec_bf12_q4_0")
#: Ways to draft in a frame, as ``(made, taken, rejectable)``.
SCHEDULES = {
    "three before every pass": (3, 3, 225),
    "one": (1, 1, 225),
    "as many as there are": (14, 14, 225),
    "more made than taken in": (4, 2, 225),
    "only compared": (1, 0, 0),
    "none after two failed": (3, 3, 2),
    "none": (0, 0, 0),
}


@pytest.fixture(scope="module")
def predictable():
    return load_model("synthetic:tiny-predictable")


@pytest.fixture(scope="module")
def golden(predictable):
    return golden_for(predictable)


def bytes_of(streams):
    return sum(s.rows * s.row_bytes for s in streams)


def traced(predictor, *arguments, **options):
    trace = Trace()
    return predictor.predict(*arguments, trace=trace, **options), trace.logits


def drafting(model, drafter, made, taken, rejectable, *, threads=1, format="bf16"):
    """A decoder that drafts so in every frame; arrays, or numbers for every pass as far as there are codes left."""
    predictor = SpeculativeDecoder(model, threads, format=format, drafter=drafter)
    left = model.spec.passes - 1 - np.arange(model.spec.passes)
    wanted = Lengths(np.minimum(made, left), np.minimum(taken, left), rejectable)
    predictor._lengths = lambda: wanted
    return predictor


def alone(model, drafter, frames, frame, noise=None):
    """Each pass's drafts as the plain decoder of the drafter's format says them, fed what was known and its own."""
    plain = Decoder(model, 1, format=drafter)
    found = {}
    for g in frame.begins.tolist():
        fed = frame.fed.copy()
        for code in range(g, g + int(frame.made[g])):
            codes = plain.predict(*frames, forced=fed[None], noise=noise)
            fed[code] = codes[0, code]
        found[g] = fed[g : g + int(frame.made[g])].tolist()
    return found


def said(frame):
    return {g: frame.drafts[g, g : g + int(frame.made[g])].tolist() for g in frame.begins.tolist()}


# -- its drafts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
@pytest.mark.parametrize("drafter", ["q4_0", "q8_0"])
def test_drafts_are_what_the_quantised_model_says_after_what_is_known(predictable, drafter, schedule):
    predictor = drafting(predictable, drafter, *schedule)
    hidden, cb0 = inputs(predictable, 4)
    accepted = 0
    for i in range(4):
        frames = hidden[i : i + 1], cb0[i : i + 1]
        predictor.predict(*frames)
        frame = predictor.last_frame()
        assert said(frame) == alone(predictable, drafter, frames, frame)
        accepted += predictable.spec.passes - len(frame.begins)
    assert (accepted > 0) is (schedule[1] > 0), "nothing was accepted, so nothing had to be caught up with"


@pytest.mark.parametrize("seed", range(6))
def test_a_drafter_that_is_asked_now_and_then_catches_up_first(predictable, seed):
    random = np.random.default_rng(seed)
    taken = random.integers(0, 5, 15) * (random.random(15) < 0.4)
    predictor = drafting(predictable, "q8_0", taken, taken, 225)
    frames = inputs(predictable, 1)
    predictor.predict(*frames)
    frame = predictor.last_frame()
    assert said(frame) == alone(predictable, "q8_0", frames, frame)


def test_a_frame_knows_how_far_its_drafter_was_behind(predictable):
    taken = np.zeros(15, np.int64)
    taken[[0, 5, 6, 12]] = 1
    predictor = drafting(predictable, "q4_0", taken, taken, 225)
    codes = Decoder(predictable, 1, format="bf16").predict(*inputs(predictable, 1))
    for drafts, behind in ((codes, [(0, 2), (5, 5), (12, 7)]), ((codes + 1) % 256, [(0, 2), (5, 5), (6, 1), (12, 6)])):
        with predictor.drafting(drafts.astype(np.int32), controlled=True):
            predictor.predict(*inputs(predictable, 1))
        assert predictor.last_frame().caught_up() == behind


def test_drafts_that_are_handed_in_are_what_the_drafter_goes_on_from(predictable):
    """Then its cache holds what was accepted, also where it would have said something else."""
    predictor = drafting(predictable, "q4_0", 2, 2, 225)
    frames = inputs(predictable, 1)
    right = Decoder(predictable, 1, format="bf16").predict(*frames)
    with predictor.drafting(right, controlled=True):
        predictor.predict(*frames)
    assert predictor.last_frame().begins.tolist() == [0, 3, 6, 9, 12]
    fed = predictor.drafter._fed
    assert fed[:14].tolist() == right[0, :14].tolist()
    _, logits = traced(Decoder(predictable, 1, format="q4_0"), *frames, forced=right)
    own = predictor.drafter._arrays
    drafted = [code for g in (0, 3, 6, 9, 12) for code in (g, g + 1)]
    assert same_bits(own[p.LOGITS][0, drafted], logits[0, drafted])


def test_a_draft_is_drawn_with_the_noise_of_its_code(predictable):
    predictor = drafting(predictable, "q8_0", 3, 3, 225)
    frames = inputs(predictable, 1)
    predictor.predict(*frames, noise=HOT)
    frame = predictor.last_frame()
    assert said(frame) == alone(predictable, "q8_0", frames, frame, noise=HOT)
    assert len(frame.begins) < 15, "drafts by argmax would hardly be what is drawn"


def test_a_drafter_that_is_not_asked_does_nothing(predictable):
    predictor = drafting(predictable, "q4_0", 0, 0, 0)
    written = [predictor.drafter._arrays[index] for index in (p.RESIDUAL, p.KEYS, p.VALUES, p.LOGITS)]
    for array in written:
        array[:] = np.nan
    predictor.predict(*inputs(predictable, 3))
    assert all(np.isnan(array).all() for array in written)


# -- the result -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("format_name", "drafter"), [("bf16", "q4_0"), ("bf16", "q8_0"), ("bf12", "q4_0")])
def test_bits_are_the_plain_decoders_sampled_and_forced_ones_too(fresh_process, format_name, drafter, threads):
    source = f"""
import json, numpy as np
from small_models import HOT, forced_codes, inputs, same_bits
from cplab.decoder import Decoder
from cplab.sources import load_model
from cplab.speculation.decoder import SpeculativeDecoder
from test_drafting_model import SCHEDULES, drafting, traced
model = load_model("synthetic:tiny-predictable")
frames = inputs(model, 4)
forced = forced_codes(model, 4)
plain = Decoder(model, {threads}, format={format_name!r})
own = SpeculativeDecoder(model, {threads}, format={format_name!r}, drafter={drafter!r})
made = [drafting(model, {drafter!r}, *s, threads={threads}, format={format_name!r}) for s in SCHEDULES.values()]
same = []
for options in ({{}}, {{"noise": HOT}}, {{"forced": forced}}, {{"forced": forced, "noise": HOT}}):
    want = traced(plain, *frames, **options)
    for predictor in (own, *made):
        got = traced(predictor, *frames, **options)
        same.append(bool(np.array_equal(got[0], want[0]) and same_bits(got[1], want[1])))
print(json.dumps([same, own.runs_in_one_region]))
"""
    same, together = fresh_process(source, NUMBA_NUM_THREADS=threads)
    assert same == [True] * 4 * (1 + len(SCHEDULES))
    assert together


def test_members_that_do_not_run_at_once_draft_the_same(fresh_process):
    source = """
import json, numpy as np
from small_models import inputs
from cplab.decoder import Decoder
from cplab.sources import load_model
from test_drafting_model import alone, drafting, said
model = load_model("synthetic:tiny-predictable")
frames = inputs(model, 1)
predictor = drafting(model, "q4_0", 3, 3, 225, threads=2)
codes = predictor.predict(*frames)
frame = predictor.last_frame()
same = bool(np.array_equal(codes, Decoder(model, 1, format="bf16").predict(*frames)))
print(json.dumps([same, said(frame) == alone(model, "q4_0", frames, frame), predictor.runs_in_one_region]))
"""
    found = fresh_process(source, NUMBA_NUM_THREADS=2, NUMBA_THREADING_LAYER="omp", OMP_THREAD_LIMIT="1")
    assert found == [True, True, False]


def test_a_projected_model_is_drafted_for_too():
    model = projected_model()
    frames = inputs(model, 3)
    codes, logits = traced(Decoder(model, 1, format="bf16"), *frames)
    predictor = drafting(model, "q8_0", 2, 2, 225)
    got = traced(predictor, *frames)
    assert np.array_equal(got[0], codes)
    assert same_bits(got[1], logits)
    frame, last = predictor.last_frame(), tuple(x[2:] for x in frames)
    assert said(frame) == alone(model, "q8_0", last, frame)


@pytest.mark.parametrize("name", NAMES)
def test_the_gate_passes_it(predictable, golden, name):
    report = judge(get_variant(name).build(predictable, 1), predictable, golden, frames=2)
    assert report.passed
    assert "speculation" in [check.name for check in report.checks]


def test_forced_codes_are_fed_to_the_drafter(predictable):
    predictor = drafting(predictable, "q4_0", 2, 2, 225)
    frames = inputs(predictable, 1)
    predictor.predict(*frames, forced=forced_codes(predictable, 1))
    frame = predictor.last_frame()
    assert said(frame) == alone(predictable, "q4_0", frames, frame)


# -- what it costs ----------------------------------------------------------------------------------------------------


def test_its_bytes_count_as_read(predictable):
    predictor = drafting(predictable, "q4_0", 3, 3, 225)
    predictor.predict(*inputs(predictable, 20))
    passes, drafts = predictor.acceptance.recent()
    assert passes < drafts < 15
    own, drafter = predictor._weights, predictor.drafter._weights
    read = bytes_of(predictor.streams())
    assert read == predictor.bytes_per_frame
    head = bytes_of(drafter.head_streams[:1])
    assert read == passes * own.pass_bytes + bytes_of(own.head_streams) + drafts * (drafter.pass_bytes + head)
    assert bytes_of(predictor.drafter.reads(3)) == drafter.pass_bytes + head < own.pass_bytes


def test_its_part_of_a_profile_is_told(predictable):
    plain = Decoder(predictable, 1, format="bf16")
    predictor = drafting(predictable, "q8_0", 1, 0, 0)
    frames = inputs(predictable, 1)
    laps, drafting_laps = plain.profile(*frames), predictor.profile(*frames)
    assert np.array_equal(laps.codes, drafting_laps.codes)
    assert drafting_laps.ns[0, :, 2].sum() > 0, "nobody but the drafter quantises"
    quantised = Decoder(predictable, 1, format="q8_0").profile(*frames)
    # A draft before each pass but the last: as many as a plain frame of the drafter's has passes, less one.
    of_layers = slice(3, 8)
    assert ((drafting_laps.part_bytes - laps.part_bytes)[of_layers] * 15 == quantised.part_bytes[of_layers] * 14).all()


def test_records_name_the_drafter(predictable):
    for drafter in ("heads", "q8_0"):
        predictor = SpeculativeDecoder(predictable, 1, format="bf16", drafter=drafter)
        predictor.predict(*inputs(predictable, 8))
        facts = predictor.acceptance.facts()
        assert facts["drafter"] == drafter
        assert facts["frames"] == 8


def test_a_model_that_cannot_be_quantised_is_refused(predictable):
    huge = predictable.f32("lm_head.3.weight").copy()
    huge[0, 0] = 1e20
    model = with_tensors(predictable, lm_head__3__weight=huge)
    with pytest.raises(UnpackableError):
        SpeculativeDecoder(model, 1, format="f32", drafter="q4_0")
