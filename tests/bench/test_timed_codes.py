"""What was timed is what was right: the golden's codes, or of tier quality the engine's own."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from bench.timed_codes import TimedCodes

GOLDEN = SimpleNamespace(
    hidden=np.zeros((3, 4), np.float32),
    cb0_embed=np.zeros((3, 4), np.float32),
    codes=np.array([[1, 2], [3, 0], [2, 2]], np.int32),
)


class Engine:
    """Says ``codes`` whatever it hears; with a trace, from ``logits``."""

    def __init__(self, codes, logits=None):
        self.codes, self.logits = np.array([codes], np.int32), logits

    def predict(self, hidden, cb0_embed, *, trace=None):
        if trace is not None:
            trace.logits = self.logits
        return self.codes


def logits_of(codes):
    logits = np.zeros((1, 2, 5), np.float32)
    logits[0, [0, 1], codes] = 1
    return logits


@pytest.mark.parametrize("tier", ["exact", "codes"])
def test_codes_are_the_goldens(tier):
    kept = TimedCodes(Engine([0, 0]), GOLDEN, tier)
    kept.add([0], GOLDEN.codes[:1])
    kept.add([1], GOLDEN.codes[1:2])
    assert kept.wrong() == ""
    kept.add([2], GOLDEN.codes[1:2])
    assert kept.wrong() == "frame 2: the timed call gave other codes than the golden's"


def test_the_first_call_is_judged_too():
    kept = TimedCodes(Engine([0, 0]), GOLDEN, "exact")
    kept.add([1], GOLDEN.codes[:1])
    assert kept.wrong() == "frame 1: the first call gave other codes than the golden's"


def test_an_engine_of_tier_quality_is_held_against_itself():
    kept = TimedCodes(Engine([4, 4], logits_of([4, 4])), GOLDEN, "quality")
    kept.add([0], np.array([[4, 4]], np.int32))
    assert kept.wrong() == ""
    kept.add([1], np.array([[4, 3]], np.int32))
    assert kept.wrong() == "frame 1: the timed call gave other codes than its own with a trace"


@pytest.mark.parametrize("logits", [None, logits_of([4, 1]), np.full((1, 2, 5), np.nan, np.float32)])
def test_codes_that_no_finite_logits_say_are_wrong(logits):
    kept = TimedCodes(Engine([4, 4], logits), GOLDEN, "quality")
    kept.add([0], np.array([[4, 4]], np.int32))
    assert kept.wrong()


def test_a_buffer_that_the_engine_writes_to_again_is_kept_as_it_was():
    codes = GOLDEN.codes[:1].copy()
    kept = TimedCodes(Engine([0, 0]), GOLDEN, "exact")
    kept.add([0], codes)
    codes[:] = 0
    assert kept.wrong() == ""


def test_frames_at_once_are_judged_one_by_one():
    kept = TimedCodes(Engine([0, 0]), GOLDEN, "exact")
    kept.add([2, 0], GOLDEN.codes[[2, 0]])
    assert kept.wrong() == ""
    kept.add([0, 1, 2], GOLDEN.codes[[0, 2, 2]])
    assert kept.wrong() == "frame 1 as number 1 of 3 at once: the timed call gave other codes than the golden's"


@pytest.mark.parametrize("codes", [GOLDEN.codes[:1], GOLDEN.codes[[0, 1, 2]], np.int32(3)])
def test_frames_at_once_each_have_codes(codes):
    kept = TimedCodes(Engine([0, 0]), GOLDEN, "exact")
    kept.add([0, 1], codes)
    assert kept.wrong()


def test_an_engine_of_tier_quality_says_the_same_alone():
    kept = TimedCodes(Engine([4, 4], logits_of([4, 4])), GOLDEN, "quality")
    kept.add([0, 1], np.array([[4, 4], [4, 4]], np.int32))
    assert kept.wrong() == ""
    kept.add([1, 0], np.array([[4, 4], [3, 4]], np.int32))
    assert kept.wrong() == "frame 0 as number 1 of 2 at once: the timed call gave other codes than its own with a trace"
