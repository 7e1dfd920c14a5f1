"""The prefetch distance is found once, kept for its code and CPU, and never taken on trust from a damaged file."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cplab import tuning
from cplab.decoder import Decoder
from cplab.spec import PRESETS


class Slow:
    """A predictor for which one distance is better than the others."""

    tuning_key = "bf16 x 2"

    def __init__(self, best, clock, gain=0.5):
        self.ahead_bytes, self.best, self.clock, self.gain, self.calls = 5000, best, clock, gain, []

    def predict(self, hidden, cb0_embed):
        self.calls.append(self.ahead_bytes)
        self.clock.now += int(1e6 * (1 - self.gain if self.ahead_bytes == self.best else 1))


@pytest.fixture
def clock(monkeypatch, tmp_path):
    class Clock:
        now = 0

    monkeypatch.setenv("CPLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(tuning.time, "perf_counter_ns", lambda: Clock.now)
    return Clock


FRAMES = np.zeros((3, 4), np.float32)
FRAMES_OF_TINY = np.ones((3, 64), np.float32)


@pytest.mark.parametrize("best", tuning.DISTANCES)
def test_the_fastest_distance_is_found_set_and_kept(clock, best):
    predictor = Slow(best, clock)
    assert tuning.tune_once(predictor, FRAMES, FRAMES) == best == predictor.ahead_bytes
    assert tuning.found_distance("bf16 x 2") == best
    assert tuning.found_distance("bf16 x 1") is None
    again = Slow(0, clock)
    assert tuning.tune_once(again, FRAMES, FRAMES) == best == again.ahead_bytes
    assert again.calls == []


def test_a_gain_within_the_noise_keeps_the_default(clock):
    predictor = Slow(8192, clock, gain=0.005)
    assert tuning.tune_once(predictor, FRAMES, FRAMES) == 5000 == predictor.ahead_bytes


def test_tries_are_interleaved(clock):
    predictor = Slow(8192, clock)
    tuning.tune_once(predictor, FRAMES, FRAMES)
    count = len(tuning.DISTANCES) + 1
    assert len(predictor.calls) == tuning.TRIES * count
    assert len(set(predictor.calls[:count])) == count


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"bf16 x 2": 3}',
        '{"bf16 x 2": {"ahead_bytes": "far"}}',
        '{"bf16 x 2": {"ahead_bytes": true}}',
        '{"bf16 x 2": {"ahead_bytes": 1' + "0" * 30 + "}}",
        "[" * 100_000,
    ],
)
def test_a_damaged_file_counts_as_none(clock, text):
    tuning.tune_once(Slow(8192, clock), FRAMES, FRAMES)
    tuning._path().write_text(text)
    assert tuning.found_distance("bf16 x 2") is None
    assert tuning.tune_once(Slow(4096, clock), FRAMES, FRAMES) == 4096


def test_a_decoder_takes_what_was_found_and_an_argument_before_it(tiny, monkeypatch):
    key = tuning.tuning_key("bf16", 1, tiny.spec)
    monkeypatch.setattr("cplab.decoder.found_distance", lambda asked: {key: 12288}.get(asked))
    assert Decoder(tiny, 1, format="bf16").ahead_bytes == 12288
    assert Decoder(tiny, 1, format="bf16", ahead_bytes=64).ahead_bytes == 64
    assert Decoder(tiny, 1, format="f16").ahead_bytes == 4 * 64 * 2


def test_several_keys_share_a_file(clock):
    tuning.tune_once(Slow(8192, clock), FRAMES, FRAMES)
    other = Slow(4096, clock)
    other.tuning_key = "q8_0 x 4"
    tuning.tune_once(other, FRAMES, FRAMES)
    assert {key: one["ahead_bytes"] for key, one in json.loads(tuning._path().read_text()).items()} == {
        "bf16 x 2": 8192,
        "q8_0 x 4": 4096,
    }


def test_what_a_small_model_found_is_not_taken_for_a_large_one(tiny, clock):
    distance = tuning.tune_once(Decoder(tiny, 1, format="bf16", ahead_bytes=64), FRAMES_OF_TINY, FRAMES_OF_TINY)
    assert Decoder(tiny, 1, format="bf16").ahead_bytes == distance
    assert tuning.found_distance(tuning.tuning_key("bf16", 1, PRESETS["0.6b"])) is None
    assert tuning.tuning_key("bf16", 1, PRESETS["0.6b"]) == tuning.tuning_key("bf16", 1, PRESETS["1.7b"])
