"""The loop with a talker made up for it: what is fed back, what is taken down, and when it ends."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from small_models import projected_model

from cplab.cb0 import Rules, drawn
from cplab.errors import BadInputError
from cplab.orchestrate import Embeddings, Speech, seeded_prompt
from cplab.orchestrate_compare import compared, must_fit
from cplab.recorded import Prompt, read_codes
from cplab.sampling import Sampling
from cplab.spec import PRESETS
from cplab.tablet import TABLET
from cplab.talker import Heard
from cplab.talker_dump import TalkerDump
from cplab.thread_pools import Pools, Shared
from cplab.variant import get_variant

SPEC = PRESETS["tiny"]
VOCAB = SPEC.vocab + 1024
END = SPEC.vocab + 102


class MadeUpTalker:
    """States that depend on all that was fed; CB0's logits as a script says."""

    def __init__(self, cb0s):
        rng = np.random.default_rng(4)
        self.codec_embedding = rng.standard_normal((VOCAB, SPEC.talker_hidden)).astype(np.float32)
        self.cb0s = list(cb0s)
        self.fed = []

    def prefill(self, X):
        self.fed = [row.copy() for row in X]
        return self._heard(0)

    def step(self, x):
        self.fed.append(x.copy())
        return self._heard(len(self.fed) - self.first)

    first = 19

    def _heard(self, call):
        logits = np.zeros(VOCAB, np.float32)
        logits[self.cb0s[min(call, len(self.cb0s) - 1)]] = 9
        return Heard(np.cumsum(self.fed, axis=0, dtype=np.float32)[-1], logits)


def speech(model, cb0s=(3, 9, 3, 250), **changes):
    talker = MadeUpTalker(cb0s)
    made = Speech(
        talker,
        get_variant("kv_f32").build(model, 1),
        Embeddings(talker.codec_embedding, model),
        seeded_prompt(SPEC.talker_hidden),
        Rules.of_vocabulary(VOCAB),
    )
    return dataclasses.replace(made, **changes) if changes else made


def expected_input(model, talker, prompt, codes, frame):
    """The law written out: CB0, CB1, CB2, then text or pad, each sum rounded to float32."""
    total = talker.codec_embedding[codes[0]]
    for g, code in enumerate(codes[1:]):
        total = np.float32(1) * total + model.f32(f"model.codec_embedding.{g}.weight")[code]
    return total + (prompt.trailing[frame] if frame < len(prompt.trailing) else prompt.tts_pad)


def test_what_is_fed_back_is_the_sum_in_order(tiny):
    made = speech(tiny, cb0s=range(30))
    run = made.run(11)
    fed = made.talker.fed
    assert np.array_equal(fed[:19], made.prompt.prefill)
    assert np.array_equal(fed[19:], run.inputs)
    assert run.codes[:, 0].tolist() == list(range(11))
    for frame, codes in enumerate(run.codes):  # eight frames with text, three with the pad
        expected = expected_input(tiny, made.talker, made.prompt, codes, frame)
        assert run.inputs[frame].tobytes() == expected.tobytes()


def test_the_other_codes_are_the_code_predictors(tiny):
    made = speech(tiny)
    run = made.run(6)
    alone = get_variant("numpy_f32").build(tiny, 1)
    others = alone.predict(run.hidden, made.talker.codec_embedding[run.codes[:, 0]])
    assert np.array_equal(run.codes[:, 1:], others)
    assert np.array_equal(run.predicted, run.codes)


def test_the_code_predictor_draws_by_the_frames_index(tiny):
    sampling = Sampling(seed=4, temperature=2.5, frame=100)
    made = speech(tiny, cb0s=(3, 3, 3), sampling=sampling)
    run = made.run(3)
    for frame, (codes, hidden) in enumerate(zip(run.codes, run.hidden, strict=True)):
        cb0 = made.embeddings.of_cb0[codes[:1]]
        noise = dataclasses.replace(sampling, frame=100 + frame)
        assert made.predictor.predict(hidden[None], cb0, noise=noise)[0].tolist() == codes[1:].tolist()
    assert (run.codes != speech(tiny, cb0s=(3, 3, 3)).run(3).codes).any()


def test_cb0_is_drawn_by_the_frames_index(tiny):
    sampling = Sampling(seed=4, temperature=3.0, frame=100)
    made = speech(tiny, cb0_sampling=sampling)
    run = made.run(4)
    logits = [made.talker.prefill(made.prompt.prefill).logits, *(made.talker.step(x).logits for x in run.inputs[:-1])]
    expected = [
        drawn(made.rules.ruled(row, run.codes[:frame, 0].tolist()), sampling, frame) for frame, row in enumerate(logits)
    ]
    assert run.codes[:, 0].tolist() == expected
    assert expected != [3, 9, 3, 250]


def test_noise_of_one_call_is_not_taken_for_a_whole_run(tiny):
    noise = Sampling(noise=np.zeros((1, 2, 256), np.float32))
    for changes in ({"sampling": noise}, {"cb0_sampling": noise}):
        with pytest.raises(BadInputError, match="by a seed"):
            speech(tiny, **changes)


def test_the_end_code_ends_it_and_is_no_frame(tiny):
    run = speech(tiny, cb0s=[5, END, 6, 7, END]).run(20)
    assert run.ended
    assert run.codes[:, 0].tolist() == [5, 0, 6, 7]  # before two frames it is barred; what is left is all alike
    assert len(run.inputs) == len(run.hidden) == len(run.times.talker) == 4


def test_the_frames_asked_for_end_it(tiny):
    run = speech(tiny).run(3)
    assert not run.ended
    assert run.codes.shape == (3, SPEC.groups)
    assert run.codes.dtype == np.int32
    with pytest.raises(BadInputError, match="frames is 0"):
        speech(tiny).run(0)


def test_a_teachers_codes_are_fed_back_and_the_own_ones_kept(tiny):
    teacher = np.array([[1, 2, 3], [END, 5, 6], [7, 8, 9]], np.int32)
    made = speech(tiny, cb0s=[4, 4, END], teacher=teacher)
    run = made.run(10)
    assert np.array_equal(run.codes, teacher)
    assert not run.ended
    assert run.predicted[:, 0].tolist() == [4, 4, END]
    predictor = get_variant("kv_f32").build(tiny, 1)
    others = predictor.predict(run.hidden, made.talker.codec_embedding[teacher[:, 0]], forced=teacher[:, 1:])
    assert np.array_equal(run.predicted[:, 1:], others)
    for frame in range(3):
        expected = expected_input(tiny, made.talker, made.prompt, teacher[frame], frame)
        assert run.inputs[frame].tobytes() == expected.tobytes()


def test_a_talker_wider_than_the_code_predictor_is_fed_its_own_width():
    """The 1.7B: tables are as wide as the talker, and what is fed back has not been through the projection."""
    model = projected_model()
    table = np.random.default_rng(2).standard_normal((VOCAB, 96)).astype(np.float32)
    codes, text = np.array([900, 1, 2, 3, 4], np.int32), np.ones(96, np.float32)
    total = table[900]
    for g in range(4):
        total = total + model.f32(f"model.codec_embedding.{g}.weight")[codes[g + 1]]
    assert Embeddings(table, model).next_input(codes, text).tobytes() == (total + text).tobytes()


def test_the_times_add_up(tiny):
    times = speech(tiny).run(5).times
    assert (times.other > 0).all()
    assert np.array_equal(times.talker + times.cp + times.other, times.frame)
    assert times.prefill > 0


def test_a_prompt_without_pad_is_refused(tiny):
    prompt = seeded_prompt(SPEC.talker_hidden)
    with pytest.raises(BadInputError, match="tts_pad"):
        speech(tiny, prompt=Prompt(prompt.prefill))


# -- against a dump ---------------------------------------------------------------------------------------------------


def dump_of(made, run, model, **changes):
    width, prompt = SPEC.talker_hidden, made.prompt
    values = {
        "prefill": prompt.prefill,
        "trailing": prompt.trailing,
        "tts_pad": prompt.tts_pad,
        "tts_bos": np.zeros(width, np.float32),
        "tts_eos": np.zeros(width, np.float32),
        "hidden": run.hidden,
        "logits": np.zeros((len(run.codes), VOCAB), np.float32),
        "codes": run.codes,
        "step_inputs": run.inputs,
        "final_hidden": run.hidden[0],
        "final_logits": np.zeros(VOCAB, np.float32),
        "codec_embedding": made.talker.codec_embedding,
        "code_predictor_tables": np.stack([model.f32(f"model.codec_embedding.{g}.weight") for g in range(SPEC.passes)]),
        "ended": "frames",
        "talker_digest": "",
        "code_predictor_digest": model.digest(),
        "config": {},
        "rules": {},
        "provenance": {},
    }
    return TalkerDump(**(values | changes))


def test_a_run_beside_its_own_dump(tiny):
    made = speech(tiny)
    run = made.run(10)
    against = compared(run, dump_of(made, run, tiny))
    assert against.equal.tolist() == [10, 10, 10]
    assert against.steps.tolist() == list(range(10))
    assert (against.rmse == 0).all()
    assert np.allclose(against.cosine, 1, atol=1e-12)
    assert against.exact == 10
    assert against.sums_are_right


def test_only_steps_with_all_codes_alike_are_compared(tiny):
    made = speech(tiny)
    run = made.run(10)
    codes = run.codes.copy()
    codes[4, 2] = (codes[4, 2] + 1) % SPEC.vocab
    codes[6, 0] += 1
    against = compared(run, dump_of(made, run, tiny, codes=codes))
    assert against.equal.tolist() == [9, 10, 9]
    assert against.steps.tolist() == [0, 1, 2, 3, 5, 7, 8, 9]
    assert against.sums_are_right


@pytest.mark.parametrize("wrong", ["order", "text", "table"])
def test_a_sum_that_is_wrong_is_told(tiny, wrong):
    made = speech(tiny)
    run = made.run(10)
    inputs = run.inputs.copy()
    if wrong == "order":  # the same terms from the last to the first: equal but for rounding
        terms = dump_of(made, run, tiny).terms(3)
        inputs[3] = terms[::-1].cumsum(axis=0, dtype=np.float32)[-1]
    elif wrong == "text":
        inputs[3] += made.prompt.trailing[4] - made.prompt.trailing[3]
    else:
        inputs[3] -= tiny.f32("model.codec_embedding.1.weight")[run.codes[3, 2]]
    against = compared(dataclasses.replace(run, inputs=inputs), dump_of(made, run, tiny))
    assert against.exact == 9
    assert not against.sums_are_right
    assert against.rmse.argmax() == 3
    assert (against.cosine[3] > 0.99999) == (wrong == "order")


def test_a_dump_of_other_dimensions_is_refused(tiny):
    made = speech(tiny)
    dump = dump_of(made, made.run(2), tiny)
    must_fit(dump, SPEC, "d.npz")
    for field in ("talker_hidden", "vocab"):
        changes = {field: 2 * getattr(SPEC, field)}
        other = dataclasses.replace(SPEC, **changes, projected=True)
        with pytest.raises(BadInputError, match=r"d\.npz: a dump of width 64, 3 codebooks of 256 codes"):
            must_fit(dump, other, "d.npz")


def test_codes_of_other_shapes_or_beyond_their_tables_are_no_teacher(tmp_path):
    path = tmp_path / "c.npy"
    good = np.array([[END, 255, 0], [0, 0, 0]])
    np.save(path, good)
    assert np.array_equal(read_codes(path, SPEC, VOCAB), good)
    beyond, beyond0 = good + np.array([0, 1, 0]), good + np.array([VOCAB, 0, 0])
    for wrong in (good[:, :2], good[0], good.astype(float), good[:0], good - 1, beyond, beyond0):
        np.save(path, wrong)
        with pytest.raises(BadInputError, match=r"c\.npy"):
            read_codes(path, SPEC, VOCAB)


# -- figures ----------------------------------------------------------------------------------------------------------


def shared(alone, cold, in_loop):
    return Shared(*(np.array([ns - 10, ns, ns + 30]) for ns in (alone, cold, in_loop)))


@pytest.mark.parametrize(
    ("alone", "cold", "in_loop", "cause"),
    [
        (100, 100, 110, ""),
        (100, 108, 115, "caches"),
        (100, 100, 115, "spin"),
        (100, 104, 150, "spin"),
    ],
)
def test_why_one_takes_longer_in_the_loop(alone, cold, in_loop, cause):
    told = shared(alone, cold, in_loop)
    assert told.ratio == in_loop / alone
    assert cause in told.cause
    assert bool(told.cause) == bool(cause)
    calm = shared(100, 100, 100)
    for pools in (Pools(told, calm, (), 1.0), Pools(calm, told, (), 1.0)):
        assert pools.at_peace == (not cause)


def test_a_busy_machine_is_told():
    calm = shared(100, 100, 100)
    assert Pools(calm, calm, (), 0.5).disturbed
    assert not Pools(calm, calm, (), 0.95).disturbed


def test_the_tablets_figures_are_those_of_one_utterance():
    t = TABLET
    assert abs(t.talker_s / t.steps * 1e3 - t.talker_ms) < 0.1
    assert abs(t.cp_s / t.steps * 1e3 - t.cp_ms) < 0.1
    assert abs(t.prefill_s + t.loop_s - t.total_s) < 1e-9
    assert abs(t.total_s / t.audio_s - t.rtf) < 0.01
