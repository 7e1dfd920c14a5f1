"""Talker dumps as files: what is written is read, and what does not fit together is refused in one line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cplab.errors import BadInputError, NonFiniteLogitsError
from cplab.official import OfficialMismatchError
from cplab.talker_dump import TalkerDump, load_talker_dump
from cplab.talker_dumping import check

F, T, L, H, V, P, C = 4, 5, 2, 8, 30, 3, 20


def made(**changes):
    rng = np.random.default_rng(1)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    values = {
        "prefill": normal(T, H),
        "trailing": normal(L, H),
        "tts_pad": normal(H),
        "tts_bos": normal(H),
        "tts_eos": normal(H),
        "hidden": normal(F, H),
        "logits": normal(F, V),
        "codes": np.column_stack([rng.integers(0, V, F), rng.integers(0, C, (F, P))]).astype(np.int32),
        "step_inputs": normal(F, H),
        "final_hidden": normal(H),
        "final_logits": normal(V),
        "codec_embedding": normal(V, H),
        "code_predictor_tables": normal(P, C, H),
        "ended": "end code",
        "talker_digest": "a" * 16,
        "code_predictor_digest": "b" * 16,
        "config": {"codec_eos_token_id": 29},
        "rules": {"repetition_penalty": 1.05},
        "provenance": {"text": "Bonjour"},
    }
    dump = TalkerDump(**values)
    sums = np.stack([dump.next_input(frame) for frame in range(F)])
    return TalkerDump(**(values | {"step_inputs": sums} | changes))


def rewritten(path, **changes):
    with np.load(path) as file:
        arrays = {name: file[name] for name in file} | changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})


def test_what_is_written_is_read(tmp_path):
    dump = made()
    dump.save(tmp_path / "d.npz")
    back = load_talker_dump(tmp_path / "d.npz")
    assert len(back) == F
    for name in TalkerDump.__slots__:
        mine, theirs = getattr(dump, name), getattr(back, name)
        assert np.array_equal(mine, theirs) if isinstance(mine, np.ndarray) else mine == theirs, name
    assert [p.name for p in tmp_path.iterdir()] == ["d.npz"]


def test_the_same_dump_is_the_same_bytes(tmp_path):
    made().save(tmp_path / "a.npz")
    made().save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_the_next_input_is_cb0_and_every_table_and_text_then_pad():
    dump = made()
    for frame in range(F):
        expected = dump.codec_embedding[dump.codes[frame, 0]].astype(np.float64)
        for table, code in zip(dump.code_predictor_tables, dump.codes[frame, 1:], strict=True):
            expected += table[code]
        expected += dump.trailing[frame] if frame < L else dump.tts_pad
        assert np.abs(dump.next_input(frame) - expected).max() < 1e-5
    check(dump)


@pytest.mark.parametrize("frame", [0, F - 1])
def test_an_input_that_is_not_its_sum_is_told(frame):
    dump = made()
    inputs = dump.step_inputs.copy()
    inputs[frame, 3] += 1e-4
    with pytest.raises(OfficialMismatchError, match=f"frame {frame}"):
        check(made(step_inputs=inputs))


def test_text_that_is_added_a_frame_late_is_told():
    dump = made()
    late = made(trailing=np.roll(dump.trailing, 1, axis=0), step_inputs=dump.step_inputs)
    with pytest.raises(OfficialMismatchError, match="frame 0"):
        check(late)


def test_nan_is_never_a_dump(tmp_path):
    dump = made()
    logits = dump.logits.copy()
    logits[2, 5] = np.nan
    with pytest.raises(NonFiniteLogitsError, match="frame 2"):
        check(made(logits=logits))
    with pytest.raises(BadInputError, match="logits holds NaN"):
        made(logits=logits).save(tmp_path / "d.npz")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"hidden": np.zeros((F, H + 1), np.float32)}, "hidden is [4, 9]"),
        ({"hidden": np.zeros((F + 1, H), np.float32)}, "does not fit"),
        ({"prefill": np.zeros((T, H))}, "prefill is float64"),
        ({"codes": np.full((F, P + 1), C, np.int32)}, "codes outside their tables"),
        ({"codes": np.full((F, P + 1), -1, np.int32)}, "codes outside their tables"),
        ({"codes": np.zeros((F, P), np.int32)}, "3 groups, 3 tables"),
        ({"final_logits": np.full(V, np.inf, np.float32)}, "final_logits holds NaN or infinite"),
        ({"tts_eos": None}, "tts_eos"),
        ({"about": None}, "not a talker dump"),
        ({"about": np.frombuffer(json.dumps({"schema": "cplab.golden/1"}).encode(), np.uint8)}, "schema"),
        ({"about": np.frombuffer(json.dumps({"schema": "cplab.talker_dump/1"}).encode(), np.uint8)}, "ended"),
    ],
)
def test_what_does_not_fit_together_is_one_line(tmp_path, changes, word):
    path = tmp_path / "d.npz"
    made().save(path)
    rewritten(path, **changes)
    with pytest.raises(BadInputError) as caught:
        load_talker_dump(path)
    assert word in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"", b"no zip"])
def test_files_that_are_none_are_one_line(tmp_path, content):
    path = tmp_path / "d.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInputError, match=r"d\.npz: "):
        load_talker_dump(path)
