"""``cplab wav`` with what are no codes: one line that names the file."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from cplab import speech
from cplab.__main__ import app
from cplab.commandline import WRONG_USE, run


def sixteen_books(self, folder):
    """A decoder as far as it says what codes it takes."""
    self.codebooks, self.codebook_size = 16, 2048


def npy(array):
    return lambda path: np.save(path, array, allow_pickle=array.dtype == object)


def header(text):
    """A file of version 1 whose header says that, and nothing behind it."""
    return lambda path: path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text)


def raw(content):
    return lambda path: path.write_bytes(content)


FRAMES = np.zeros((3, 16), np.int32)
LARGE = b"{'descr': '<i4', 'fortran_order': False, 'shape': (99999999999, 16), }\n"


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (raw(b""), "no .npy"),
        (raw(b"some text"), "no .npy"),
        (raw(b"PK\3\4 and no archive"), "no .npy"),
        (header(b"{'descr': ((("), "no .npy"),
        (header(LARGE), "no .npy"),
        (lambda path: np.savez(path.open("wb"), codes=FRAMES), "several arrays"),
        (npy(FRAMES.astype(object)), "no .npy"),
        (npy(FRAMES[:0]), "int32[0, 16]; integers [N, 16] are wanted"),
        (npy(FRAMES[0]), "int32[16]; integers [N, 16] are wanted"),
        (npy(FRAMES[:, :15]), "int32[3, 15]; integers [N, 16] are wanted"),
        (npy(FRAMES[None]), "int32[1, 3, 16]; integers [N, 16] are wanted"),
        (npy(FRAMES.astype(np.float32)), "float32[3, 16]; integers [N, 16] are wanted"),
        (npy(FRAMES + 2048), "frame 0: CB0 is 2048"),
        (npy(FRAMES - 1), "a code is -1"),
        (lambda path: path.mkdir(), "directory"),
        (lambda path: None, "No such file"),
    ],
)
def test_what_are_no_codes_is_one_line_that_names_the_file(write, told, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(speech.SpeechDecoder, "__init__", sixteen_books)
    path = tmp_path / "codes.npy"
    write(path)
    out = tmp_path / "out.wav"
    assert run(app, ["wav", "--codes", str(path), "--decoder", str(tmp_path), "-o", str(out)]) == WRONG_USE
    err = capsys.readouterr().err
    assert err.startswith(f"error: {path}: ")
    assert told in err
    assert err.count("\n") == 1
    assert not out.exists()


def test_codes_that_make_sound_are_let_through(tmp_path, capsys):
    np.save(tmp_path / "codes.npy", FRAMES + 2047)
    asked = ["wav", "--codes", str(tmp_path / "codes.npy"), "--decoder", str(tmp_path), "-o", str(tmp_path / "o.wav")]
    assert run(app, asked) == WRONG_USE
    assert "codes.npy" not in capsys.readouterr().err  # it is the decoder that is wanting
