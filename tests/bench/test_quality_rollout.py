"""Long rollouts: the stand-in listens, the law agrees with itself, a collapse is seen, a NaN ends it and is told."""

from __future__ import annotations

import numpy as np
import pytest

from bench.quality.rollout import EVERY, beside, collapse, rollout, unrelated
from bench.quality.standin_talker import StandInTalker
from bench.quality.talkers import rollout_talker
from bench.quality.teacher_forced import answers
from cplab.decoder import Decoder
from cplab.errors import NonFiniteLogitsError
from cplab.orchestrate import Embeddings, seeded_prompt

FRAMES = 60


def rolled(predictor, model, frames=FRAMES):
    with rollout_talker("", model.spec, 1, frames) as (talker, rules, _):
        return rollout(predictor, model, talker, rules, frames)


@pytest.fixture(scope="module")
def decoder(tiny):
    return Decoder(tiny, 1, format="bf16")


@pytest.fixture(scope="module")
def reference(tiny, decoder):
    return rolled(decoder, tiny)


class Wrapped:
    """A decoder whose codes are changed by ``change(frame, codes)``."""

    def __init__(self, decoder, change):
        self.decoder, self.change, self.frame = decoder, change, -1
        self.passes_per_frame, self.bytes_per_frame = decoder.passes_per_frame, 0

    def predict(self, hidden, cb0_embed, **options):
        self.frame += 1
        return self.change(self.frame, self.decoder.predict(hidden, cb0_embed, **options))

    def streams(self):
        return []


def test_the_same_codes_give_the_same_bits_and_any_other_code_is_heard(tiny):
    talker, prompt = StandInTalker(tiny.spec), seeded_prompt(tiny.spec.talker_hidden)
    embeddings = Embeddings(talker.codec_embedding, tiny)
    codes = np.array([3, 1, 2], np.int32)

    def heard(codes):
        talker.prefill(prompt.prefill)
        return talker.step(embeddings.next_input(codes, prompt.tts_pad))

    first = heard(codes)
    assert first.hidden.tobytes() == heard(codes).hidden.tobytes()
    for g in range(3):
        other = codes.copy()
        other[g] += 1
        assert (heard(other).hidden != first.hidden).mean() > 0.9
    assert np.sqrt(np.mean(first.hidden**2)) == pytest.approx(6.6, rel=1e-3)


def test_what_was_said_long_ago_is_still_heard(tiny):
    talker, prompt = StandInTalker(tiny.spec), seeded_prompt(tiny.spec.talker_hidden)
    states = []
    for prefill in (prompt.prefill, prompt.prefill[::-1]):
        talker.prefill(prefill)
        for x in prompt.prefill[:4]:
            heard = talker.step(x)
        states.append(heard.hidden)
    assert not np.array_equal(*states)


def test_a_loop_is_the_orchestras(tiny, reference):
    """Each frame's hidden state is what the talker makes of the sum of the frame before."""
    talker, prompt = StandInTalker(tiny.spec), seeded_prompt(tiny.spec.talker_hidden)
    embeddings = Embeddings(talker.codec_embedding, tiny)
    heard = talker.prefill(prompt.prefill)
    for frame in range(12):
        assert reference.hidden[frame].tobytes() == heard.hidden.tobytes()
        codes = np.concatenate([[heard.logits.argmax()], reference.codes[frame]]).astype(np.int32)
        text = prompt.trailing[frame] if frame < len(prompt.trailing) else prompt.tts_pad
        heard = talker.step(embeddings.next_input(codes, text))


def test_the_law_beside_itself_never_parts(tiny, decoder, reference):
    again = rolled(decoder, tiny)
    found = beside(again, reference, answers(decoder, reference.along()))
    assert found.first_difference is None
    assert found.agreement == [1, 1]
    assert found.along_agreement == [1, 1]
    assert found.along_kl == [0, 0]
    assert len(reference.kept) == FRAMES / EVERY
    assert found.own.frames == FRAMES
    assert found.own.distinct > 20


def test_one_other_code_makes_it_another_utterance_but_no_worse_along(tiny, decoder, reference):
    def change(frame, codes):
        return codes if frame != 10 else (codes + 1) % tiny.spec.vocab

    found = beside(rolled(Wrapped(decoder, change), tiny), reference, answers(decoder, reference.along()))
    assert found.first_difference == 10
    assert found.agreement[1] < 0.5
    assert found.along_agreement == [1, 1]


def test_a_collapse_is_seen(tiny, decoder, reference):
    found = collapse(rolled(Wrapped(decoder, lambda frame, codes: np.zeros_like(codes)), tiny))
    assert (found.distinct, found.repeats, found.codes_used) == (1, FRAMES - 1, tiny.spec.passes)
    assert collapse(reference).repeats < FRAMES / 4


def test_non_finite_logits_end_it_and_the_rest_agrees_nowhere(tiny, decoder, reference):
    def change(frame, codes):
        if frame == 25:
            raise NonFiniteLogitsError(0, 1)
        return codes

    said = rolled(Wrapped(decoder, change), tiny)
    assert said.stopped == "frame 25: non-finite logits in pass 1"
    found = beside(said, reference, None)
    assert (found.own.frames, found.own.non_finite, found.first_difference) == (25, 1, 25)
    assert found.agreement == [0.5, 0]
    assert found.along_agreement == []


def test_logits_that_are_not_finite_are_counted_where_nobody_stops(tiny, decoder):
    class Numb(Wrapped):
        def predict(self, hidden, cb0_embed, *, trace=None, **options):
            codes = super().predict(hidden, cb0_embed, trace=trace, **options)
            if trace is not None and self.frame in (4, 6):
                trace.logits[0, 1, 7] = np.inf
            return codes

    found = collapse(rolled(Numb(decoder, lambda frame, codes: codes), tiny, 10))
    assert (found.frames, found.non_finite) == (10, 2)


def test_a_rollout_that_stops_at_once_is_told(tiny, decoder):
    def change(frame, codes):
        raise NonFiniteLogitsError(0, 0)

    said = rolled(Wrapped(decoder, change), tiny)
    assert said.codes.shape == (0, tiny.spec.passes)
    assert collapse(said).frames == 0


def test_unrelated_frames_share_what_chance_gives(reference):
    half = FRAMES // 2
    assert unrelated(reference) == (reference.codes[:half] == reference.codes[half:]).mean()


def test_one_frame_has_nothing_to_be_unrelated_to(tiny, decoder):
    said = rolled(decoder, tiny, 1)
    assert unrelated(said) is None
    found = beside(said, said, None)
    assert found.own.frames == 1
    assert "NaN" not in found.model_dump_json()
