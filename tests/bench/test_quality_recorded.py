"""Recorded codes, pinned: a real clip's, where the recordings are there, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.quality.recorded_codes import recorded_frames
from bench.quality.teacher_forced import measure
from bench.quality.truth import Truth
from cplab.decoder import Decoder
from cplab.errors import BadInputError
from cplab.model import Model
from cplab.oracle import Oracle
from cplab.sources import synthetic
from cplab.spec import Spec
from cplab.variant import Trace

RECORDED = Path(__file__).parents[2].parent / "shared" / "data" / "icl_ref_codes.npy"
needs_recordings = pytest.mark.skipif(not RECORDED.exists(), reason="recorded codes of real speech are not there")
#: As many codebooks and codes as the published model, small otherwise.
SPEC = Spec(
    hidden=64, intermediate=96, layers=2, heads=4, kv_heads=2, head_dim=16, vocab=2048, groups=16, rope_theta=1e6,
    rms_eps=1e-6, talker_hidden=64, projected=False,
)  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return Model("small", SPEC, {t.name: t for t in synthetic.tensors("synthetic:recorded", SPEC)})


@needs_recordings
def test_a_real_clips_codes_are_fed_back_and_judge_every_codebook(model):
    hidden, cb0, codes = recorded_frames(model, "small.gguf", RECORDED, None, None)
    recorded = np.load(RECORDED)
    assert np.array_equal(codes, recorded[:, 1:])
    assert len(np.unique(codes, axis=0)) == len(codes) == 101
    assert hidden.shape == cb0.shape == (101, 64)
    exact, trace = Decoder(model, 1, format="bf16"), Trace()
    exact.predict(hidden, cb0, forced=codes, trace=trace)
    assert trace.logits[7].tobytes() == Oracle(model).scored(hidden[7], cb0[7], codes[7]).logits.tobytes()
    truth = Truth(hidden, cb0, codes, trace.logits)
    found = {kind: measure(Decoder(model.repacked(kind)[0], 1, format=kind), truth) for kind in ("q8_0", "q4_0")}
    assert found["q8_0"].rows == 101 * 15
    assert len(found["q8_0"].kl_by_codebook) == 15
    assert 0 < found["q8_0"].kl.hi < found["q4_0"].kl.lo
    assert found["q8_0"].agreement.lo > found["q4_0"].agreement.hi
    assert found["q8_0"].agreement.value < 1 == measure(exact, truth).agreement.value


def test_cb0s_embedding_is_its_codes(model, tmp_path):
    codes = np.zeros((4, 16), np.int32)
    codes[:, 0] = (5, 9, 5, 2047)
    np.save(tmp_path / "codes.npy", codes)
    _, cb0, _ = recorded_frames(model, "small.gguf", tmp_path / "codes.npy", None, None)
    assert np.array_equal(cb0[0], cb0[2])
    assert not np.array_equal(cb0[0], cb0[1])


def test_hidden_states_go_with_their_codes(model, tmp_path):
    np.save(tmp_path / "codes.npy", np.zeros((4, 16), np.int64))
    states = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    np.save(tmp_path / "hidden.npy", states)
    hidden, _, codes = recorded_frames(model, "m.gguf", tmp_path / "codes.npy", tmp_path / "hidden.npy", 3)
    assert np.array_equal(hidden, states[:3])
    assert len(codes) == 3
    np.save(tmp_path / "hidden.npy", states[:2])
    with pytest.raises(BadInputError, match="2 hidden states"):
        recorded_frames(model, "m.gguf", tmp_path / "codes.npy", tmp_path / "hidden.npy", None)


@pytest.mark.parametrize(
    "codes", [np.zeros((3, 15), np.int32), np.zeros((3, 16), np.float32), np.full((3, 16), 2048), np.full((3, 16), -1)]
)
def test_codes_of_another_shape_or_beyond_the_tables_are_refused(model, tmp_path, codes):
    np.save(tmp_path / "codes.npy", codes)
    with pytest.raises(BadInputError, match=r"codes\.npy"):
        recorded_frames(model, "small.gguf", tmp_path / "codes.npy", None, None)
